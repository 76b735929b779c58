"""One study on several hosts, by one controller or more: the trial log is what they share.

Each host is a *lane*: it asks for a run, measures it, writes it down. Between two runs a lane
holds the log's lock, reads what others wrote, and tells it to its own copy of the search, so
that a controller that joins, one that was killed and one that goes on all stand on the log.
A run that never ended (its process is gone) counts for nothing and may be tried again.
"""

from __future__ import annotations

import os
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fleet.effects.lock import held
from fleet.effects.processes import exists
from fleet.errors import HostUnreachable
from fleet.tune.search import Proposal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from fleet.effects.clock import Clock
    from fleet.tune.run_study import Measure, Outcome, Study, Trial
    from fleet.tune.search_space import Cell
    from fleet.tune.trial_log import LoggedStudy, TrialLog

LOOK_S = 0.1  # a lane that waits for what others find out
LOCK_WAIT_S = 60.0
TRIES = 3  # of a host's default, before it is left out
APART = 0.10  # hosts whose defaults differ by more are not the same machine


class OutOfTime(Exception):
    """The budget ended during a run, which counts for nothing."""


@dataclass(kw_only=True, slots=True)
class Lane:
    """A host that measures, by name; `scale` makes its values comparable with the others'."""

    name: str
    measure: Measure
    scale: float | None = None
    seen: list[float] = field(default_factory=list)  # its own defaults, until they compare
    began_s: float = 0.0  # when what it does now began, on the clock


@dataclass(kw_only=True, slots=True)
class SharedStudy:
    """A study whose trials are in `log`; every method may be called by several threads.

    `judge` is told every trial, also those of others; `settle` is asked when the search is
    done and says whether it goes on; `tell` is told the trials of this controller.
    """

    study: Study
    log: TrialLog
    clock: Clock
    judge: Callable[[Trial], None] = lambda _: None
    settle: Callable[[], bool] = lambda: False
    tell: Callable[[Trial], None] = lambda _: None
    look: Callable[[], None] = lambda: None  # before each run, while no lock is held
    say: Callable[[str], None] = lambda _: None
    until_s: float | None = None  # on the clock, when the budget ends
    began_s: float = 0.0  # on the clock, when the command began, which the first run pays
    lanes: int = 1
    taken: int = 0  # trials of the log that this copy of the search knows
    ended: bool = False
    default_first: bool = False  # whether a lane must see the default before anything else
    joined: bool = False  # others write into this study too
    _stop: bool = False
    _mine: dict[str, list[Cell]] = field(default_factory=dict)

    def run(self, lanes: Sequence[Lane]) -> None:
        """Run until nothing is left to run; a lane whose host drops out is given up.

        The first run is made by one lane alone: it finds what the others measure with.
        Raises `HostUnreachable` when no host is left.
        """
        self.lanes = len(lanes)
        for lane in lanes:
            lane.began_s = self.began_s or self.clock.monotonic()
        if len(lanes) == 1:
            self._follow(lanes[0])
            return
        left = list(lanes)
        while (lost := self._or_drop(self._once, left[0])) is not None:
            left.pop(0)
            if not left:
                raise lost
        with ThreadPoolExecutor(len(left)) as pool:
            works = [pool.submit(self._or_drop, self._follow, lane) for lane in left]
            try:
                wait(works, return_when=FIRST_EXCEPTION)
            finally:
                self._stop = True
        dropped = [error for work in works if (error := work.result()) is not None]
        if len(dropped) == len(left):
            raise dropped[0]

    def _or_drop(self, work: Callable[[Lane], object], lane: Lane) -> HostUnreachable | None:
        """Do `work`; return why the host dropped out, which ends its lane alone."""
        try:
            work(lane)
        except HostUnreachable as error:
            self._drop(lane)
            self.lanes -= 1
            self.say(f"{lane.name} dropped out, its running trial is lost: {error.message}")
            return error
        return None

    def _follow(self, lane: Lane) -> None:
        while not self._stop and self._once(lane):
            pass

    def _once(self, lane: Lane) -> bool:
        """Run one pair or one run on `lane`; False at the end."""
        began = self.clock.monotonic()
        self.look()
        lane.began_s += self.clock.monotonic() - began  # no run pays for it, the budget does
        asked = self._ask(lane)
        if asked is None:
            return False
        if not asked:
            self.clock.sleep(LOOK_S)
        for proposal in asked:
            try:
                outcome = lane.measure(self.study.search.space.settings(proposal.cell))
            except OutOfTime:
                self._drop(lane)
                return False
            self._take(lane, proposal, outcome)
        return True

    def _ask(self, lane: Lane) -> Sequence[Proposal] | None:
        """Return what to run: one run, or a fresh pair; nothing when others must end first."""
        with self._locked():
            logged = self._read_others()
            pending = [cell for cells in self._mine.values() for cell in cells]
            pending += self._elsewhere(logged)
            self._set_budget()
            first = self._own_default(lane, logged)
            if first is None and not self.ended:
                first = self.study.next(pending=pending)
            while first is None and not pending and not self.ended and self.settle():
                first = self.study.next(pending=pending)
            if first is None:
                return [] if pending and not self.ended else None
            asked = [first]
            if first.purpose == "confirm" and self.lanes > 1:
                # a pair is compared on one host, one after the other
                partner = self.study.next(pending=[*pending, first.cell])
                asked += [partner] if partner is not None else []
            self._mine[lane.name] = [each.cell for each in asked]
            settings = self.study.search.space.settings(first.cell)
            self.log.running(self._id(lane), settings, process=os.getpid())
            return asked

    def _take(self, lane: Lane, proposal: Proposal, outcome: Outcome) -> None:
        now = self.clock.monotonic()
        whole = replace(outcome, seconds=max(outcome.seconds, now - lane.began_s))
        lane.began_s = now
        with self._locked():
            self._read_others()
            if lane.scale is None and proposal.cell == self.study.search.space.default:
                self._learn_scale(lane, outcome.value)
            if lane.scale is None:
                self.log.dropped(self._id(lane))  # not comparable yet
                self._mine.pop(lane.name, None)
                return
            trial = self.study.take(proposal, _scaled(whole, lane.scale))
            self.taken += 1
            self.log.add(trial, lane=self._id(lane), at=self.clock.now().isoformat())
            self._mine[lane.name] = self._mine.get(lane.name, [])[1:]
            self._set_budget()
            self.judge(trial)
            self.tell(trial)

    def _own_default(self, lane: Lane, logged: LoggedStudy | None) -> Proposal | None:
        """Return the default when `lane` must run it first, to be compared with other hosts."""
        others = logged.lanes - {lane.name} if logged else frozenset()
        if lane.scale is not None or self.ended or not self.study.trials:
            return None
        if self.lanes == 1 and not others and not self.default_first:
            lane.scale = 1.0
            return None
        return Proposal(cell=self.study.search.space.default, purpose="default")

    def _learn_scale(self, lane: Lane, value: float | None) -> None:
        """Compare a lane's own default with the others'; leave `scale` open to look again.

        Raises `HostUnreachable` for a host that after `TRIES` differs too much to be pooled.
        """
        default = self.study.search.space.default
        known = [t.outcome.value for t in self.study.trials if t.cell == default]
        values = [each for each in known if each]
        if not values or (self.lanes == 1 and not self.joined):
            lane.scale = 1.0
            return
        lane.seen.append(value or 0.0)
        best = max(lane.seen)
        if best:
            # what disturbs a run makes it slower: the best of each are compared
            scale = max(values) / best
            usual = max(max(values) / min(values), best / min(filter(None, lane.seen))) - 1
            noise = max(4 * self.study.search.model.noise, usual)
            if abs(scale - 1) <= max(APART, noise):
                lane.scale = 1.0 if abs(scale - 1) < noise else scale
                return
        if len(lane.seen) >= TRIES:
            told = f"{best / max(values) - 1:+.0%} with the same settings" if best else "it fails"
            raise HostUnreachable(f"not pooled, its default: {told}", where=lane.name)

    def _drop(self, lane: Lane) -> None:
        with self._locked():
            self.log.dropped(self._id(lane))
            self._mine.pop(lane.name, None)

    def _set_budget(self) -> None:
        """Let what is left of the wall clock be what the study has left, on all lanes."""
        if self.until_s is not None:
            left = max(self.until_s - self.clock.monotonic(), 0.0)
            self.study.budget_s = self.study.spent_s + left * self.lanes

    def _read_others(self) -> LoggedStudy | None:
        """Tell the search what other controllers wrote since the last look."""
        logged = self.log.newest()
        if logged is None:
            return None
        fresh = logged.trials[self.taken :]
        for hint in logged.hints:
            self.study.search.hint(*hint)
        before = len(self.study.trials)
        self.study.replay(fresh)
        self.taken += len(fresh)
        for trial in self.study.trials[before:]:
            self.judge(trial)
        self.ended = logged.end is not None
        self.joined = self.joined or len(logged.lanes) > 1
        return logged

    def _elsewhere(self, logged: LoggedStudy | None) -> list[Cell]:
        """Return what other controllers run at this moment."""
        running = logged.running.values() if logged else ()
        cells = (
            self.study.search.space.cell(settings)
            for settings, process in running
            if process != os.getpid() and exists(process)
        )
        return [cell for cell in cells if cell is not None]

    def _locked(self) -> AbstractContextManager[None]:
        return held(self.log.path.with_suffix(".lock"), wait_s=LOCK_WAIT_S)

    def _id(self, lane: Lane) -> str:
        return f"{lane.name}/{os.getpid()}"


def _scaled(outcome: Outcome, scale: float) -> Outcome:
    if outcome.value is None or scale == 1.0:
        return outcome
    guards = {name: value * scale for name, value in outcome.guards.items()}
    return replace(outcome, value=outcome.value * scale, guards=guards)
