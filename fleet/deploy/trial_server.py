"""A server of one's own for a measurement, on a port of its own, ended with the measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.rim import Rim
    from fleet.observe.server_client import ServerClient
    from fleet.profiles.kinds import Deployment, SettingScalar


class TrialServer(Protocol):
    """A ready server that only its user talks to."""

    url: str
    api_key: str | None
    launch: LaunchConfig
    client: ServerClient
    load_s: float  # from start to /health 200

    def alive(self) -> bool:
        """Whether the process still runs."""
        ...

    def log_lines(self) -> tuple[str, ...]:
        """Return what the engine has logged so far."""
        ...

    def memory_bytes(self) -> int:
        """Return the resident memory of the engine now."""
        ...


def trial_server(
    deployment: Deployment, *, overrides: Mapping[str, SettingScalar], rim: Rim
) -> AbstractContextManager[TrialServer]:
    """Start `deployment` with `overrides` on a free port of loopback; ready when entered.

    Ends what it started on leaving, a hung server by its id after two seconds.
    Raises `CannotExpress`, `DoesNotFit`, `EngineFailed` (cause classified, log named).
    """
    raise NotImplementedError
