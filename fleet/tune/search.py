"""The search as a conversation: `ask` for the next run, `tell` what came of it.

It knows nothing of servers, clocks or files: costs come in with the results, and the same
asks follow from the same seed and results, so a study is resumed by telling it its log.

1. The default is run first, and again at least every `ANCHOR` runs.
2. Exploring: the run with the largest expected improvement per cost; a cell that failed is
   not tried again, one that resembles failed ones less readily.
3. When a run is worth more as proof of the best candidate than as a look at another cell,
   or nothing promises more than `TOO_LITTLE`, what is left goes to fresh pairs of the best
   candidate and the default, A B B A; the candidate changes when they make another one the
   best.
4. At the end the best confirmed cell is accepted when by all runs the lower 99% bound of its
   ratio to the default exceeds the margin, and a doubt that is the larger the fewer runs of
   the two there are. Else the default stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Literal

import numpy as np

from fleet.tune.failure_risk import failure_risk, value_groups
from fleet.tune.normal_law import cumulated, density, improvement
from fleet.tune.paired_ratio import Ratio, upper
from fleet.tune.surface_model import SurfaceModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from fleet.tune.search_space import Cell, SearchSpace, Value

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

Purpose = Literal["default", "explore", "confirm"]
Stopped = Literal["budget", "nothing-more-to-gain", "default-fails", "most-runs", "roofline"]

ANCHOR = 8
TOO_LITTLE = 0.0004  # expected improvement in log value
NEW_VALUE = 0.25  # standard deviation, in log value, of what a name not yet tried may bring
POOL = 1500  # cells looked at for each proposal
WORTH = 0.01  # smallest gain, in log value, worth another setting
SURE = 2.4  # deviations by which a gain must exceed it: one-sided 99%
LUCK = 0.14  # deviations by which what was accepted is taken to be lucky
LEAST_PAIRS = 4  # with nothing left to explore, a gain known to `WORTH` is measured so often
MOST_PAIRS = 40
MOST_RUNS = 600  # beliefs cost the cube of the runs
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
        self, space: SearchSpace, *, seed: int = 0, margin: float = WORTH, defaults: int = 1
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
        self._hints = [np.zeros(len(param.values)) for param in space.params]
        self._rng = np.random.default_rng([seed, 1])
        self._cells: Ints = np.array(space.allowed, dtype=np.int64)
        self._order = {cell: at for at, cell in enumerate(space.allowed)}
        self._good = np.zeros(len(space.allowed), dtype=np.int64)
        self._barred = np.zeros(len(space.allowed), dtype=bool)
        self._groups = value_groups(self._cells)
        self._dear = np.array([param.dear for param in space.params])
        self._promise = 0.0
        self._queue: list[Cell] = []
        self._refuted: set[Cell] = set()

    @property
    def known(self) -> Mapping[Cell, int]:
        """The cells that may be run, by their number."""
        return self._order

    def hint(self, name: str, value: Value, log_ratio: float) -> None:
        """Take in a hint of what `value` brings alone; it counts until a run has shown the value.

        It moves what is tried first, never what is believed of a cell.
        """
        for param, hints in zip(self.space.params, self._hints, strict=True):
            if param.name == name and value in param.values:
                hints[param.values.index(value)] = log_ratio

    def bar(self, cell: Cell) -> None:
        """Never choose `cell` from here on (it harms something that the value does not show)."""
        if cell != self.space.default:
            self._bar(cell)

    def confirm_again(self, cell: Cell) -> bool:
        """Ask for one more fresh pair of `cell`; False when it has had the most."""
        if self._pairs(cell) >= MOST_PAIRS or self._queue:
            return False
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
        if self._queue:
            return Proposal(cell=self._queue.pop(0), purpose="confirm")
        explored = None if self.at_roofline else self._most_promising(pending)
        if explored is None or not self._pays_to_explore(left, explored):
            return self._confirm(left, explored)
        if self._since_default() >= ANCHOR and default not in pending:
            return Proposal(cell=default, purpose="default")
        known = explored != default and self._good[self._order[explored]] > 0
        return Proposal(cell=explored, purpose="confirm" if known else "explore")

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
        proven = self._best(lambda cell: self._pairs(cell) > 0 and self._is_proven(cell))
        candidate = proven or self._best()
        default = self.space.default
        if candidate is None or candidate == default:
            return Verdict(cell=default, gain=0.0, accepted=False, why="nothing beat the default")
        believed = self._gap(candidate)
        if proven:
            less = believed.log_ratio - LUCK * believed.deviation
            believed = replace(believed, log_ratio=less)
        verdict = Verdict(
            cell=candidate if proven else default,
            gain=math.expm1(believed.log_ratio) if proven else 0.0,
            accepted=proven is not None,
            candidate=candidate,
            ratio=believed,
            pairs=self._pairs(candidate),
        )
        return replace(verdict, why=self._why(verdict))

    def _why(self, verdict: Verdict) -> str:
        if verdict.accepted:
            return "confirmed"
        if verdict.ratio is not None and upper(verdict.ratio) <= self.margin:
            return f"refuted: it gains less than {math.expm1(self.margin):.1%}"
        if not verdict.pairs:
            return "the budget was spent before it could be confirmed"
        return "inconclusive: its gain is within the noise"

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
        mean = mean + self._hinted(pool)
        candidates = (self._good[pool] > 0) & ~self._barred[pool]
        best = int(np.argmax(np.where(candidates, mean.mean(axis=0), -np.inf)))
        deviation = np.hypot(deviation, NEW_VALUE * self._new_values(pool))
        gain = improvement(mean - mean[:, best : best + 1], deviation)
        # a run tells less of a cell that is known as well as one run can tell
        gain = (gain * (1 - self.model.noise / np.hypot(deviation, self.model.noise))).mean(axis=0)
        gain *= 1 - failure_risk(self._groups, self._good > 0, self._barred, pool)
        gain[[at for at, index in enumerate(pool) if self.space.allowed[index] in pending]] = 0
        if gain.max() < TOO_LITTLE:
            return None
        at = int(np.argmax(gain / self._cost_of(pool)))
        chosen: int = pool[at]
        self._promise = float(gain[at])
        return self.space.allowed[chosen]

    def _confirm(self, left: float, explored: Cell | None) -> Proposal | None:
        """Return a run of the next pair; without a candidate worth one, explore to the end."""
        best = self._worth_a_pair()
        self.stopped = "budget" if explored else "nothing-more-to-gain"
        enough = LEAST_PAIRS if best and self._is_known(best) else MOST_PAIRS
        if best is None or (explored is None and self._pairs(best) >= enough):
            return None if explored is None else Proposal(cell=explored, purpose="explore")
        pair = self._pair(best)
        if left < self._cost_in_order(pair):  # the one that was run less often
            pair = sorted(pair, key=lambda cell: self._good[self._order[cell]])[:1]
        self._queue = pair[1:]
        return Proposal(cell=pair[0], purpose="confirm")

    def _is_known(self, cell: Cell) -> bool:
        return self._is_proven(cell) and self._gap(cell).deviation < WORTH

    def _worth_a_pair(self) -> Cell | None:
        """Return the best cell that is not refuted, None when that is the default."""
        while (best := self._best()) is not None and best != self.space.default:
            if not self._pairs(best) or upper(self._gap(best)) > self.margin:
                return best
            self._refuted.add(best)
        return None

    def _pair(self, cell: Cell) -> list[Cell]:
        """Return candidate and default in the order that costs less: A B B A when repeated."""
        default = self.space.default
        return min(([default, cell], [cell, default]), key=self._cost_in_order)

    def _cost_in_order(self, cells: Sequence[Cell]) -> float:
        costs, before = self._costs(), [self.runs[-1].cell, *cells]
        return sum(costs[self._kind(*step)] for step in pairwise(before))

    # what is kept for the end

    def _pays_to_explore(self, left: float, explored: Cell) -> bool:
        """Whether a run of `explored` is worth more than the proof that its cost would buy.

        Whichever is the best then, one run more must be left to confirm it.
        """
        after = left - self.cost(explored)
        best = self._best()
        if best is None or best == self.space.default:
            return after >= self._costs()["same"]
        confirmed = self._pairs(best) > 0 or best == explored
        if after < (self._costs()["same"] if confirmed else self._pair_cost() / 2):
            return False
        now, _ = self._expects(best, left)
        then, proven = self._expects(best, after)
        return self._promise * proven > now - then

    def _expects(self, cell: Cell, left: float) -> tuple[float, float]:
        """Return what a cell is expected to gain when pairs of it take all `left`, and how likely.

        A gain that is not proven then counts for nothing.
        """
        ratio = self._gap(cell)
        pairs = max(left / self._pair_cost(), 1e-6)
        later = 1 / math.sqrt(ratio.deviation**-2 + pairs / (2 * self.model.noise**2))
        moves = math.sqrt(max(ratio.deviation**2 - later**2, 1e-12))
        needed = self.margin + self._doubt(cell, pairs) + SURE * later
        z = np.array([(ratio.log_ratio - needed) / moves])
        proven = float(cumulated(z)[0])
        return ratio.log_ratio * proven + moves * float(density(z)[0]), proven

    def _pair_cost(self) -> float:
        costs = self._costs()
        return 2 * costs["dear" if self._dear.any() else "cheap"]

    # what is believed

    def _best(self, fits: Callable[[Cell], bool] = lambda _: True) -> Cell | None:
        """Return the run cell with the best mean that fits and is neither barred nor refuted."""
        fit = [
            at
            for at in np.flatnonzero((self._good > 0) & ~self._barred)
            if self.space.allowed[at] not in self._refuted and fits(self.space.allowed[at])
        ]
        if not fit:
            return None
        mean, _ = self.model.spread(self._cells[fit])
        return self.space.allowed[fit[int(np.argmax(mean.mean(axis=0)))]]

    def _is_proven(self, cell: Cell) -> bool:
        ratio = self._gap(cell)
        return ratio.log_ratio - SURE * ratio.deviation > self.margin + self._doubt(cell)

    def _doubt(self, cell: Cell, pairs: float = 0.0) -> float:
        """Return what the noise, itself known from few runs, may feign; less with `pairs` more."""
        default, candidate = (self._good[self._order[each]] for each in (self.space.default, cell))
        return self.model.noise * float(1 / (default + pairs) + 1 / (candidate + pairs))

    def _gap(self, cell: Cell) -> Ratio:
        """Log ratio of `cell` to the default by all runs, as the middle particle has it.

        One that took a large gain for an outlier would pull the mean far down.
        """
        belief = self.model.believe(np.array([cell, self.space.default], dtype=np.int64))
        gap = belief.mean[:, 0] - belief.mean[:, 1]
        cov = belief.covariance
        variance = cov[:, 0, 0] + cov[:, 1, 1] - 2 * cov[:, 0, 1]
        deviation = math.sqrt(max(float(variance.mean() + gap.var()), 1e-12))
        return Ratio(log_ratio=float(np.median(gap)), deviation=deviation)

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

    def _hinted(self, pool: Sequence[int]) -> Floats:
        """Add up the hints of the pool's values that no run has shown yet."""
        total, seen = np.zeros(len(pool)), self._cells[self._good > 0]
        for at, hints in enumerate(self._hints):
            unseen = ~np.isin(np.arange(len(hints)), seen[:, at])
            total += (hints * unseen)[self._cells[pool, at]]
        return total

    def _bar(self, cell: Cell) -> None:
        self._barred[self._order[cell]] = True
        self._queue = []  # its pair

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
