from __future__ import annotations

import pytest

from fleet.deploy.prime import SlotReuse

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
