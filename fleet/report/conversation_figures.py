"""The drawings of a conversation run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.report.plots import Line, curves, heat_map, stacked_bars

if TYPE_CHECKING:
    from fleet.bench.summarise import Summary, Totals, TurnPoint
    from fleet.report.page import Figure

_CURVES = (
    ("prefill", "Prefill of each turn, median of repeats."),
    ("ttft", "Time to the first token of each turn, median of repeats."),
    ("decode", "Decode time of each turn, median of repeats."),
)


def heat_maps(summary: Summary) -> tuple[Figure, ...]:
    """Return speed-ups and prefill seconds by conversation and condition; none of nothing."""
    if not summary.points:
        return ()
    by = {(t.conversation, t.condition): t for t in summary.by_conversation}
    base = {gain.condition: gain.baseline for gain in summary.gains}
    talks, names = summary.conversations, summary.conditions
    return (
        heat_map(
            "speed-up", talks, names,
            [[_speedup(by.get((talk, base.get(c, c))), by.get((talk, c))) for c in names]
             for talk in talks],
            unit="x", centre=1.0,
            caption="Speed-up of the whole conversation (wall time of the baseline / of the "
            "condition): above 1 is faster.",
        ),
        heat_map(
            "prefill-seconds", talks, names,
            [[t.prefill_s if (t := by.get((talk, c))) else None for c in names] for talk in talks],
            unit=" s",
            caption="Seconds of prefill for all turns of a conversation.",
        ),
    )  # fmt: skip


def _speedup(before: Totals | None, after: Totals | None) -> float | None:
    if before is None or after is None or before.turns != after.turns or not after.wall_s:
        return None
    return before.wall_s / after.wall_s


def turn_curves(summary: Summary) -> tuple[Figure, ...]:
    """Return prefill, first token and decode over the turns of each conversation."""
    return tuple(
        curves(
            f"turns-{name}",
            {talk: _lines(summary, talk, f"{name}_ms") for talk in summary.conversations},
            x="turn",
            y=f"{'first token' if name == 'ttft' else name}, s",
            caption=caption,
        )
        for name, caption in _CURVES
        if summary.points
    )


def _lines(summary: Summary, talk: str, field: str) -> list[Line]:
    return [
        Line(
            label=condition,
            x=tuple(p.turn for p in points),
            y=tuple(getattr(p, field) / 1000 for p in points),
        )
        for condition in summary.conditions
        if (points := _points(summary, talk, condition))
    ]


def _points(summary: Summary, talk: str, condition: str) -> list[TurnPoint]:
    return [p for p in summary.points if (p.conversation, p.condition) == (talk, condition)]


def cache_map(summary: Summary) -> tuple[Figure, ...]:
    """Return the prompt of each turn, cached and processed tokens stacked."""
    panels = {
        f"{talk} {condition}": {
            "cached": [p.cached_tokens for p in points],
            "processed": [p.processed_tokens for p in points],
        }
        for talk in summary.conversations
        for condition in summary.conditions
        if (points := _points(summary, talk, condition))
    }
    if not panels:
        return ()
    return (
        stacked_bars(
            "cache-map", panels, x="turn", y="prompt tokens", across=len(summary.conditions),
            caption="The prompt of each turn: tokens taken from the cache and tokens processed.",
        ),
    )  # fmt: skip
