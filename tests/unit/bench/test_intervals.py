from __future__ import annotations

import math
import random

import pytest

from fleet.bench.intervals import difference_of, mean_of, ratio_of, t_quantile

pytestmark = pytest.mark.pure


def test_one_repeat_has_no_interval() -> None:
    found = mean_of([3.0])

    assert (found.value, found.low, found.high, found.proven) == (3.0, None, None, False)


def test_known_interval_of_three_values() -> None:
    # mean 2, standard deviation 1, t(2) = 4.303
    found = mean_of([1.0, 2.0, 3.0])

    assert found.low == pytest.approx(2 - 4.303 / math.sqrt(3))
    assert found.high == pytest.approx(2 + 4.303 / math.sqrt(3))


def test_a_ratio_is_above_one_when_after_is_faster() -> None:
    found = ratio_of([4.0, 4.4], [2.0, 2.2])

    assert found is not None
    assert found.value == pytest.approx(2.0)


@pytest.mark.parametrize("times", [([], []), ([1.0], [0.0]), ([0.0], [1.0])])
def test_no_ratio_of_nothing_or_of_zero(times: tuple[list[float], list[float]]) -> None:
    assert ratio_of(*times) is None


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
