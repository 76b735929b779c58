"""A study explained: what was tried, what each setting brings, what was rejected and why."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from fleet.tune.measure_server import shown
from fleet.tune.paired_ratio import (
    ONE_SIDED_95,
    Ratio,
    paired_ratio,
    robust_deviation,
    smallest_provable_gain,
)
from fleet.tune.speculation_kinds import spelled_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.tune.candidate_space import Metric
    from fleet.tune.raw_screening import Hint
    from fleet.tune.run_study import Study, Trial
    from fleet.tune.search import Verdict
    from fleet.tune.search_space import Cell, Settings, Value

LEAST_NOISE = 0.003


@dataclass(frozen=True, kw_only=True, slots=True)
class TradeOff:
    """A proven gain that was not kept since it harms another figure."""

    settings: Settings
    guard: str
    ratio: Ratio
    provable: float
    gain: float

    def as_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return {
            "settings": spelled_out(self.settings),
            "gain": round(self.gain, 5),
            "harms": self.guard,
            "ratio": round(math.exp(self.ratio.log_ratio), 5),
            "ci": [round(bound, 5) for bound in self.ratio.interval],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """What one value of one setting brings, against the default's value, others as they are."""

    name: str
    value: Value
    ratio: Ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class StudySummary:
    """A study at its end; `changed` are the settings to write down, empty when none is kept."""

    metric: Metric
    verdict: Verdict
    default: Settings
    best: Settings
    changed: Settings
    default_score: float
    best_score: float
    default_ci: tuple[float, float]
    best_ci: tuple[float, float]
    noise: float
    provable_gain: float
    trials: tuple[Trial, ...]
    spent_s: float
    stopped: str
    trade_offs: tuple[TradeOff, ...]
    effects: tuple[Effect, ...]
    hints: tuple[Hint, ...] = ()

    @property
    def measured(self) -> dict[str, Value]:
        """The figures that a tuned profile carries."""
        return {
            "default_score": round(self.default_score, 4),
            "score": round(self.best_score, 4),
            "gain": round(self.verdict.gain, 5),
            "gain_low": round(self.interval[0] - 1, 5),
            "gain_high": round(self.interval[1] - 1, 5),
            "pairs": self.verdict.pairs,
            "noise": round(self.noise, 5),
            "trials": len(self.trials),
        }

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the candidate's ratio to the default; 1 to 1 without one."""
        return self.verdict.ratio.interval if self.verdict.ratio else (1.0, 1.0)

    def as_json(self, *, profile: str | None) -> dict[str, Any]:
        """Return the contract's object of `tune --json`."""
        return {
            "metric": self.metric,
            "default": _scored(self.default, self.default_score, self.default_ci),
            "best": _scored(self.best, self.best_score, self.best_ci),
            "gain": round(self.verdict.gain, 5),
            "provable_gain": round(self.provable_gain, 5),
            "trials": len(self.trials),
            "spent_s": round(self.spent_s, 2),
            "stopped": self.stopped,
            "profile": profile,
            "tradeoffs": [each.as_json() for each in self.trade_offs],
        }


def summarise_study(
    study: Study,
    *,
    metric: Metric,
    trade_offs: tuple[TradeOff, ...] = (),
    verdict: Verdict | None = None,
    stopped: str | None = None,
) -> StudySummary:
    """Return the summary of a study with at least one run of the default.

    `verdict` and `stopped` are those of a study that has ended, None to judge it now.
    """
    search, space = study.search, study.search.space
    verdict = verdict or search.verdict()
    default, best = space.settings(space.default), space.settings(verdict.cell)
    noise = observed_noise(study)
    level = median(_values(study, space.default))
    error = noise / math.sqrt(len(_values(study, space.default)))
    ratio = verdict.ratio if verdict.accepted and verdict.ratio else Ratio(log_ratio=0, deviation=0)
    low, high = ratio.interval
    gained = math.exp(ratio.log_ratio)
    around = (level * math.exp(-1.96 * error), level * math.exp(1.96 * error))
    return StudySummary(
        metric=metric,
        verdict=verdict,
        default=default,
        best=best,
        changed={name: value for name, value in best.items() if value != default[name]},
        default_score=shown(metric, level),
        best_score=shown(metric, level * gained),
        default_ci=_sorted(shown(metric, around[0]), shown(metric, around[1])),
        best_ci=_sorted(shown(metric, level * low), shown(metric, level * high))
        if verdict.accepted
        else _sorted(shown(metric, around[0]), shown(metric, around[1])),
        noise=noise,
        provable_gain=smallest_provable_gain(noise, max(verdict.pairs, 2)),
        trials=tuple(study.trials),
        spent_s=study.spent_s,
        stopped=stopped or _stopped(study),
        trade_offs=trade_offs,
        effects=_effects(study),
    )


def _stopped(study: Study) -> str:
    if study.next() is not None:
        return "budget"
    why = study.search.stopped
    return "roofline" if study.search.at_roofline and why == "nothing-more-to-gain" else why


def observed_noise(study: Study) -> float:
    """Return the run-to-run deviation in log value: the model's, or the repeated runs' if larger.

    The model may take two runs of the default that lie far apart for drift.
    """
    values: dict[Cell, list[float]] = {}
    for trial in study.trials:
        if trial.outcome.value is not None:
            values.setdefault(trial.cell, []).append(math.log(trial.outcome.value))
    steps = [abs(b - a) / math.sqrt(2) for runs in values.values() for a, b in pairwise(runs)]
    return max(study.search.model.noise, 1.4826 * median(steps) if steps else 0.0)


def within_noise(study: Study, verdict: Verdict) -> bool:
    """Whether the noise that repeated runs show could have made the accepted gain.

    The search may take two runs that lie far apart for drift; here they count as noise.
    """
    if verdict.ratio is None:
        return False
    runs = min(len(_values(study, verdict.cell)), len(_values(study, study.search.space.default)))
    error = observed_noise(study) * math.sqrt(2 / max(runs, 1))
    return verdict.ratio.log_ratio <= ONE_SIDED_95 * error


def guard_ratio(study: Study, cell: Cell, guard: str) -> tuple[Ratio | None, float]:
    """Return a guard's ratio to the default over all runs, and what they can prove.

    Runs were chosen by the metric, not by their guards.
    """
    default = study.search.space.default
    runs = [
        (trial.number, trial.cell == cell, math.log(trial.outcome.guards[guard]))
        for trial in study.trials
        if trial.cell in (cell, default) and trial.outcome.guards.get(guard, 0) > 0
    ]
    usual = [
        math.log(trial.outcome.guards[guard])
        for trial in study.trials
        if trial.cell == default and trial.outcome.guards.get(guard, 0) > 0
    ]
    noise = max(robust_deviation(usual), LEAST_NOISE)
    ratio = paired_ratio(runs, noise=noise, drift=study.search.model.drift)
    pairs = sum(ours for _, ours, _ in runs)
    return ratio, smallest_provable_gain(noise, max(pairs, 1))


def _values(study: Study, cell: Cell) -> list[float]:
    return [
        trial.outcome.value
        for trial in study.trials
        if trial.cell == cell and trial.outcome.value is not None
    ]


def _effects(study: Study) -> tuple[Effect, ...]:
    """Return what each single change from the default brings, as the model believes it.

    Only of values that were measured: two runs differ in nothing but this one.
    """
    space = study.search.space
    ran = {trial.cell for trial in study.trials if trial.outcome.value is not None}
    found = []
    for at, param in enumerate(space.params):
        for index, value in enumerate(param.values):
            cell = (*space.default[:at], index, *space.default[at + 1 :])
            usual = {(*c[:at], space.default[at], *c[at + 1 :]) for c in ran if c[at] == index}
            if index != space.default[at] and cell in study.search.known and usual & ran:
                ratio = study.search.believed_ratio(cell)
                found.append(Effect(name=param.name, value=value, ratio=ratio))
    return tuple(found)


def _scored(settings: Settings, score: float, ci: tuple[float, float]) -> Mapping[str, Any]:
    return {
        "settings": spelled_out(settings),
        "score": round(score, 4),
        "ci": [round(bound, 4) for bound in ci],
    }


def _sorted(one: float, other: float) -> tuple[float, float]:
    return (min(one, other), max(one, other))
