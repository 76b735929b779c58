"""Statistics of paired runs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fleet.tune.paired_ratio import lower, paired_ratio, robust_deviation, smallest_provable_gain

pytestmark = pytest.mark.pure


def test_a_b_b_a_cancels_a_linear_drift() -> None:
    order = (False, True, True, False)
    runs = [(at, ours, 0.1 * ours + 0.02 * at) for at, ours in enumerate(order)]

    ratio = paired_ratio(runs, noise=0.02, drift=0.0)

    assert ratio is not None
    assert ratio.log_ratio == pytest.approx(0.1)


def test_one_burst_does_not_make_a_gain() -> None:
    values = [0.0, 0.0, 0.0, -0.2, 0.0, 0.0, 0.0, 0.0]
    runs = [(at, at % 2 == 0, value) for at, value in enumerate(values)]

    ratio = paired_ratio(runs, noise=0.01, drift=0.001)

    assert ratio is not None
    assert abs(ratio.log_ratio) < 0.02


def test_no_ratio_without_runs_of_both() -> None:
    assert paired_ratio([(0, True, 1.0)], noise=0.01, drift=0.0) is None


def test_the_lower_bound_holds_in_about_95_percent() -> None:
    rng = np.random.default_rng(3)
    misses = 0
    for _ in range(400):
        noise = 0.03 * rng.standard_normal(8)
        runs = [(at, at % 4 in (1, 2), float(value)) for at, value in enumerate(noise)]
        ratio = paired_ratio(runs, noise=0.03, drift=0.0)
        assert ratio is not None
        misses += lower(ratio) > 0

    assert misses <= 0.08 * 400


def test_more_pairs_prove_smaller_gains() -> None:
    assert smallest_provable_gain(0.015, 5) == pytest.approx(0.0239, abs=0.001)
    assert smallest_provable_gain(0.015, 20) < smallest_provable_gain(0.015, 5)


def test_the_spread_ignores_outliers() -> None:
    assert robust_deviation([0.0, 0.01, -0.01, 0.005, -2.0]) < 0.03
    assert robust_deviation([1.0]) == 0.0
    assert math.isfinite(robust_deviation([]))
