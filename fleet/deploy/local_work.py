"""The work of a deployment on this machine: start, stop, and put back what served before."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleet.deploy.api_keys import read_key
from fleet.deploy.await_ready import Ready, await_ready, load_bound
from fleet.deploy.find_hosts import local_host
from fleet.deploy.generations import Origin, Record, read_generations, read_record, write_record
from fleet.effects.machine import listener, port_taken
from fleet.errors import FleetError, OutsideError
from fleet.observe.server_client import ServerClient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.bring_up import Progress
    from fleet.deploy.generations import Generation
    from fleet.deploy.plan_changes import Change
    from fleet.deploy.rim import Rim
    from fleet.deploy.server_host import ServerHost
    from fleet.observe.observation import RunningServer
    from fleet.profiles.kinds import RuntimeName


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalWork:
    """One deployment's work on one host."""

    rim: Rim
    progress: Progress
    host: ServerHost
    runtime: RuntimeName

    def mine(self, name: str) -> tuple[RunningServer, ...]:
        """Return the deployment's servers here, those of the runtime it had before too."""
        record = read_record(self.rim.folders, name)
        hosts = [self.host]
        if record is not None and record.runtime not in {self.runtime, "ansible"}:
            hosts.append(local_host(record.runtime, self.rim))
        return tuple(each for host in hosts for each in host.running() if each.deployment == name)

    def stop(self, server: RunningServer) -> None:
        """Stop `server`, which may be one of the runtime that the deployment had before."""
        runtime: RuntimeName = "podman" if server.container else "embedded"
        host = self.host if runtime == self.runtime else local_host(runtime, self.rim)
        host.stop(server)

    def client(self, launch: LaunchConfig, url: str) -> ServerClient:
        """Return a client with the deployment's key."""
        key = read_key(self.rim.folders, launch.deployment) if launch.secrets else None
        return ServerClient(url=url, http=self.rim.http, api_key=key)

    def client_of(self, change: Change) -> ServerClient:
        """Return a client of the server that `change` keeps."""
        assert change.new is not None and change.old is not None  # noqa: S101, PT018 - kept
        return self.client(change.new, change.old.asked_at or "")

    def replace_all(
        self,
        made: Generation,
        old: Sequence[RunningServer],
        *,
        bound_s: float,
        finish: Callable[[], None],
    ) -> tuple[Ready, ...]:
        """Stop `old`, start `made`, `finish`; when that fails, start again what served."""
        for server in old:
            self.progress(f"stopping generation {server.generation}")
            self.stop(server)
        try:
            ready = tuple(self.start(launch, made, bound_s=bound_s) for launch in made.launches)
            finish()
            return ready  # noqa: TRY300 - `else` would read as if it could not fail
        except (FleetError, KeyboardInterrupt) as error:
            self._undo(made, old, error)
            raise

    def start(self, launch: LaunchConfig, made: Generation, *, bound_s: float) -> Ready:
        """Start one server and wait until it is ready."""
        if port_taken(launch.bind, launch.port):
            ours = self._on_port(launch.port)
            who = f"the deployment `{ours}`" if ours else listener(launch.port)
            message = f"port {launch.port} on {launch.bind} is taken by {who or 'another process'}"
            end = f"`fleet down {ours}`" if ours else "end it"
            fix = f"{end}, or choose another port: `--set port={launch.port + 1}`"
            raise OutsideError(message, where=launch.deployment, fix=fix)
        self.progress(f"starting {launch.server} ({launch.engine} {launch.build or ''})")
        server = self.host.start(launch, generation=made.number)
        return await_ready(
            launch, server, host=self.host, client=self.client(launch, server.asked_at or ""),
            clock=self.rim.clock, progress=self.progress, bound_s=bound_s,
        )  # fmt: skip

    def _on_port(self, port: int) -> str | None:
        """Return the deployment of fleet's own that listens on `port` here."""
        hosts = (self.host, local_host("embedded", self.rim))
        return next(
            (
                server.deployment
                for host in hosts
                for server in host.running()
                if server.state in {"starting", "running"}
                and (server.url or "").endswith(f":{port}")
            ),
            None,
        )

    def record(self, name: str, generation: int, *, origin: Origin | None) -> None:
        """Write down that `generation` is wanted."""
        write_record(
            self.rim.folders,
            Record(
                deployment=name, wanted="up", runtime=self.runtime, generation=generation,
                at=self.rim.clock.now().isoformat(), origin=origin,
            ),
        )  # fmt: skip

    def _undo(self, made: Generation, old: Sequence[RunningServer], error: BaseException) -> None:
        """End what was started and put back what served before."""
        name = made.launches[0].deployment
        for server in self.mine(name):
            self.stop(server)
        served = {each.generation for each in old if each.state == "running"}
        if isinstance(error, FleetError):
            served -= {made.number}  # a restart: it failed just now
        for each in read_generations(self.rim.folders, name):
            if each.number in served:
                self.progress(f"putting generation {each.number} back")
                before = replace(
                    self, runtime=each.runtime, host=local_host(each.runtime, self.rim)
                )
                for launch in each.launches:
                    before.start(launch, each, bound_s=load_bound(0, None))
                if isinstance(error, FleetError):
                    error.message += f"; generation {each.number} serves again"
