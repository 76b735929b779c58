"""Quality as exp(-KL) of next tokens."""

from __future__ import annotations

import math

import pytest

from fleet.tune.quality_limit import quality

pytestmark = pytest.mark.pure
HALF = math.log(0.5)


def test_the_same_tokens_are_quality_one() -> None:
    assert quality([{1: HALF, 2: HALF}], [{2: HALF, 1: HALF}]) == pytest.approx(1)


def test_it_is_the_divergence_of_the_shares() -> None:
    found = {1: math.log(0.8), 2: math.log(0.2)}

    divergence = 0.5 * math.log(0.5 / 0.8) + 0.5 * math.log(0.5 / 0.2)
    assert quality([{1: HALF, 2: HALF}], [found]) == pytest.approx(math.exp(-divergence))


def test_a_token_that_is_gone_counts_as_the_least_likely_one_told() -> None:
    found = {1: math.log(0.9), 3: math.log(0.1)}

    assert quality([{1: HALF, 2: HALF}], [found]) == pytest.approx(
        quality([{1: HALF, 2: HALF}], [{1: math.log(0.9), 2: math.log(0.1)}])
    )
