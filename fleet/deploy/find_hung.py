"""Servers that were ready once and answer no more: they are replaced, not waited for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fleet.deploy.generations import read_generations, read_record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fleet.deploy.plan_changes import Change
    from fleet.deploy.rim import Rim
    from fleet.observe.observation import RunningServer
    from fleet.observe.server_client import ServerClient

HUNG_S = 10.0
LOOK_S = 0.5


def replace_hung(
    changes: Sequence[Change], name: str, rim: Rim, *, client: Callable[[Change], ServerClient]
) -> tuple[Change, ...]:
    """Return `changes` where a server is not kept that was ready and is silent for `HUNG_S`.

    One that has yet to become ready for the first time is loading, however silent it is.
    """
    return tuple(
        replace(each, action="replace", why=f"was ready, answers no more (for {HUNG_S:.0f} s)")
        if each.action == "keep"
        and each.old is not None
        and each.old.role == "server"
        and was_ready(each.old, name, rim)
        and _silent(client(each), rim)
        else each
        for each in changes
    )


def was_ready(server: RunningServer, name: str, rim: Rim) -> bool:
    """Whether an `up` of this very server came to its end since the server was started."""
    record = read_record(rim.folders, name)
    if record is None or record.wanted != "up" or server.started_at is None:
        return False
    if datetime.fromtimestamp(server.started_at, UTC).isoformat() > record.at:
        return False
    kept = read_generations(rim.folders, name)
    made = next((each for each in kept if each.number == server.generation), None)
    return made is not None and made.ready and record.generation == made.number


def _silent(client: ServerClient, rim: Rim) -> bool:
    until = rim.clock.monotonic() + HUNG_S
    while client.health() not in {"ready", "loading"}:
        if rim.clock.monotonic() > until:
            return True
        rim.clock.sleep(LOOK_S)
    return False
