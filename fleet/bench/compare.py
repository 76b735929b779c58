"""Two results folders side by side: what changed, by how much, and whether that is proven."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fleet.bench.intervals import Estimate, difference_of
from fleet.bench.summarise import gain_between
from fleet.errors import NotAsWanted, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fleet.bench.parse_llama_bench import RawRow
    from fleet.bench.turn import Turn
    from fleet.bench.window_figures import Stat, Window

TOLERANCE = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of a comparison; `change` is after / before - 1, None where before is 0.

    `low` and `high` bound the change (95%); `proven` says that they exclude no change.
    """

    name: str
    unit: str
    before: float | None
    after: float | None
    change: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def proven(self) -> bool:
        """Whether the interval of the change leaves out zero."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All rows, and how unequal the loads were (name -> relative difference)."""

    suite: str
    rows: tuple[Row, ...]
    load: Mapping[str, float]
    notes: tuple[str, ...] = ()


def compare_windows(before: Window, after: Window, *, allow_unequal: bool = False) -> Comparison:
    """Compare two windows; loads are compared a minute, so that lengths may differ.

    Raises `NotAsWanted` when a load differs by more than 20% and that was not allowed.
    """
    if before.engine != after.engine:
        message = f"the engines differ: {before.engine} and {after.engine}"
        raise NotAsWanted(message, fix="their figures do not mean the same")
    load = _unequal(_load(before), _load(after))
    _refuse(load, allow_unequal=allow_unequal)
    pairs = {stat.name: [stat, None] for stat in before.stats}
    for stat in after.stats:
        pairs.setdefault(stat.name, [None, None])[1] = stat
    counts = [
        _plain_row(name, unit, *(of(window) for window in (before, after)))
        for name, unit, of in _COUNTS
    ]
    rows = [row for name, (old, new) in pairs.items() for row in _stat_rows(name, old, new)]
    return Comparison(
        suite="window",
        rows=tuple(row for row in (*counts, *rows) if (row.before, row.after) != (None, None)),
        load=load,
        notes=tuple(dict.fromkeys((*before.notes, *after.notes))),
    )


def compare_conversations(
    before: Sequence[Turn],
    after: Sequence[Turn],
    *,
    runs: tuple[Mapping[str, Any], Mapping[str, Any]],
    allow_unequal: bool = False,
) -> Comparison:
    """Compare two conversation runs, each condition with itself, on the turns both have.

    Equal work is demanded: the same mode, answer length, seed and conversations.
    Raises `NotAsWanted`.
    """
    odd = [key for key in ("mode", "generate", "seed") if runs[0].get(key) != runs[1].get(key)]
    shas = [{c["name"]: c["sha256"] for c in run.get("conversations", ())} for run in runs]
    odd += [name for name in shas[0] if shas[1].get(name, shas[0][name]) != shas[0][name]]
    if odd and not allow_unequal:
        raise NotAsWanted(
            f"the runs did unequal work: {', '.join(odd)} differ", fix="`--allow-unequal` forces it"
        )
    rows: list[Row] = []
    for condition in dict.fromkeys(t.condition for t in before):
        sides = [
            {(t.conversation, t.repeat, t.turn): t for t in side if t.condition == condition}
            for side in (before, after)
        ]
        gain = gain_between(*sides, condition=condition, baseline=condition)
        if not gain.pairs:
            continue
        for name, of in (("prefill", "prefill_ms"), ("decode", "decode_ms"), ("wall", "wall_ms")):
            both = sides[0].keys() & sides[1].keys()
            old, new = (sum(getattr(side[k], of) for k in both) / 1000 for side in sides)
            rows.append(_ratio_row(f"{condition} {name}", old, new, getattr(gain, name)))
    if not rows:
        raise UserError("the runs share no turn", fix="the same conditions and conversations")
    same = runs[0].get("machine", {}).get("fingerprint") == runs[1].get("machine", {}).get(
        "fingerprint"
    )
    notes = () if same else ("the runs are from different machines",)
    return Comparison(suite="conversation", rows=tuple(rows), load={}, notes=notes)


_COUNTS: tuple[tuple[str, str, Callable[[Window], float | None]], ...] = (
    ("requests", "", lambda w: w.requests),
    ("requests with unknown reuse", "", lambda w: w.unknown_reuse),
    ("prompt tokens a minute", "tokens", lambda w: _a_minute(w, w.prompt_tokens)),
    ("generated tokens a minute", "tokens", lambda w: _a_minute(w, w.generated_tokens)),
    ("restarts", "", lambda w: w.restarts),
)


def compare_loads(
    before: Mapping[str, Any], after: Mapping[str, Any], *, allow_unequal: bool = False
) -> Comparison:
    """Compare two load runs by their summaries (see `load_summary`)."""
    keys = ("requests", "prompt_tokens", "generated_tokens", "users", "rate")
    sides = [{k: float(s[k]) for k in keys if s.get(k) is not None} for s in (before, after)]
    load = _unequal(*sides)
    _refuse(load, allow_unequal=allow_unequal)
    names = [
        k for k, v in before.items()
        if isinstance(v, (int, float)) and k in after and k not in keys
    ]  # fmt: skip
    rows = tuple(_plain_row(name, "", before[name], after[name]) for name in names)
    return Comparison(suite="load", rows=rows, load=load)


def _load(window: Window) -> dict[str, float]:
    found = {
        "prompt tokens": _a_minute(window, window.prompt_tokens),
        "generated tokens": _a_minute(window, window.generated_tokens),
    }
    if window.requests is not None:
        found["requests"] = _a_minute(window, window.requests)
    return found


def _a_minute(window: Window, amount: float) -> float:
    return amount / window.seconds * 60 if window.seconds else 0.0


def _unequal(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {
        name: abs(after[name] - value) / max(value, after[name], 1e-9)
        for name, value in before.items()
        if name in after
    }


def _refuse(load: Mapping[str, float], *, allow_unequal: bool) -> None:
    worst = max(load, key=lambda name: load[name], default=None)
    if worst is not None and load[worst] > TOLERANCE and not allow_unequal:
        raise NotAsWanted(
            f"the loads differ by {load[worst]:.0%} in {worst}: no fair comparison",
            fix="measure both under like load, or say `--allow-unequal`",
        )


def _stat_rows(name: str, before: Stat | None, after: Stat | None) -> tuple[Row, ...]:
    unit = next(stat.unit for stat in (before, after) if stat is not None)
    if before is None or after is None:
        old, new = (stat.mean if stat else None for stat in (before, after))
        return (_plain_row(name, unit, old, new),)
    mean = _mean_row(
        f"{name}, mean" if unit == "s" else name, unit,
        (before.mean, before.blocks), (after.mean, after.blocks),
    )  # fmt: skip
    quantiles = [
        _plain_row(f"{name}, {word}", unit, old, new)
        for word, old, new in zip(
            ("median", "90th percentile", "99th percentile"),
            before.quantiles,
            after.quantiles,
            strict=False,
        )
    ]
    return (mean, *quantiles)


def _mean_row(
    name: str,
    unit: str,
    before: tuple[float, Sequence[float]],
    after: tuple[float, Sequence[float]],
) -> Row:
    """Return the change of a mean, its interval from the values that each side was made of."""
    gap = difference_of(before[1] or before[:1], after[1] or after[:1])
    low, high = (_relative(bound, before[0]) for bound in (gap.low, gap.high))
    return replace(_plain_row(name, unit, before[0], after[0]), low=low, high=high)


def _plain_row(name: str, unit: str, before: float | None, after: float | None) -> Row:
    gap = None if before is None or after is None else after - before
    return Row(
        name=name, unit=unit, before=before, after=after,
        change=None if gap is None or before is None else _relative(gap, before),
    )  # fmt: skip


def _ratio_row(name: str, before: float, after: float, speedup: Estimate | None) -> Row:
    low = high = None
    if speedup is not None and speedup.low is not None and speedup.high is not None:
        low, high = 1 / speedup.high - 1, 1 / speedup.low - 1
    return replace(_plain_row(name, "s", before, after), low=low, high=high)


def _relative(gap: float | None, base: float) -> float | None:
    return None if gap is None or base == 0 else gap / base


def compare_raw(before: Sequence[RawRow], after: Sequence[RawRow]) -> Comparison:
    """Compare llama-bench's tests of the same name, with intervals from their repetitions."""
    old = {row.name: row for row in before}
    rows = [
        _mean_row(row.name, "tok/s", (old[row.name].mean, old[row.name].samples),
                  (row.mean, row.samples))
        for row in after
        if row.name in old
    ]  # fmt: skip
    if not rows:
        raise UserError("the runs share no test", fix="run the same tests")
    return Comparison(suite="raw", rows=tuple(rows), load={})
