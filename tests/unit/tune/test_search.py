"""The search on made-up machines: finds, does not brag, does not harm, survives failures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fleet.tune.run_study import Outcome, Study, run_study
from fleet.tune.search import Proposal, Search
from fleet.tune.search_space import SearchSpace, Settings, Value, make_space

pytestmark = pytest.mark.pure

PARAMS: dict[str, list[Value]] = {
    "threads": [1, 2, 4, 8, 16],
    "fa": ["off", "on"],
    "kind": ["a", "b", "c"],
}
DEFAULT: dict[str, Value] = {"threads": 1, "fa": "off", "kind": "a"}


def space(*, maximize: bool = True) -> SearchSpace:
    return make_space(PARAMS, DEFAULT, dear=["kind"], maximize=maximize)


def speed(settings: Settings) -> float:
    threads = {1: 1.0, 2: 1.6, 4: 2.2, 8: 2.4, 16: 1.8}[int(str(settings["threads"]))]
    return 100 * threads * (1.1 if settings["fa"] == "on" else 1.0)


class Machine:
    """Adds noise and drift; `flat` makes every cell alike."""

    def __init__(self, seed: int, *, noise: float = 0.015, flat: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.noise, self.flat, self.drift = noise, flat, 0.0

    def __call__(self, settings: Settings) -> Outcome:
        self.drift += 0.002 * self.rng.standard_normal()
        truth = 100.0 if self.flat else speed(settings)
        if settings["kind"] == "c" and not self.flat:
            return Outcome(value=None, failed="out of memory", seconds=1.0)
        value = truth * math.exp(self.drift + self.noise * self.rng.standard_normal())
        return Outcome(value=value, seconds=1.0)


def study(machine: Machine, *, budget: float = 40, seed: int = 0) -> Study:
    made = Study(search=Search(space(), seed=seed), budget_s=budget)
    run_study(made, machine)
    return made


def test_finds_a_cell_within_two_percent_of_the_best() -> None:
    for seed in range(3):
        done = study(Machine(seed), seed=seed)
        verdict = done.search.verdict()

        assert verdict.accepted
        assert speed(done.search.space.settings(verdict.cell)) > 0.98 * 264
        assert verdict.gain == pytest.approx(1.64, abs=0.15)


def test_a_flat_surface_keeps_the_default() -> None:
    adopted = sum(study(Machine(s, flat=True), seed=s).search.verdict().accepted for s in range(24))

    assert adopted <= 3


def test_a_gain_of_two_noisy_runs_each_is_doubted_one_of_five_is_kept() -> None:
    few = told([0.0, -0.02], [0.10, 0.09])
    more = told([0.0, 0.0, -0.01, 0.01, 0.0], [0.09, 0.10, 0.09, 0.10, 0.09])

    assert few.verdict().ratio is not None
    assert few.verdict().ratio.log_ratio > 0.08
    assert not few.verdict().accepted
    assert more.verdict().accepted


def told(defaults: list[float], candidates: list[float]) -> Search:
    """Return a search that ran ten alike cells, two of them again in pairs; log values."""
    search = Search(make_space({"x": list("abcdefghij")}, {"x": "a"}))
    others = [0.03, -0.05, 0.06, 0.01, -0.02, 0.04, 0.05, 0.02]
    singly = [(0, defaults[0]), *enumerate(others, 2), (1, candidates[0])]
    pairs = zip(defaults[1:], candidates[1:], strict=True)
    again = [run for ours, theirs in pairs for run in ((0, ours), (1, theirs))]
    for number, (cell, value) in enumerate([*singly, *again]):
        purpose = "explore" if number < len(singly) else "confirm"
        search.tell(Proposal(cell=(cell,), purpose=purpose), 100 * math.exp(value), 1.0)
    return search


def test_smaller_is_better_when_minimising() -> None:
    made = Study(search=Search(space(maximize=False)), budget_s=40)
    run_study(made, lambda s: Outcome(value=1 / speed(s), seconds=1.0))
    verdict = made.search.verdict()

    assert made.search.space.settings(verdict.cell)["threads"] == 8
    assert verdict.gain == pytest.approx(1.64, abs=0.05)


def test_keeps_the_budget_within_five_percent() -> None:
    for budget in (10, 24, 60):
        assert study(Machine(1), budget=budget).spent_s <= 1.05 * budget


def test_a_failed_cell_is_not_tried_again() -> None:
    failed = [trial.cell for trial in study(Machine(2)).trials if trial.outcome.value is None]

    assert len(failed) == len(set(failed))


def test_a_default_that_fails_ends_the_study_and_stays() -> None:
    made = Study(search=Search(space()), budget_s=40)
    run_study(made, lambda _: Outcome(value=None, failed="crash", seconds=1.0))

    assert made.search.stopped == "default-fails"
    assert made.search.verdict().cell == made.search.space.default


def test_every_other_cell_failing_keeps_the_default() -> None:
    made = Study(search=Search(space()), budget_s=40)
    run_study(made, lambda s: Outcome(value=5.0 if s == DEFAULT else None, seconds=1.0))

    assert not made.search.verdict().accepted


def test_the_same_seed_and_replies_give_the_same_study() -> None:
    first, second = (study(Machine(4), seed=9) for _ in range(2))

    assert [t.settings for t in first.trials] == [t.settings for t in second.trials]


def test_a_replayed_study_goes_on_where_it_was() -> None:
    whole = study(Machine(5))
    logged = [(t.settings, t.purpose, t.outcome) for t in whole.trials]
    again = Study(search=Search(space()), budget_s=40)

    assert again.replay(logged[:15]) == 15
    following = again.next()

    assert following is not None
    assert following.cell == whole.trials[15].cell


def test_a_barred_cell_is_not_chosen() -> None:
    done = study(Machine(6))
    barred = done.search.verdict().cell
    done.search.bar(barred)
    verdict = done.search.verdict()

    assert barred not in {verdict.cell, verdict.candidate}


def test_the_number_of_trials_is_kept() -> None:
    made = Study(search=Search(space()), most_trials=9)
    run_study(made, Machine(7))

    assert len(made.trials) <= 9
    assert any(trial.purpose == "confirm" for trial in made.trials)


def test_a_gain_of_a_tenth_is_proven_although_runs_are_noisy() -> None:
    def tenth(seed: int) -> Study:
        rng = np.random.default_rng(seed)
        made = Study(search=Search(space(), seed=seed), budget_s=48)

        def measure(settings: Settings) -> Outcome:
            truth = 110.0 if settings["kind"] == "b" else 100.0
            return Outcome(value=truth * math.exp(0.03 * rng.standard_normal()), seconds=1.0)

        run_study(made, measure)
        return made

    gains = [tenth(seed).search.verdict().gain for seed in range(8)]

    assert sum(gain > 0 for gain in gains) >= 7
    assert np.mean(gains) == pytest.approx(0.1, abs=0.04)


def test_a_space_of_a_hundred_thousand_cells_is_searched() -> None:
    params = {name: list(range(1, 11)) for name in "abcde"}
    made = Study(search=Search(make_space(params, dict.fromkeys(params, 1))), budget_s=40)
    run_study(made, lambda s: Outcome(value=sum(map(int, map(str, s.values()))), seconds=1.0))

    assert made.search.verdict().gain > 2
    assert made.spent_s <= 42
