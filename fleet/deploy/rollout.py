"""Which hosts change together, and what a failure means for the rest; decides, never acts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from fleet.compiler.memory.fit import SLACK
from fleet.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.compiler.memory.fit import Verdict
    from fleet.facts.host_facts import HostFacts

WHOLE = 100
REHEARSES = "next"


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


def both_fit(new: Verdict, old: Verdict, host: HostFacts) -> bool:
    """Whether the new server may start beside the old one, which serves now.

    Only where every capacity is known: by the two plans, and by what is free at the moment.
    """
    before = {each.share.name: each.used for each in (*old.devices, old.host)}
    free = {index: gpu.free for index, gpu in enumerate(host.gpus) if not gpu.unified}
    now = [*(free.get(index) for index in range(len(new.devices))), host.memory_available]
    return all(
        each.capacity is not None
        and each.used + before.get(each.share.name, 0) + SLACK <= each.capacity
        and (left is None or each.used <= left)
        for each, left in zip((*new.devices, new.host), now, strict=True)
    )


def rehearsal_of(launch: LaunchConfig, port: int) -> LaunchConfig:
    """Return the launch under another name and port, to prove itself beside the old one.

    Whatever a kill leaves of it, the next `up` or `down` finds by its labels and removes.
    """
    argv = list(launch.argv)
    argv[argv.index("--port") + 1] = str(port)
    return replace(launch, server=f"{launch.server}-{REHEARSES}", port=port, argv=tuple(argv))


def who_runs_what(done: Sequence[str], restored: Sequence[str], untouched: Sequence[str]) -> str:
    """Return one clause for an error: where the new generation runs and where the old one."""
    parts = (
        ("new", done),
        ("previous again", restored),
        ("untouched", untouched),
    )
    return "; ".join(f"{word} on {', '.join(hosts)}" for word, hosts in parts if hosts)
