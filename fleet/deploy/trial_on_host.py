"""A trial server on another host: a container on its loopback, asked through SSH."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from os import getpid
from typing import TYPE_CHECKING

from fleet.deploy.ansible_host import group_of
from fleet.deploy.await_ready import await_ready, load_bound
from fleet.deploy.distribute import distribute
from fleet.deploy.fit_hosts import check_fit_on_hosts
from fleet.deploy.prepare import Prepared
from fleet.deploy.prepare_hosts import look_at_all, prepare_hosts
from fleet.deploy.ssh_hosts import target_of
from fleet.deploy.trial_leftovers import MARK, end_leftovers
from fleet.deploy.trial_server import TrialServer, with_overrides
from fleet.errors import OutsideError, UserError
from fleet.observe.server_client import ServerClient

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.ansible_host import HostGroup
    from fleet.deploy.bring_up import Progress
    from fleet.deploy.prepare_hosts import PreparedHosts
    from fleet.deploy.rim import Rim
    from fleet.observe.observation import RunningServer
    from fleet.profiles.kinds import Deployment, HostTarget, SettingScalar

LOOPBACK = "127.0.0.1"
_numbers = count(1)


@dataclass(frozen=True, kw_only=True, slots=True)
class OneHost:
    """One host of a group as a place for trial servers, which nothing restarts."""

    group: HostGroup
    name: str

    def running(self) -> tuple[RunningServer, ...]:
        """Return every server of fleet's there. Raises `HostUnreachable`."""
        self.group.commands(self.name).run(("true",)).checked()
        return self.group.running()

    def start(self, launch: LaunchConfig, *, generation: int) -> RunningServer:
        """Start a container. Raises `OutsideError`."""
        self.group.rehearse(launch, generation=generation)
        found = next((s for s in self.group.running() if s.deployment == launch.deployment), None)
        if found is None:
            raise OutsideError("the container is gone right after its start", where=self.name)
        return self.group.reach(found)

    def stop(self, server: RunningServer) -> None:
        """Take the container away; nothing happens where it is gone."""
        self.group.take_away(server)

    def logs(self, server: RunningServer, *, follow: bool = False) -> Iterator[str]:
        """Yield the container's log."""
        return self.group.logs(server, follow=follow)


@contextmanager
def trial_on_host(
    host: str,
    deployment: Deployment,
    *,
    overrides: Mapping[str, SettingScalar],
    rim: Rim,
    bound_s: float | None = None,
) -> Iterator[TrialServer]:
    """Start `deployment` with `overrides` on its host `host`, as `trial_server` does here.

    The model and the image must be there already, as after `bring_to_hosts` or `fleet up`.
    Raises as `trial_server`, and `HostUnreachable`.
    """
    target = next(each for each in deployment.hosts if each.name == host)
    group = group_of([target_of(target)], rim)
    place = OneHost(group=group, name=host)
    end_leftovers(place)
    wanted = replace(
        with_overrides(deployment, overrides), hosts=(target,), topology="replicas",
        name=f"{deployment.name}-{MARK}-{getpid()}-{next(_numbers)}", bind=LOOPBACK,
        port=group.free_port(host, LOOPBACK), api_key=False, tls=None, tuned_candidates=(),
    )  # fmt: skip
    prepared = prepare_hosts(wanted, group, rim=rim, progress=lambda _: None, here_only=True)
    _check_there(prepared, host)
    (launch,) = prepared.launches
    facts = prepared.sights[host].facts
    if prepared.facts is not None:
        check_fit_on_hosts([launch], prepared.facts, {host: facts}, prepared.here)
    server = place.start(launch, generation=0)
    try:
        client = ServerClient(url=server.asked_at or "", http=rim.http)
        size = prepared.model.size if prepared.model else 0
        ready = await_ready(
            launch, server, host=place, client=client, clock=rim.clock,
            progress=lambda _: None, bound_s=bound_s or load_bound(size, facts.disk_bandwidth),
        )  # fmt: skip
        whole = Prepared(
            deployment=prepared.deployment, runtime="ansible", launches=(launch,), host=facts,
            build=prepared.build, model=prepared.model,
        )  # fmt: skip
        yield TrialServer(
            url=client.url, launch=launch, client=client, ready=ready, host=place, server=server,
            prepared=whole,
        )  # fmt: skip
    finally:
        place.stop(server)


def same_hosts(
    deployment: Deployment, rim: Rim
) -> tuple[tuple[HostTarget, ...], Mapping[str, str]]:
    """Return the hosts with the first one's fingerprint, and why others are left out.

    Raises the first host's error when none answers.
    """
    group = group_of([target_of(host) for host in deployment.hosts], rim)
    sights, silent = look_at_all(group)
    if not sights:
        raise next(iter(silent.values()))
    wanted = next(iter(sights.values())).facts.fingerprint
    left = {host: error.message for host, error in silent.items()}
    left |= {
        host: "another machine (its fingerprint differs)"
        for host, sight in sights.items()
        if sight.facts.fingerprint != wanted
    }
    return tuple(host for host in deployment.hosts if host.name not in left), left


def bring_to_hosts(deployment: Deployment, *, rim: Rim, progress: Progress) -> None:
    """Bring model and image to all hosts of `deployment`, as `up` does, and start nothing.

    Raises `UserError`, `DoesNotFit`, `OutsideError`, `HostUnreachable`.
    """
    group = group_of([target_of(host) for host in deployment.hosts], rim, progress=progress)
    prepared = prepare_hosts(deployment, group, rim=rim, progress=progress, here_only=False)
    for host in prepared.missing:
        raise prepared.missing[host]
    if prepared.facts is not None:
        facts = {host: sight.facts for host, sight in prepared.sights.items()}
        check_fit_on_hosts(prepared.launches, prepared.facts, facts, prepared.here)
    launches = {launch.host: launch for launch in prepared.launches}
    distribute(prepared, launches, group=group, rim=rim, progress=progress)


def _check_there(prepared: PreparedHosts, host: str) -> None:
    if host not in prepared.sights:
        raise prepared.silent[host]
    if not prepared.launches:
        raise UserError("nothing of the deployment runs there", where=host)
