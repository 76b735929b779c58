"""Compare what runs with what is wanted: the record, the runtime and the profile together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from fleet.deploy.api_keys import read_key
from fleet.deploy.find_hosts import local_host
from fleet.deploy.generations import read_generations, read_record, recorded
from fleet.deploy.plan_changes import drift
from fleet.deploy.trial_leftovers import MARK, leftovers, tried
from fleet.effects.machine import LOCAL
from fleet.errors import FleetError, OutsideError, UserError
from fleet.observe.observation import RunningServer
from fleet.observe.server_client import ServerClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.generations import Generation, Record
    from fleet.deploy.plan_changes import Drift
    from fleet.deploy.prepare import Prepared
    from fleet.deploy.rim import Rim
    from fleet.deploy.server_host import ServerHost
    from fleet.observe.observation import HealthState

Tuned = Literal["matches", "stale"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """One server as it is, and how far that is from what is wanted."""

    server: RunningServer
    health: HealthState
    drift: tuple[Drift, ...] = ()
    tuned: Tuned | None = None
    wanted_up: bool = True

    @property
    def as_wanted(self) -> bool:
        """Whether nothing needs doing about this server."""
        live = self.server.state in {"running", "starting"}
        if not self.wanted_up:
            # on a host that does not answer it may still run
            return not live and self.server.state != "unknown"
        return live and self.health == "ready" and not self.drift and not self.server.damage


def names_seen(rim: Rim) -> tuple[str, ...]:
    """Return every deployment that is recorded as up, or has a server of fleet's."""
    up = [name for name in recorded(rim.folders) if _wanted_up(rim, name)]
    running = [server.deployment for server in local_host("embedded", rim).running()]
    left = [tried(each.deployment) for each in leftovers(local_host("embedded", rim, trial=True))]
    return tuple(dict.fromkeys([*up, *running, *left]))


def trials_left(name: str, rim: Rim) -> tuple[Seen, ...]:
    """Return the live trial servers of `name` whose `tune` or `bench` was killed."""
    record = read_record(rim.folders, name)
    here = record is not None and record.runtime != "ansible"
    host = local_host(record.runtime if record and here else "embedded", rim, trial=True)
    return tuple(
        Seen(
            server=replace(server, deployment=name, server=MARK), health=_health(server, rim),
            wanted_up=False,
        )
        for server in leftovers(host, name)
        if server.state in {"starting", "running"}
    )  # fmt: skip


def look(name: str, rim: Rim, *, prepared: Prepared | None = None) -> tuple[Seen, ...]:
    """Return each server of `name`; one that is wanted but gone is `stopped`.

    `prepared` is what the profile says now, None when that cannot be told: drift is then
    against the generation that was brought up.
    """
    record = read_record(rim.folders, name)
    host = local_host(record.runtime if record else "embedded", rim)
    running = tuple(each for each in host.running() if each.deployment == name)
    made = _generation(rim, record)
    wanted = prepared.launches if prepared else made.launches if made else ()
    up = record is not None and record.wanted == "up"
    seen = [_seen(server, wanted, prepared, rim, up=up) for server in running]
    if up and made is not None:
        there = {(server.host, server.server) for server in running}
        gone = [each for each in made.launches if (each.host, each.server) not in there]
        seen += [
            Seen(server=_stopped(launch, made), health="unknown", tuned=_tuned(prepared))
            for launch in gone
        ]
    return tuple(seen)


def unreadable(name: str, error: OutsideError) -> Seen:
    """Return what stands for the servers of `name` when its record cannot be read."""
    fix = f"; {error.fix}" if error.fix else ""
    server = RunningServer(
        deployment=name, server="server", host=LOCAL, state="unknown", generation=0, digest="",
        damage=f"{error}{fix}",
    )  # fmt: skip
    return Seen(server=server, health="unknown")


def last_server(name: str, rim: Rim) -> tuple[ServerHost, RunningServer]:
    """Return the host and the server of `name` whose log tells most. Raises as `last_servers`."""
    host, servers = last_servers(name, rim)
    return host, servers[0]


def last_servers(name: str, rim: Rim) -> tuple[ServerHost, tuple[RunningServer, ...]]:
    """Return the servers of `name` whose logs there are to read, live or not, heads first.

    Raises `UserError` when there never was one.
    """
    record = read_record(rim.folders, name)
    host = local_host(record.runtime if record else "embedded", rim)
    found = [each for each in host.running() if each.deployment == name]
    kept = read_generations(rim.folders, name)
    if not found and not kept:
        fix = "`fleet status` lists what is recorded or running"
        raise UserError("nothing of that name was brought up", where=name, fix=fix)
    if not found:
        found = [_stopped(launch, kept[-1]) for launch in kept[-1].launches]
    # a head's log tells more than its workers'
    return host, tuple(sorted(found, key=lambda each: each.role != "server"))


def client_of(server: RunningServer, rim: Rim) -> ServerClient:
    """Return a client for a server of fleet's, with its key if it has one.

    Raises `OutsideError` for a server that was stopped: it has no address.
    """
    if server.asked_at is None:
        fix = f"`fleet up {server.deployment}`"
        raise OutsideError("the server does not run", where=server.deployment, fix=fix)
    key = read_key(rim.folders, server.deployment)
    return ServerClient(url=server.asked_at, http=rim.http, api_key=key)


def _seen(
    server: RunningServer,
    wanted: Sequence[LaunchConfig],
    prepared: Prepared | None,
    rim: Rim,
    *,
    up: bool,
) -> Seen:
    place = (server.host, server.server)
    launch = next((each for each in wanted if (each.host, each.server) == place), None)
    return Seen(
        server=server,
        health=_health(server, rim),
        drift=drift(launch, server) if launch is not None and up and not server.damage else (),
        tuned=_tuned(prepared),
        wanted_up=up,
    )


def _health(server: RunningServer, rim: Rim) -> HealthState:
    if server.state not in {"running", "starting"} or server.asked_at is None:
        return "unknown"
    if server.role != "server":
        return "ready" if server.state == "running" else "unknown"
    said = ServerClient(url=server.asked_at, http=rim.http).health()
    return "unhealthy" if said == "unreachable" else said


def _tuned(prepared: Prepared | None) -> Tuned | None:
    """Say whether a tuned profile of this deployment holds for host, build and model now."""
    if prepared is None or not prepared.deployment.tuned_candidates:
        return None
    return "matches" if prepared.deployment.tuned is not None else "stale"


def _stopped(launch: LaunchConfig, made: Generation) -> RunningServer:
    return RunningServer(
        deployment=launch.deployment, server=launch.server, host=launch.host, state="stopped",
        generation=made.number, digest=launch.digest, argv=launch.argv, settings=launch.settings,
        role=launch.role,
    )  # fmt: skip


def _generation(rim: Rim, record: Record | None) -> Generation | None:
    if record is None:
        return None
    kept = read_generations(rim.folders, record.deployment)
    return next((each for each in kept if each.number == record.generation), None)


def _wanted_up(rim: Rim, name: str) -> bool:
    try:
        record = read_record(rim.folders, name)
    except FleetError:
        # a damaged record is named when its deployment is asked for
        return True
    return record is not None and record.wanted == "up"
