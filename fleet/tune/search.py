"""The search as a conversation: `ask` for the next run, `tell` what came of it.

It knows nothing of servers, clocks or files: costs come in with the results, and the same
asks follow from the same seed and results, so a study is resumed by telling it its log.

1. The default is run first, and again at least every `ANCHOR` runs.
2. Exploring: the run with the largest expected improvement per cost, once each; a cell that
   failed is not tried again, one that resembles failed ones less readily.
3. Before the budget ends, or when nothing promises more than `TOO_LITTLE`, the best candidate
   is confirmed against the default in fresh pairs, A B B A; as many as its gain needs.
4. It is accepted when the lower bound of its ratio to the default exceeds the margin by all
   runs, and the fresh pairs alone exceed it by more than their own deviation; a refuted one
   gives way to the next. Else the default stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Literal

import numpy as np

from fleet.tune.paired_ratio import Ratio, lower, paired_ratio, upper
from fleet.tune.surface_model import SurfaceModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fleet.tune.search_space import Cell, SearchSpace

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

Purpose = Literal["default", "explore", "confirm"]
Stopped = Literal["budget", "nothing-more-to-gain", "default-fails", "most-runs", "roofline"]

ANCHOR = 8
TOO_LITTLE = 0.0004  # expected improvement in log value
NEW_VALUE = 0.25  # standard deviation, in log value, of what a name not yet tried may bring
POOL = 1500  # cells looked at for each proposal
STRONG = 4.0  # a gain of so many standard deviations needs one fresh pair only
MOST_PAIRS = 12
FRESH = 2.0  # deviations by which the fresh pairs alone must exceed the margin
LEAST_STEPS = 3  # repeats that say something of the noise
MOST_RUNS = 600  # beliefs cost the cube of the runs
SURE = (6.0, 16.0)  # deviations of a gain from which the fresh pairs alone are the claim
DEFAULT_TRIES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """What to run next, and what for."""

    cell: Cell
    purpose: Purpose


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run: log value with larger better (None when it failed) and what it cost."""

    cell: Cell
    purpose: Purpose
    log_value: float | None
    cost: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The end: the accepted cell or the default, and the ratio that the candidate showed.

    `gain` is the accepted cell's ratio to the default minus 1 (0 when the default stays),
    `candidate` the best contender whether accepted or not, `ratio` its log ratio.
    """

    cell: Cell
    gain: float
    accepted: bool
    candidate: Cell | None = None
    ratio: Ratio | None = None
    pairs: int = 0
    why: str = ""


class Search:
    """One study over `space`; every method is deterministic given the seed and what was told."""

    def __init__(
        self, space: SearchSpace, *, seed: int = 0, margin: float = 0.0, defaults: int = 1
    ) -> None:
        """`margin` is the smallest gain worth keeping, as a log ratio.

        The default is run `defaults` times before anything else, to learn the noise.
        """
        self.space = space
        self.margin = margin
        self.defaults = defaults
        self.model = SurfaceModel(space.params, np.random.default_rng(seed))
        self.runs: list[Run] = []
        self.stopped: Stopped = "budget"
        self.at_roofline = False  # set from outside: nothing can be faster than what is known
        self._rng = np.random.default_rng([seed, 1])
        self._cells: Ints = np.array(space.allowed, dtype=np.int64)
        self._order = {cell: at for at, cell in enumerate(space.allowed)}
        self._good = np.zeros(len(space.allowed), dtype=np.int64)
        self._barred = np.zeros(len(space.allowed), dtype=bool)
        dims = range(len(space.params))
        self._ones_and_pairs = [[at] for at in dims] + [[a, b] for a in dims for b in range(a)]
        self._dear = np.array([param.dear for param in space.params])
        self._candidate: Cell | None = None
        self._queue: list[Cell] = []
        self._refuted: set[Cell] = set()

    @property
    def known(self) -> Mapping[Cell, int]:
        """The cells that may be run, by their number."""
        return self._order

    def bar(self, cell: Cell) -> None:
        """Never choose `cell` from here on (it harms something that the value does not show)."""
        if cell != self.space.default:
            self._bar(cell)

    def confirm_again(self, cell: Cell) -> bool:
        """Ask for one more fresh pair of `cell`; False when it has had the most."""
        if self._pairs(cell) >= MOST_PAIRS or self._queue:
            return False
        self._candidate = cell
        self._queue = self._pair(cell)
        return True

    def ask(self, left: float, *, pending: Sequence[Cell] = ()) -> Proposal | None:
        """Return the next run for a budget of which `left` is left, None when done.

        `pending` are cells that run elsewhere at this moment.
        """
        proposal = self._propose(left, pending)
        if len(self.runs) >= MOST_RUNS:
            self.stopped = "most-runs"
            return None
        if proposal is not None and self.runs and self.cost(proposal.cell) > left:
            self.stopped = "budget"
            return None
        return proposal

    def _propose(self, left: float, pending: Sequence[Cell]) -> Proposal | None:
        default = self.space.default
        if len(self.model) < self.defaults:
            if len(self.runs) >= DEFAULT_TRIES + len(self.model):
                self.stopped = "default-fails"
                return None
            return Proposal(cell=default, purpose="default")
        if self._candidate is not None:
            return self._confirm(left)
        explored = None if self.at_roofline else self._most_promising(pending)
        if explored is None or left < self._reserve() + self.cost(explored):
            self.stopped = "nothing-more-to-gain" if explored is None else "budget"
            if self.at_roofline:
                self.stopped = "roofline"
            return self._begin_to_confirm(left)
        if self._since_default() >= ANCHOR and default not in pending:
            return Proposal(cell=default, purpose="default")
        return Proposal(cell=explored, purpose="explore")

    def tell(self, proposal: Proposal, value: float | None, cost: float) -> None:
        """Take in a run; a value that is not a positive number counts as failed."""
        log_value = None
        if value is not None and math.isfinite(value) and value > 0:
            log_value = math.log(value) if self.space.maximize else -math.log(value)
        run = Run(cell=proposal.cell, purpose=proposal.purpose, log_value=log_value, cost=cost)
        self.runs.append(run)
        at = self._order[proposal.cell]
        if log_value is not None:
            self._good[at] += 1
            self.model.add(proposal.cell, float(len(self.runs)), log_value)
        if at and log_value is None:
            self._bar(proposal.cell)

    def cost(self, cell: Cell) -> float:
        """Expect what running `cell` next costs, from like runs so far."""
        before = self.runs[-1].cell if self.runs else None
        return self._costs()[self._kind(before, cell)]

    def verdict(self) -> Verdict:
        """Judge the best contender by all runs; may be asked at any time."""
        default = self.space.default
        candidate = self._candidate or self._best()
        if candidate is None or candidate == default or self._barred[self._order[candidate]]:
            return Verdict(cell=default, gain=0.0, accepted=False, why="nothing beat the default")
        believed, fresh = self._gap(candidate), self._fresh(candidate)
        pairs = self._pairs(candidate)
        verdict = Verdict(
            cell=default, gain=0.0, accepted=False, candidate=candidate, ratio=believed, pairs=pairs
        )
        if fresh is None:
            return _because(verdict, "no time was left to confirm it")
        if upper(believed) <= self.margin:
            return _because(verdict, "refuted: no better than the default")
        unproven = fresh.log_ratio - FRESH * fresh.deviation <= self.margin
        if lower(believed) <= self.margin or unproven:
            return _because(verdict, "inconclusive: its gain is within the noise")
        claim = _claim(believed, fresh)
        return Verdict(
            cell=candidate,
            gain=math.expm1(claim.log_ratio),
            accepted=True,
            candidate=candidate,
            ratio=claim,
            pairs=pairs,
            why="confirmed",
        )

    def best_so_far(self) -> float:
        """Return the believed gain of the best cell that was run, 0 when that is the default."""
        best = self._best() if len(self.model) else None
        if best is None or best == self.space.default:
            return 0.0
        return math.expm1(self._gap(best).log_ratio)

    def believed_ratio(self, cell: Cell) -> Ratio:
        """Return the log ratio of any cell to the default as all runs make it believed."""
        return self._gap(cell)

    # what comes next

    def _most_promising(self, pending: Sequence[Cell]) -> Cell | None:
        """Return the cell with the largest expected improvement per cost, None if too little."""
        pool = self._pool()
        mean, deviation = self.model.spread(self._cells[pool])
        candidates = (self._good[pool] > 0) & ~self._barred[pool]
        best = int(np.argmax(np.where(candidates, mean.mean(axis=0), -np.inf)))
        deviation = np.hypot(deviation, NEW_VALUE * self._new_values(pool))
        gain = _improvement(mean - mean[:, best : best + 1], deviation)
        # a run tells less of a cell that is known as well as one run can tell
        gain = (gain * (1 - self.model.noise / np.hypot(deviation, self.model.noise))).mean(axis=0)
        gain *= 1 - self._risk(pool)
        gain[[at for at, index in enumerate(pool) if self.space.allowed[index] in pending]] = 0
        if gain.max() < TOO_LITTLE:
            return None
        chosen: int = pool[int(np.argmax(gain / self._cost_of(pool)))]
        return self.space.allowed[chosen]

    def _begin_to_confirm(self, left: float) -> Proposal | None:
        best = self._best()
        if best is None or best == self.space.default:
            return None
        self._candidate = best
        few = self._is_strong(best) or left < 4 * self._pair_cost() / 2
        self._queue = self._pair(best) if few else self._pair(best) + self._pair(best)[::-1]
        return self._confirm(left)

    def _confirm(self, left: float) -> Proposal | None:
        candidate = self._candidate
        if candidate is None:
            return None
        barred = bool(self._barred[self._order[candidate]])
        if not self._queue:
            if not barred and self.verdict().accepted:
                return None
            if barred or upper(self._gap(candidate)) <= self.margin:
                self._refuted.add(candidate)
                self._candidate = None
                return self._begin_to_confirm(left)
            if self._pairs(candidate) >= MOST_PAIRS or left < self._pair_cost():
                return None
            self._queue = self._pair(candidate)
        return Proposal(cell=self._queue.pop(0), purpose="confirm")

    def _pair(self, cell: Cell) -> list[Cell]:
        """Return candidate and default, the one that is loaded now first."""
        default = self.space.default
        return [cell, default] if self.runs[-1].cell == cell else [default, cell]

    # what is kept for the end

    def _reserve(self) -> float:
        """Return the cost of the fresh pairs that the best candidate needs."""
        best = self._best()
        if best is None or best == self.space.default or self._is_strong(best):
            return self._pair_cost()
        ratio = self._gap(best)
        needed = 2 * (1.7 * self.model.noise / max(ratio.log_ratio, 1e-3)) ** 2
        total = sum(run.cost for run in self.runs)
        most = max(2.0, 0.15 * total / self._pair_cost())
        return self._pair_cost() * min(max(2.0, needed), most)

    def _is_strong(self, cell: Cell) -> bool:
        ratio = self._gap(cell)
        return ratio.log_ratio > STRONG * ratio.deviation

    def _pair_cost(self) -> float:
        costs = self._costs()
        return 2 * costs["dear" if self._dear.any() else "cheap"]

    # what is believed

    def _best(self) -> Cell | None:
        """Return the run cell with the best mean that is neither barred nor refuted."""
        fit = [
            at
            for at in np.flatnonzero((self._good > 0) & ~self._barred)
            if self.space.allowed[at] not in self._refuted
        ]
        if not fit:
            return None
        mean, _ = self.model.spread(self._cells[fit])
        return self.space.allowed[fit[int(np.argmax(mean.mean(axis=0)))]]

    def _gap(self, cell: Cell) -> Ratio:
        """Log ratio of `cell` to the default by all runs."""
        belief = self.model.believe(np.array([cell, self.space.default], dtype=np.int64))
        gap = belief.mean[:, 0] - belief.mean[:, 1]
        cov = belief.covariance
        variance = cov[:, 0, 0] + cov[:, 1, 1] - 2 * cov[:, 0, 1]
        deviation = math.sqrt(max(float(variance.mean() + gap.var()), 1e-12))
        return Ratio(log_ratio=float(gap.mean()), deviation=deviation)

    def _fresh(self, cell: Cell) -> Ratio | None:
        """Log ratio by the confirming runs of `cell`, which nothing selected, and the default's."""
        default = self.space.default
        runs = [
            (at, run.cell == cell, run.log_value)
            for at, run in enumerate(self.runs)
            if run.log_value is not None
            and (run.cell == default or (run.cell == cell and run.purpose == "confirm"))
        ]
        return paired_ratio(runs, noise=self._noise(), drift=self.model.drift)

    def _noise(self) -> float:
        """Return the run-to-run deviation: the model's, or the repeated runs' if larger.

        On a flat surface a model may take noise for differences between cells.
        """
        by_cell: dict[Cell, list[float]] = {}
        for run in self.runs:
            if run.log_value is not None:
                by_cell.setdefault(run.cell, []).append(run.log_value)
        steps = [
            (after - before) / math.sqrt(2)
            for values in by_cell.values()
            for before, after in pairwise(values)
        ]
        if len(steps) < LEAST_STEPS:
            return self.model.most_noise
        return max(self.model.most_noise, 1.4826 * median(abs(step) for step in steps))

    def _pairs(self, cell: Cell) -> int:
        return sum(
            run.purpose == "confirm" and run.cell == cell and run.log_value is not None
            for run in self.runs
        )

    def _pool(self) -> list[int]:
        """Return the cells to look at: all, or of a large space the run ones, their kin, some."""
        count = len(self._cells)
        if count <= POOL:
            return list(range(count))
        best = self._best() or self.space.default
        distance = (self._cells != np.array(best)).sum(axis=1)
        near = np.flatnonzero(distance <= 2)  # noqa: PLR2004 - one or two changes
        near = near[np.argsort(distance[near], kind="stable")][: POOL // 2]
        some = self._rng.choice(count, POOL // 2, replace=False)
        run = np.flatnonzero(self._good > 0)
        return sorted({0, *run.tolist(), *near.tolist(), *some.tolist()})

    def _risk(self, pool: Sequence[int]) -> Floats:
        """Probability that a cell fails: 1 where it did, else by the values it has in common.

        A value (or a pair of values) is the more suspect the more runs that had it failed
        and the fewer went well; the most suspect of a cell's counts.
        """
        risk = np.zeros(len(pool))
        if self._barred.any():
            cells, bad, good = self._cells, self._barred, (self._good > 0) & ~self._barred
            for columns in self._ones_and_pairs:
                suspect = _suspicion(cells[:, columns], bad, good, weight=0.5 * len(columns) ** 2)
                risk = np.maximum(risk, suspect[pool])
            risk[bad[pool]] = 1.0
        return risk

    def _new_values(self, pool: Sequence[int]) -> Floats:
        """Count the values without order that no run of the pool's cells has shown yet.

        That two backends are alike says little about a third one.
        """
        seen = self._cells[self._good > 0]
        count = np.zeros(len(pool))
        for at, param in enumerate(self.space.params):
            if param.positions is None:
                count += ~np.isin(self._cells[pool, at], seen[:, at])
        return count

    def _bar(self, cell: Cell) -> None:
        self._barred[self._order[cell]] = True
        if cell == self._candidate:
            self._queue = []

    # costs

    def _costs(self) -> dict[str, float]:
        """Median cost of a run of the same cell, a cheap change, a dear change."""
        groups: dict[str, list[float]] = {"same": [], "cheap": [], "dear": []}
        before: Cell | None = None
        for run in self.runs:
            groups[self._kind(before, run.cell)].append(run.cost)
            before = run.cell
        medians = {kind: median(costs) for kind, costs in groups.items() if costs}
        known = medians.get("cheap", medians.get("dear", medians.get("same", 1.0)))
        return {kind: medians.get(kind, known) for kind in groups}

    def _kind(self, before: Cell | None, after: Cell) -> str:
        if before == after:
            return "same"
        return "dear" if self.space.reloads(before, after) else "cheap"

    def _cost_of(self, pool: Sequence[int]) -> Floats:
        costs, now = self._costs(), np.array(self.runs[-1].cell)
        changed = self._cells[pool] != now
        cheap = np.where(changed.any(axis=1), costs["cheap"], costs["same"])
        result: Floats = np.where((changed & self._dear).any(axis=1), costs["dear"], cheap)
        return np.maximum(result, 1e-9)

    def _since_default(self) -> int:
        for back, run in enumerate(reversed(self.runs)):
            if run.cell == self.space.default:
                return back
        return len(self.runs)


def _suspicion(columns: Ints, bad: Flags, good: Flags, *, weight: float) -> Floats:
    """Return, for each cell, the failed share of the runs with the same values in `columns`."""
    _, group = np.unique(columns, axis=0, return_inverse=True)
    group = group.reshape(-1)
    failed, well = np.bincount(group, weights=bad), np.bincount(group, weights=good)
    share: Floats = (failed / (failed + well + weight))[group]
    return share


def _because(verdict: Verdict, why: str) -> Verdict:
    return Verdict(
        cell=verdict.cell,
        gain=0.0,
        accepted=False,
        candidate=verdict.candidate,
        ratio=verdict.ratio,
        pairs=verdict.pairs,
        why=why,
    )


def _claim(believed: Ratio, fresh: Ratio) -> Ratio:
    """Return what is claimed: the fresh pairs' ratio, shrunk where acceptance selected it.

    A gain far above the noise is accepted however the fresh pairs fall, so they are without
    bias and claim alone. One near the bound is accepted only when they fall well: there the
    belief of all runs, shrunk by its prior, stands for them.
    """
    low, high = SURE
    sureness = fresh.log_ratio / fresh.deviation
    share = min(max((sureness - low) / (high - low), 0.0), 1.0)
    return Ratio(
        log_ratio=share * fresh.log_ratio + (1 - share) * believed.log_ratio,
        deviation=max(believed.deviation, share * fresh.deviation),
    )


def _improvement(gap: Floats, deviation: Floats) -> Floats:
    """Mean of the positive part of a normal with mean `gap`."""
    z = gap / deviation
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    result: Floats = deviation * (z * _normal_cdf(z) + density)
    return result


def _normal_cdf(z: Floats) -> Floats:
    """Abramowitz and Stegun 7.1.26, off by at most 1.5e-7."""
    x = np.abs(z) / math.sqrt(2)
    t = 1 / (1 + 0.3275911 * x)
    tail = (
        t
        * np.exp(-x * x)
        * (
            0.254829592
            + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
        )
    )
    result: Floats = 0.5 * (1 + np.sign(z) * (1 - tail))
    return result
