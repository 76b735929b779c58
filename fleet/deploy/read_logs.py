"""The logs of all servers of a deployment, as one stream of lines that say whose they are."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from fleet.deploy.look import last_servers
from fleet.effects.termination import term_interrupts
from fleet.errors import FleetError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.deploy.rim import Rim
    from fleet.deploy.server_host import ServerHost
    from fleet.observe.observation import RunningServer


Line = tuple["RunningServer", str]


def read_logs(
    name: str, rim: Rim, *, follow: bool
) -> tuple[tuple[RunningServer, ...], Iterator[Line]]:
    """Return the servers, and their lines: a head's first, then its workers'.

    With `follow` all are read at once, each line as it comes. What cannot be read raises its
    error when the others have ended. Raises `UserError` when there never was a server.
    """
    host, servers = last_servers(name, rim)
    read = _merged if follow and len(servers) > 1 else _in_turn
    return servers, read(host, servers, follow=follow)


def _in_turn(
    host: ServerHost, servers: tuple[RunningServer, ...], *, follow: bool
) -> Iterator[Line]:
    errors = []
    for server in servers:
        try:
            for text in host.logs(server, follow=follow):
                yield server, text
        except FleetError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _merged(
    host: ServerHost, servers: tuple[RunningServer, ...], *, follow: bool
) -> Iterator[Line]:
    arrived: queue.Queue[Line | FleetError | None] = queue.Queue()

    def read(server: RunningServer) -> None:
        try:
            for line in _in_turn(host, (server,), follow=follow):
                arrived.put(line)
            arrived.put(None)
        except FleetError as error:
            arrived.put(error)

    for server in servers:
        threading.Thread(target=read, args=(server,), daemon=True).start()
    ends: list[FleetError | None] = []
    with term_interrupts():  # so that TERM too ends what reads on the hosts
        while len(ends) < len(servers):
            got = arrived.get()
            if isinstance(got, tuple):
                yield got
            else:
                ends.append(got)
    for error in filter(None, ends):
        raise error
