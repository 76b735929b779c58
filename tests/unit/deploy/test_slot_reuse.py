from __future__ import annotations

import pytest

from fleet.deploy.prime import SlotReuse, proof_tail
from fleet.diagnose.prompts.placement import Memory

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
    ("memory", "longest"),
    [
        (Memory(), 8),  # goes back to any token
        (Memory(window=512, full_window=True), 8),
        (Memory(window=512), 520),
        (Memory(window=512, ubatch=2048), 2056),
        (Memory(recurrent=True, full_window=True), 520),
    ],
)
def test_a_proof_is_longer_than_a_ubatch_only_where_the_cache_forgets(
    memory: Memory, longest: int
) -> None:
    assert proof_tail(memory) == longest
