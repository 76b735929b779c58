"""Trial servers whose `tune` or `bench` was killed: their name holds its process number."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleet.effects.processes import exists
from fleet.errors import OutsideError

if TYPE_CHECKING:
    from fleet.deploy.server_host import ServerHost
    from fleet.observe.observation import RunningServer

MARK = "trial"
_TRIAL_NAME = re.compile(rf"^(.+)-{MARK}-(\d+)-\d+$")


def orphaned(name: str) -> bool:
    """Whether the deployment `name` is a trial's whose fleet has ended."""
    match = _TRIAL_NAME.search(name)
    return match is not None and not exists(int(match[2]))


def tried(name: str) -> str:
    """Return the deployment that the trial `name` tries."""
    match = _TRIAL_NAME.search(name)
    return match[1] if match else name


def leftovers(host: ServerHost, of: str | None = None) -> tuple[RunningServer, ...]:
    """Return the trial servers there that nobody will end; with `of` those of one deployment."""
    return tuple(
        server
        for server in host.running()
        if orphaned(server.deployment) and of in {None, tried(server.deployment)}
    )


def end_leftovers(host: ServerHost, of: str | None = None) -> tuple[RunningServer, ...]:
    """Stop them, and return them."""
    found = leftovers(host, of)
    for server in found:
        _try_stop(host, server)
    return found


def _try_stop(host: ServerHost, server: RunningServer) -> None:
    try:
        host.stop(server)
    except OutsideError:
        # another trial ends it at the same moment
        return
