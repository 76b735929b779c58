"""What a conversation run says: totals, what caching and speculation save, per turn.

Rules kept here: a prompt rate counts processed tokens only; a generation rate counts the
tokens after the first over decode time; two conditions are compared on the turns that
both have; an interval needs repeats, and without them there is none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

from fleet.bench.intervals import Estimate, quotient_of, total_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from fleet.bench.turn import Turn

BASELINE = "C0"
TurnPlace = tuple[str, int, int]  # conversation, repeat, turn


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """Sums over all turns of a condition, each the mean of its repeats; seconds and tokens.

    `overhead` is the share of wall time that is neither prefill nor decode: client, HTTP,
    tokenizer, template and cache look-up. Rates are None where nothing was counted.
    """

    condition: str
    conversation: str | None
    repeats: int
    turns: int
    processed_tokens: float
    cached_tokens: float
    generated_tokens: float
    prefill_s: float
    decode_s: float
    wall_s: float
    ttft_ms: float
    pp_tps: float | None
    tg_tps: float | None
    reuse: float | None
    acceptance: float | None
    draft_n: int
    draft_accepted: int
    cold: int
    retries: int
    overhead: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Gain:
    """One condition against its baseline on the turns that both have.

    `prefill_saved_s` is seconds saved in one pass; the speed-ups are baseline / condition,
    so that above 1 is faster. `same_answers` of `compared` answers are identical;
    `parts_at` is the first turn with another answer, by conversation.
    """

    condition: str
    baseline: str
    pairs: int
    prefill_saved_s: Estimate
    prefill: Estimate | None
    decode: Estimate | None
    wall: Estimate | None
    same_answers: int
    compared: int
    parts_at: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnPoint:
    """Medians over the repeats of one turn of one conversation under one condition."""

    conversation: str
    condition: str
    turn: int
    processed_tokens: float
    cached_tokens: float
    prefill_ms: float
    decode_ms: float
    ttft_ms: float
    wall_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """All figures of a conversation run, in the order in which things were first measured."""

    conditions: tuple[str, ...]
    conversations: tuple[str, ...]
    repeats: int
    totals: tuple[Totals, ...]
    by_conversation: tuple[Totals, ...]
    gains: tuple[Gain, ...]
    points: tuple[TurnPoint, ...]
    notes: tuple[str, ...]


def summarise(turns: Sequence[Turn], *, conditions: Sequence[str] = ()) -> Summary:
    """Return the figures of `turns`; `conditions` fixes the order of the columns."""
    seen = dict.fromkeys(turn.condition for turn in turns)
    names = (*(c for c in conditions if c in seen), *(c for c in seen if c not in conditions))
    talks = tuple(sorted({turn.conversation for turn in turns}))
    repeats = max((turn.repeat for turn in turns), default=0)
    return Summary(
        conditions=names,
        conversations=talks,
        repeats=repeats,
        totals=tuple(_totals([t for t in turns if t.condition == c], c, None) for c in names),
        by_conversation=tuple(
            _totals(chosen, c, talk)
            for talk in talks
            for c in names
            if (chosen := [t for t in turns if (t.conversation, t.condition) == (talk, c)])
        ),
        gains=tuple(
            gain_of(turns, condition=c, baseline=base)
            for c in names
            if (base := baseline_of(c, names)) != c
        ),
        points=_points(turns, names),
        notes=_notes(turns, names, repeats),
    )


def baseline_of(condition: str, conditions: Sequence[str]) -> str:
    """Return the condition to compare with: C0 of the same deployment, or its first.

    With several deployments in one run a condition is named `DEPLOYMENT:CONDITION`.
    """
    deployment = _deployment(condition)
    peers = [other for other in conditions if _deployment(other) == deployment]
    return next((p for p in peers if p.rpartition(":")[2] == BASELINE), peers[0])


def _deployment(condition: str) -> str:
    return condition.rpartition(":")[0]


def gain_of(turns: Iterable[Turn], *, condition: str, baseline: str) -> Gain:
    """Compare two conditions of one run, paired by conversation, turn and repeat."""
    sides: dict[str, dict[TurnPlace, Turn]] = {condition: {}, baseline: {}}
    for turn in turns:
        if turn.condition in sides:
            sides[turn.condition][turn.conversation, turn.repeat, turn.turn] = turn
    return gain_between(sides[baseline], sides[condition], condition=condition, baseline=baseline)


def gain_between(
    before: Mapping[TurnPlace, Turn],
    after: Mapping[TurnPlace, Turn],
    *,
    condition: str,
    baseline: str,
) -> Gain:
    """Compare two sets of turns by (conversation, repeat, turn); only what both have counts."""
    both = sorted(before.keys() & after.keys())
    cells = _whole_cells(both)
    others = [key for key in both if before[key].answer_sha256 != after[key].answer_sha256]

    def strata(cost: Callable[[Turn, Turn], float]) -> list[list[float]]:
        return [[sum(cost(before[k], after[k]) for k in cell) for cell in row] for row in cells]

    def speedup(
        old: Callable[[Turn], float], new: Callable[[Turn, Turn], float]
    ) -> Estimate | None:
        return quotient_of(strata(lambda b, _: old(b)), strata(new))

    return Gain(
        condition=condition,
        baseline=baseline,
        pairs=len(both),
        prefill_saved_s=total_of(strata(lambda b, a: (b.prefill_ms - a.prefill_ms) / 1000)),
        prefill=speedup(lambda b: b.prefill_ms, lambda _, a: a.prefill_ms),
        decode=speedup(lambda b: b.decode_ms, _decode_of_equal_length),
        wall=speedup(lambda b: b.wall_ms, lambda _, a: a.wall_ms),
        same_answers=len(both) - len(others),
        compared=len(both),
        parts_at={
            talk: min(k[2] for k in others if k[0] == talk) for talk in {k[0] for k in others}
        },
    )


def _whole_cells(keys: Sequence[TurnPlace]) -> list[list[list[TurnPlace]]]:
    """Return by conversation the repeats that have all turns which any of its repeats has.

    Repeats of one conversation vary among each other; conversations are unlike on purpose,
    so an interval comes from the spread within them.
    """
    cells: dict[str, dict[int, list[TurnPlace]]] = {}
    for key in keys:
        cells.setdefault(key[0], {}).setdefault(key[1], []).append(key)
    longest = {talk: max(map(len, repeats.values())) for talk, repeats in cells.items()}
    return [
        [cell for cell in repeats.values() if len(cell) == longest[talk]]
        for talk, repeats in cells.items()
    ]


def _decode_of_equal_length(before: Turn, after: Turn) -> float:
    """Milliseconds for as many tokens as before, so that unequal lengths are no speed."""
    return after.decode_ms * _steps(before) / _steps(after) if _steps(after) else 0.0


def _steps(turn: Turn) -> int:
    """Tokens after the first: the first one comes from the prompt's own pass."""
    return max(turn.generated_tokens - 1, 0)


def _totals(turns: Sequence[Turn], condition: str, conversation: str | None) -> Totals:
    times = Counter((turn.conversation, turn.turn) for turn in turns)

    def total(of: Callable[[Turn], float]) -> float:
        return sum(of(turn) / times[turn.conversation, turn.turn] for turn in turns)

    processed, cached = total(lambda t: t.processed_tokens), total(lambda t: t.cached_tokens)
    prefill, decode = total(lambda t: t.prefill_ms), total(lambda t: t.decode_ms)
    wall = total(lambda t: t.wall_ms)
    draft, accepted = total(lambda t: t.draft_n), total(lambda t: t.draft_accepted)
    return Totals(
        condition=condition,
        conversation=conversation,
        repeats=max(times.values(), default=1),
        turns=len(turns),
        processed_tokens=processed,
        cached_tokens=cached,
        generated_tokens=total(lambda t: t.generated_tokens),
        prefill_s=prefill / 1000,
        decode_s=decode / 1000,
        wall_s=wall / 1000,
        ttft_ms=median([t.ttft_ms for t in turns]) if turns else 0.0,
        pp_tps=_per(processed, prefill / 1000),
        tg_tps=_per(total(_steps), decode / 1000),
        reuse=_per(cached, cached + processed),
        acceptance=_per(accepted, draft),
        draft_n=sum(turn.draft_n for turn in turns),
        draft_accepted=sum(turn.draft_accepted for turn in turns),
        cold=sum(turn.cold for turn in turns),
        retries=sum(turn.retries for turn in turns),
        overhead=max(0.0, 1 - (prefill + decode) / wall) if wall else 0.0,
    )


def _per(amount: float, base: float) -> float | None:
    return amount / base if base > 0 else None


def _points(turns: Sequence[Turn], conditions: Sequence[str]) -> tuple[TurnPoint, ...]:
    groups: dict[tuple[str, str, int], list[Turn]] = {}
    for turn in turns:
        groups.setdefault((turn.conversation, turn.condition, turn.turn), []).append(turn)

    def middle(group: Sequence[Turn], name: str) -> float:
        return median(float(getattr(turn, name)) for turn in group)

    names = ("processed_tokens", "cached_tokens", "prefill_ms", "decode_ms", "ttft_ms", "wall_ms")
    return tuple(
        TurnPoint(
            conversation=talk,
            condition=condition,
            turn=number,
            **{name: middle(group, name) for name in names},
        )
        for (talk, condition, number), group in sorted(
            groups.items(), key=lambda item: (item[0][0], conditions.index(item[0][1]), item[0][2])
        )
    )


def _notes(turns: Sequence[Turn], conditions: Sequence[str], repeats: int) -> tuple[str, ...]:
    notes = []
    if repeats == 1:
        notes.append("one repeat: no intervals, so no difference here is proven (`--repeat 3`)")
    counts = {c: sum(turn.condition == c for turn in turns) for c in conditions}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{c} {n}" for c, n in counts.items())
        notes.append(f"the run is not complete (turns: {listed}); only shared turns are compared")
    if retries := sum(turn.retries for turn in turns):
        notes.append(f"{retries} requests were cut off and sent again; the last try is counted")
    if turns and fmean(turn.prefill_ms for turn in turns) == 0:
        notes.append("the server gave no prefill times")
    return tuple(notes)
