"""What one run's answers add up to."""

from __future__ import annotations

import pytest

from fleet.observe.observation import Timings
from fleet.tune.run_figures import Answered, figures_of

pytestmark = pytest.mark.pure


def answer(ms: float, *, drafted: int = 0) -> Answered:
    took = Timings(
        cache_n=0, prompt_n=100, prompt_ms=ms, predicted_n=50, predicted_ms=ms, draft_n=drafted
    )
    return Answered(timings=took, wall_ms=2 * ms)


def test_of_requests_of_a_kind_one_that_was_disturbed_does_not_count() -> None:
    found = figures_of([answer(1000), answer(1000), answer(4000)], 12.0, 0)

    assert (found["pp"], found["tg"]) == (100, 50)


def test_where_requests_differ_all_tokens_count() -> None:
    found = figures_of([answer(1000), answer(1000), answer(4000)], 12.0, 0, mixed=True)

    assert (found["pp"], found["tg"]) == (50, 25)


def test_drafts_that_fit_one_answer_in_three_count_for_a_third() -> None:
    answers = [answer(500, drafted=60), answer(1000, drafted=3), answer(1000)]

    assert figures_of(answers, 5.0, 0)["tg"] == 60
    assert figures_of(answers, 5.0, 0)["pp"] == 100
