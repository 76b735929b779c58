"""The contract that every runtime keeps: embedded, podman here, podman over SSH.

| method  | a server of fleet's that ...          | does                                          |
|---------|---------------------------------------|-----------------------------------------------|
| running | exists, whatever its state            | lists it as its runtime really has it         |
| start   | does not exist                        | creates and starts it, returns at once        |
|         | exists under that name                | raises OutsideError (never touches strangers) |
| stop    | runs                                  | ends it within seconds, also with a request   |
|         | is gone already                       | does nothing                                  |
| logs    | ran at any time since its start       | yields lines, the last start's only           |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.observe.observation import RunningServer


class ServerHost(Protocol):
    """One host as a place where servers run."""

    @property
    def name(self) -> str:
        """The host's name in the deployment, `local` for this machine."""
        ...

    def running(self) -> tuple[RunningServer, ...]:
        """Return every server that fleet made on this host, stopped ones too."""
        ...

    def start(self, launch: LaunchConfig, *, generation: int) -> RunningServer:
        """Start `launch` and return at once; readiness is asked for elsewhere."""
        ...

    def stop(self, server: RunningServer) -> None:
        """End `server` and remove it; its log and generation stay."""
        ...

    def logs(self, server: RunningServer, *, follow: bool = False) -> Iterator[str]:
        """Yield the log's lines, oldest first; with `follow` until the server ends."""
        ...
