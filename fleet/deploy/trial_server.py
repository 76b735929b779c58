"""A server of one's own for a measurement, on a port of its own, ended with the measurement."""

from __future__ import annotations

import itertools
import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from fleet.compiler.compile_deployment import runtime_of
from fleet.deploy.await_ready import await_ready, find, load_bound
from fleet.deploy.check_fit import check_fit
from fleet.deploy.find_hosts import local_host
from fleet.deploy.prepare import prepare
from fleet.deploy.trial_leftovers import MARK, end_leftovers
from fleet.effects.machine import free_port
from fleet.errors import UserError
from fleet.observe.server_client import ServerClient
from fleet.profiles.kinds import Place, SettingValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.await_ready import Ready
    from fleet.deploy.bring_up import Progress
    from fleet.deploy.prepare import Prepared
    from fleet.deploy.rim import Rim
    from fleet.deploy.server_host import ServerHost
    from fleet.observe.observation import RunningServer
    from fleet.profiles.kinds import Deployment, SettingScalar

_numbers = itertools.count(1)


@runtime_checkable
class Weighable(Protocol):
    """A host that can say what a server of its own takes."""

    def memory_bytes(self, server: RunningServer) -> int:
        """Return the server's resident memory in bytes."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialServer:
    """A ready server that only its user talks to; it listens on loopback, without a key."""

    url: str
    launch: LaunchConfig
    client: ServerClient
    ready: Ready
    host: ServerHost
    server: RunningServer
    prepared: Prepared
    api_key: str | None = None

    @property
    def load_s(self) -> float:
        """Seconds from start to /health 200."""
        return self.ready.load_s

    def alive(self) -> bool:
        """Whether the engine still runs."""
        now = find(self.host, self.server)
        return now is not None and now.state in {"starting", "running"}

    def log_lines(self) -> tuple[str, ...]:
        """Return what the engine has logged so far."""
        return tuple(self.host.logs(self.server))

    def memory_bytes(self) -> int:
        """Return the resident memory of the engine now, 0 where the host cannot tell."""
        return self.host.memory_bytes(self.server) if isinstance(self.host, Weighable) else 0


def with_overrides(deployment: Deployment, overrides: Mapping[str, SettingScalar]) -> Deployment:
    """Return `deployment` with `overrides` on top of every layer, as `--set` would."""
    place = Place(file="--set", line=1)
    above = {
        name: SettingValue(value=value, layer="--set", place=place)
        for name, value in overrides.items()
    }
    return replace(deployment, settings={**deployment.settings, **above})


@contextmanager
def trial_server(
    deployment: Deployment,
    *,
    overrides: Mapping[str, SettingScalar],
    rim: Rim,
    progress: Progress = lambda text: None,  # noqa: ARG005 - silence
    bound_s: float | None = None,
) -> Iterator[TrialServer]:
    """Start `deployment` with `overrides` on a free port of loopback; ready when entered.

    Only the given settings count: a tuned profile is not applied here. Ends what it started
    on leaving, a hung server by its id within seconds. Runs on this machine. `bound_s` is
    how long a load may take, None for what model and disk let expect.
    Raises `CannotExpress`, `DoesNotFit`, `EngineFailed` (cause classified, log named).
    """
    if deployment.hosts:
        message = "a trial server runs on this machine, this deployment names other hosts"
        raise UserError(message, where=deployment.name)
    runtime = runtime_of(deployment)
    host = local_host(runtime, rim, trial=True)
    end_leftovers(host)
    wanted = replace(
        with_overrides(deployment, overrides),
        name=f"{deployment.name}-{MARK}-{os.getpid()}-{next(_numbers)}",
        bind="127.0.0.1", port=free_port(), api_key=False, tls=None, tuned_candidates=(),
    )  # fmt: skip
    prepared = prepare(wanted, runtime=runtime, rim=rim, progress=progress, use_tuned=False)
    check_fit(prepared)
    launch = prepared.launches[0]
    model_bytes = prepared.model.size if prepared.model else 0
    server = host.start(launch, generation=0)
    try:
        client = ServerClient(url=server.asked_at or "", http=rim.http)
        ready = await_ready(
            launch, server, host=host, client=client, clock=rim.clock, progress=progress,
            bound_s=bound_s or load_bound(model_bytes, prepared.host.disk_bandwidth),
        )  # fmt: skip
        yield TrialServer(
            url=client.url, launch=launch, client=client, ready=ready, host=host, server=server,
            prepared=prepared,
        )  # fmt: skip
    finally:
        host.stop(server)
