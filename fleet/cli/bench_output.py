"""What `fleet bench` prints, for people and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fleet.cli.output import console, print_table
from fleet.report.words import in_unit, number, percent, value_and_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fleet.bench.compare import Comparison
    from fleet.bench.load_summary import LoadSummary
    from fleet.bench.parse_llama_bench import RawRow
    from fleet.bench.summarise import Gain, Summary
    from fleet.bench.window_figures import Window


def conversation_json(summary: Summary, folder: Path) -> dict[str, Any]:
    """Return a conversation run as `--json` prints it."""
    return {
        "folder": str(folder),
        "suite": "conversation",
        "turns": sum(total.turns for total in summary.totals),
        "repeats": summary.repeats,
        "conditions": [asdict(total) for total in summary.totals],
        "gains": [asdict(gain) for gain in summary.gains],
        "notes": list(summary.notes),
    }


def print_conversation(summary: Summary, legend: Mapping[str, str]) -> None:
    """Print totals and gains of a conversation run; `legend` says what a condition is."""
    print_table(
        ("condition", "turns>", "processed>", "cached>", "prefill s>", "decode s>", "PP tok/s>",
         "TG tok/s>", "TTFT ms>", "accepted>"),
        [
            (t.condition, t.turns, number(t.processed_tokens, 0), number(t.cached_tokens, 0),
             number(t.prefill_s, 2), number(t.decode_s, 2), number(t.pp_tps), number(t.tg_tps),
             number(t.ttft_ms, 0), percent(t.acceptance))
            for t in summary.totals
        ],
    )  # fmt: skip
    told = [f"{name}: {legend[name]}" for name in summary.conditions if legend.get(name)]
    if told:
        console.print("; ".join(told), markup=False, soft_wrap=True)
    console.print()
    print_table(
        ("against", "figure", "value>", "95% interval>"),
        [row for gain in summary.gains for row in _gain_rows(gain)],
    )
    _print_notes(summary.notes)


def _gain_rows(gain: Gain) -> list[tuple[str, ...]]:
    """Return one line a figure, so that the table is no wider than any terminal."""
    speedups = (("prefill", gain.prefill), ("decode", gain.decode), ("wall", gain.wall))
    rows = [
        ("prefill saved", *value_and_interval(gain.prefill_saved_s, " s")),
        *((f"{name} speed-up", *value_and_interval(each, "x")) for name, each in speedups),
        ("same answers", f"{gain.same_answers} of {gain.compared}", ""),
    ]
    first = f"{gain.condition} / {gain.baseline}"
    return [(first if place == 0 else "", *row) for place, row in enumerate(rows)]


def print_window(window: Window) -> None:
    """Print the figures of a window."""
    rows = [
        (s.name, in_unit(s.mean, s.unit), *(in_unit(q, s.unit) for q in s.three),
         number(s.count, 0))
        for s in window.stats
    ]  # fmt: skip
    if rows:
        print_table(("figure", "mean>", "median>", "90%>", "99%>", "of>"), rows)
    console.print(
        f"{window.seconds:.0f} s, {window.scrapes} looks, {window.down} without an answer, "
        f"{window.restarts} restarts; requests {number(window.requests, 0)}, of unknown reuse "
        f"{number(window.unknown_reuse, 0)}; prompt {number(window.prompt_tokens, 0)} tokens, "
        f"cached {number(window.cached_tokens, 0)}, "
        f"generated {number(window.generated_tokens, 0)}",
        markup=False,
    )
    _print_notes(window.notes)


def print_load(summary: LoadSummary) -> None:
    """Print the figures of a load run."""
    print_table(
        ("milliseconds", "median>", "90%>", "99%>"),
        [(name, *(number(each) for each in values)) for name, values in summary.waits],
    )
    console.print(
        f"{summary.requests} requests ({summary.failed} failed) in {summary.seconds:.1f} s: "
        f"{summary.throughput:.1f} tok/s generated, {summary.requests_per_s:.2f} requests/s, "
        f"reuse {percent(summary.reuse)}",
        markup=False,
    )


def print_raw(rows: Sequence[RawRow]) -> None:
    """Print llama-bench's rows."""
    print_table(
        ("test", "tok/s>", "spread>", "repetitions>"),
        [(r.name, number(r.mean, 2), number(r.spread, 2), len(r.samples)) for r in rows],
    )


def print_comparison(found: Comparison) -> None:
    """Print a comparison row by row; `*` marks a change whose interval leaves out zero."""
    print_table(
        ("figure", "before>", "after>", "change>", "95% interval>", ""),
        [
            (r.name, in_unit(r.before, r.unit), in_unit(r.after, r.unit), percent(r.change, 2),
             "" if r.low is None else f"{percent(r.low, 1)} to {percent(r.high, 1)}",
             "*" if r.proven else "")
            for r in found.rows
        ],
    )  # fmt: skip
    _print_notes(found.notes)


def comparison_json(found: Comparison, before: Path, after: Path) -> dict[str, Any]:
    """Return a comparison as `--json` prints it."""
    return {
        "before": str(before),
        "after": str(after),
        "suite": found.suite,
        "rows": [{**asdict(row), "proven": row.proven} for row in found.rows],
        "load_difference": dict(found.load),
        "notes": list(found.notes),
    }


def _print_notes(notes: Sequence[str]) -> None:
    for line in notes:
        console.print(f"note: {line}", markup=False)
