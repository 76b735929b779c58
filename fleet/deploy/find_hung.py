"""Servers that were ready once and answer no more, or not to the key: they are replaced."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fleet.deploy.api_keys import is_refused
from fleet.deploy.generations import read_generations, read_record
from fleet.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fleet.compiler.launch_config import LaunchConfig
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
    One that asks for the key of before `fleet key --rotate` is not kept either.
    """
    return tuple(_judged(each, name, rim, client) for each in changes)


def _judged(
    change: Change, name: str, rim: Rim, client: Callable[[Change], ServerClient]
) -> Change:
    old, launch = change.old, change.new
    if change.action != "keep" or old is None or launch is None or old.role != "server":
        return change
    if was_ready(old, name, rim) and _silent(client(change), rim):
        why = f"was ready, answers no more (for {HUNG_S:.0f} s)"
    elif keeps_old_key(client(change), launch):
        why = "its API key was changed"
    else:
        return change
    return replace(change, action="replace", why=why)


def keeps_old_key(client: ServerClient, launch: LaunchConfig) -> bool:
    """Whether the server serves with another key than the deployment's now; False if silent."""
    try:
        return bool(launch.secrets) and is_refused(client, launch)
    except OutsideError:  # still loading, perhaps
        return False


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
