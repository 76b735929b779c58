"""One study: ask the search, measure, tell it, write it down, until the budget is spent."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Protocol

from fleet.tune.search import Proposal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from fleet.tune.search import Purpose, Search
    from fleet.tune.search_space import Cell, Settings

DEFAULT_RUNS = 96
SLACK = 1.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of one run: a value, or the cause why there is none.

    `guards` are figures that must not get worse (larger is better), `figures` anything else
    worth keeping. `seconds` is what the run cost of the budget.
    """

    value: float | None
    seconds: float
    failed: str | None = None
    guards: Mapping[str, float] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One run of a study, as it is logged and told."""

    number: int
    cell: Cell
    settings: Settings
    purpose: Purpose
    outcome: Outcome


class Measure(Protocol):
    """Runs one candidate; a failure is an outcome, not an exception."""

    def __call__(self, settings: Settings) -> Outcome:
        """Return what came of it."""
        ...


@dataclass(kw_only=True, slots=True)
class Study:
    """A search with its trials and its budget; the first 96 runs' worth when it has none."""

    search: Search
    budget_s: float | None = None
    most_trials: int | None = None
    trials: list[Trial] = field(default_factory=list)

    @property
    def spent_s(self) -> float:
        """Seconds that all trials cost."""
        return sum(trial.outcome.seconds for trial in self.trials)

    @property
    def left_s(self) -> float:
        """Seconds left of the budget; infinite before the first run of an open one."""
        if self.budget_s is not None:
            return self.budget_s - self.spent_s
        if not self.trials:
            return math.inf
        return DEFAULT_RUNS * self.trials[0].outcome.seconds - self.spent_s

    @property
    def counts_runs(self) -> bool:
        """Whether a number of runs is the budget: then every run costs the same."""
        return self.most_trials is not None and self.budget_s is None

    def next(self, *, pending: Sequence[Cell] = ()) -> Proposal | None:
        """Return what to run next, None at the end; `pending` runs elsewhere at this moment."""
        room = self.room(running=len(pending))
        return None if room is None else self.search.ask(room, pending=pending)

    def room(self, *, running: int = 0) -> float | None:
        """Return what is left to spend in the search's own costs, None when nothing is.

        `running` trials have begun elsewhere and are spent already.
        """
        remaining = math.inf
        if self.most_trials is not None:
            remaining = self.most_trials - len(self.trials) - running
        if remaining <= 0:
            return None
        if self.counts_runs:
            return remaining
        room = self.left_s + (SLACK - 1) * (self.left_s + self.spent_s)
        costs = [trial.outcome.seconds for trial in self.trials]
        return None if costs and median(costs) > room else room

    def take(self, proposal: Proposal, outcome: Outcome) -> Trial:
        """Take in what came of `proposal`."""
        trial = Trial(
            number=len(self.trials) + 1,
            cell=proposal.cell,
            settings=self.search.space.settings(proposal.cell),
            purpose=proposal.purpose,
            outcome=outcome,
        )
        self.trials.append(trial)
        cost = 1.0 if self.counts_runs else outcome.seconds
        self.search.tell(proposal, outcome.value, cost)
        return trial

    def replay(self, logged: Iterable[tuple[Settings, Purpose, Outcome]]) -> int:
        """Take in the runs of an earlier start; return how many still fit the space."""
        count = 0
        for settings, purpose, outcome in logged:
            cell = self.search.space.cell(settings)
            if cell is None or cell not in self.search.known:
                continue
            asked = self.next()  # so that the search goes the way it went
            wrote = Proposal(cell=cell, purpose=purpose)
            self.take(asked if asked == wrote else wrote, outcome)
            count += 1
        return count


def run_study(
    study: Study,
    measure: Measure,
    *,
    on_trial: Callable[[Trial], None] = lambda trial: None,  # noqa: ARG005 - silence
) -> None:
    """Run `study` to its end; `on_trial` is called after each run, before the next begins."""
    while (proposal := study.next()) is not None:
        on_trial(study.take(proposal, measure(study.search.space.settings(proposal.cell))))
