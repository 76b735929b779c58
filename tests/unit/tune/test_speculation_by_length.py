"""Where speculation stops paying is told from the rates that runs measured, by length."""

from __future__ import annotations

import pytest

from fleet.observe.observation import Timings
from fleet.tune.run_figures import Answered, figures_of
from fleet.tune.run_study import Outcome, Trial
from fleet.tune.speculation_by_length import speculation_by_length

pytestmark = pytest.mark.pure

OFF = {"threads": 2, "speculation": "none"}
ON = {"threads": 2, "speculation": "ngram-mod longest=16"}


def trial(settings: dict[str, object], rates: dict[int, float]) -> Trial:
    """Return a run whose requests of so many tokens were answered at these rates."""
    answers = [
        Answered(
            timings=Timings(
                cache_n=tokens // 2, prompt_n=tokens - tokens // 2, prompt_ms=9.0, predicted_n=50,
                predicted_ms=50_000 / rate,
            ),
            wall_ms=99.0,
        )
        for tokens, rate in rates.items()
    ]  # fmt: skip
    outcome = Outcome(value=1.0, seconds=1.0, figures=figures_of(answers, 1.0, 0))
    return Trial(number=1, cell=(0, 0), settings=settings, purpose="explore", outcome=outcome)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rates", "told"),
    [
        ({600: 15.0, 1200: 11.0, 5000: 8.0, 9000: 7.0}, "stops paying from 4096 tokens of"),
        ({600: 15.0, 1200: 11.0, 5000: 12.0, 9000: 11.0}, "every measured length, 512 to 16383"),
        ({600: 5.0, 1200: 9.0, 5000: 8.0, 9000: 7.0}, "pays at no measured length"),
        ({600: 5.0, 1200: 11.0, 5000: 18.0, 9000: 17.0}, "pays only from 1024 tokens of"),
        ({600: 15.0}, "all requests are of one length (512 to 1023 tokens)"),
    ],
)
def test_the_crossover_is_where_the_rates_cross(rates: dict[int, float], told: str) -> None:
    trials = [trial(OFF, dict.fromkeys(rates, 10.0)), trial(ON, rates)]
    said = speculation_by_length(trials, default=OFF, best=ON)
    assert said is not None
    assert told in said
    assert said == speculation_by_length(trials, default=OFF, best=OFF)


def test_what_else_differs_is_said() -> None:
    faster = {**ON, "threads": 4}
    trials = [trial(OFF, {600: 10.0, 3000: 10.0}), trial(faster, {600: 12.0, 3000: 12.0})]
    said = speculation_by_length(trials, default=OFF, best=faster)
    assert said is not None
    assert "against the default: 512: +20.0%" in said
    assert speculation_by_length(trials[:1], default=OFF, best=OFF) is None
    speculating = speculation_by_length(trials[1:], default=faster, best=faster)
    assert speculating is not None
    assert "no run without it" in speculating
