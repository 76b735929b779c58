from __future__ import annotations

import pytest

from fleet.deploy.prime import SlotReuse, proof_tail

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("reused", "possible", "enough"),
    [
        (438, 447, True),  # a short prefix: a checkpoint lies a few tokens before its end
        (2243, 2248, True),
        (2243, 2300, False),
        (9950, 10_000, True),
        (9800, 10_000, False),
        (0, 10, False),
        (0, 2248, False),
    ],
)
def test_a_few_tokens_before_the_end_are_enough(reused: int, possible: int, enough: bool) -> None:
    assert SlotReuse(slot=0, reused=reused, possible=possible).enough is enough


@pytest.mark.parametrize(
    ("settings", "window", "recurrent", "longest"),
    [
        ({}, 0, False, 8),  # goes back to any token
        ({"swa_full": True}, 512, False, 8),
        ({}, 512, False, 520),
        ({"ubatch_size": 2048}, 512, False, 2056),
        ({"swa_full": True}, 0, True, 520),
    ],
)
def test_a_proof_is_longer_than_a_ubatch_only_where_the_cache_forgets(
    settings: dict[str, object], window: int, recurrent: bool, longest: int
) -> None:
    assert proof_tail(settings, window=window, recurrent=recurrent) == longest
