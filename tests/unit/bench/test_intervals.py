from __future__ import annotations

import math
import random

import pytest

from fleet.bench.intervals import difference_of, quotient_of, t_quantile, total_of

pytestmark = pytest.mark.pure


def test_one_repeat_has_no_interval() -> None:
    found = total_of([[3.0], [4.0, 5.0]])

    assert (found.value, found.low, found.high, found.proven) == (7.5, None, None, False)


def test_known_interval_of_three_values() -> None:
    # mean 2, standard deviation 1, t(2) = 4.303
    found = total_of([[1.0, 2.0, 3.0]])

    assert found.low == pytest.approx(2 - 4.303 / math.sqrt(3))
    assert found.high == pytest.approx(2 + 4.303 / math.sqrt(3))


def test_what_strata_differ_in_is_no_doubt_about_their_total() -> None:
    found = total_of([[1.0, 1.1], [50.0, 50.1]])

    assert found.high is not None
    assert found.high - found.value < 0.5


def test_a_quotient_is_above_one_when_after_is_faster() -> None:
    found = quotient_of([[4.0, 4.4]], [[2.0, 2.2]])

    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))


@pytest.mark.parametrize("times", [([], []), ([[1.0]], [[0.0]]), ([[0.0]], [[1.0]])])
def test_no_quotient_of_nothing_or_of_zero(
    times: tuple[list[list[float]], list[list[float]]],
) -> None:
    assert quotient_of(*times) is None


def test_the_interval_of_a_quotient_holds_the_truth_as_often_as_it_says() -> None:
    dice = random.Random(2)  # noqa: S311 - reproducible
    held = 0
    for _ in range(600):
        above = [[dice.gauss(mean, 0.1 * mean) for _ in range(3)] for mean in (10, 30, 60)]
        below = [[dice.gauss(mean, 0.1 * mean) for _ in range(3)] for mean in (5, 10, 5)]
        found = quotient_of(above, below)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 5 <= found.high

    assert 0.92 <= held / 600 <= 0.99


def test_the_interval_of_a_difference_holds_the_truth_as_often_as_it_says() -> None:
    dice = random.Random(1)  # noqa: S311 - reproducible
    held = 0
    for _ in range(600):
        before = [dice.gauss(10, 1) for _ in range(6)]
        after = [dice.gauss(12, 3) for _ in range(9)]
        found = difference_of(before, after)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 2 <= found.high

    assert 0.92 <= held / 600 <= 0.99


def test_quantiles_fall_to_the_normal_one() -> None:
    values = [t_quantile(degrees) for degrees in (1, 2, 5, 30, 31, 1000)]

    assert values == sorted(values, reverse=True)
    assert values[-1] == 1.960
