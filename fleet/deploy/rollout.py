"""Which hosts change together, and what a failure means for the rest; decides, never acts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleet.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.sizes import ByteSize

WHOLE = 100


def batch_size(batch: str, hosts: int) -> int:
    """Return how many of `hosts` change at once for `3` or `25%`; at least one.

    Raises `UserError` for anything else.
    """
    number = batch.removesuffix("%").strip()
    if not number.isdigit() or int(number) == 0:
        raise UserError(f"`{batch}` is not a batch", where="batch", fix="write `1` or `25%`")
    if not batch.endswith("%"):
        return int(number)
    if int(number) > WHOLE:
        raise UserError(f"`{batch}` is more than all", where="batch", fix="write at most `100%`")
    return max(1, math.floor(hosts * int(number) / WHOLE))


def batches(hosts: Sequence[str], batch: str) -> tuple[tuple[str, ...], ...]:
    """Return `hosts` in order, cut into batches."""
    size = batch_size(batch, len(hosts))
    return tuple(tuple(hosts[at : at + size]) for at in range(0, len(hosts), size))


def start_order(launches: Sequence[LaunchConfig]) -> tuple[tuple[LaunchConfig, ...], ...]:
    """Return the launches in waves: a server stands behind all that it depends on.

    Nodes of one tensor-parallel model wait for each other, so they share a wave.
    """
    waves: list[tuple[LaunchConfig, ...]] = []
    placed: set[str] = set()
    left = list(launches)
    while left:
        wave = [each for each in left if set(each.depends_on) <= placed] or left
        waves.append(tuple(wave))
        placed |= {each.server for each in wave}
        left = [each for each in left if each not in wave]
    return tuple(waves)


def both_fit(needed: ByteSize | None, running: ByteSize | None, present: ByteSize | None) -> bool:
    """Whether the new server may start beside the old one: only where all three are known."""
    if needed is None or running is None or present is None:
        return False
    return needed + running <= present


def who_runs_what(done: Sequence[str], restored: Sequence[str], untouched: Sequence[str]) -> str:
    """Return one clause for an error: where the new generation runs and where the old one."""
    parts = (
        ("new", done),
        ("previous again", restored),
        ("untouched", untouched),
    )
    return "; ".join(f"{word} on {', '.join(hosts)}" for word, hosts in parts if hosts)
