"""The work on a deployment's hosts: batches, starts, readiness, and what is put back on failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet.deploy.api_keys import read_key
from fleet.deploy.await_ready import LEAST_S, Ready, await_ready, check_alive, verify
from fleet.deploy.find_hung import keeps_old_key
from fleet.deploy.fit_hosts import fits_beside
from fleet.deploy.generations import read_generations
from fleet.deploy.launch_memory import memory_of_remote
from fleet.deploy.plan_changes import LIVE
from fleet.deploy.prime import prime
from fleet.deploy.rollout import batches, rehearsal_of, start_order, who_runs_what
from fleet.effects.files import read_text
from fleet.effects.ssh import on_each
from fleet.errors import EngineFailed, FleetError
from fleet.observe.server_client import ServerClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.ansible_host import HostGroup
    from fleet.deploy.bring_up import Progress
    from fleet.deploy.generations import Generation
    from fleet.deploy.plan_changes import Change
    from fleet.deploy.prime import PrimeReport
    from fleet.deploy.rim import Rim
    from fleet.facts.model_facts import ModelFacts
    from fleet.observe.observation import RunningServer
    from fleet.profiles.kinds import Deployment

LISTENS_S = 60.0
LISTENS = "exec 3<>/dev/tcp/$0/$1"


@dataclass(frozen=True, kw_only=True, slots=True)
class HostWork:
    """One deployment's work on its hosts."""

    rim: Rim
    progress: Progress
    group: HostGroup
    deployment: Deployment | None = None
    model: ModelFacts | None = None
    primed: list[PrimeReport] = field(default_factory=list)

    def client(self, server: RunningServer, launch: LaunchConfig) -> ServerClient:
        """Return a client that reaches the server through SSH, with the deployment's key."""
        key = read_key(self.rim.folders, launch.deployment) if launch.secrets else None
        url = self.group.reach(server).tunnel or ""
        return ServerClient(url=url, http=self.rim.http, api_key=key)

    def client_of(self, change: Change) -> ServerClient:
        """Return a client of the server that `change` keeps."""
        assert change.new is not None and change.old is not None  # noqa: S101, PT018 - kept
        return self.client(change.old, change.new)

    def roll_out(
        self, changes: Sequence[Change], made: Generation, *, batch: str
    ) -> tuple[Ready, ...]:
        """Apply the changes in batches of hosts; the first batch that fails is put back."""
        hosts = list(dict.fromkeys(change.host for change in changes))
        if not any(change.old is not None and change.old.state in LIVE for change in changes):
            batch = "100%"  # nothing serves that a batch could protect
        ready: list[Ready] = []
        done: list[str] = []
        for number, chosen in enumerate(batches(hosts, batch), start=1):
            mine = [change for change in changes if change.host in chosen]
            self.progress(f"batch {number}: {', '.join(chosen)}")
            try:
                # first what is wanted no more, a killed `up`'s rehearsal too
                self._end([c.old for c in mine if c.old is not None and c.new is None])
                self._rehearse([c for c in mine if self._fits_beside(c)], made.number)
            except FleetError as error:
                error.message += f" ({who_runs_what(done, (), hosts[len(done) :])})"
                raise
            try:
                # a new server is put in the place of an old one of the same name
                ready += self.start([c.new for c in mine if c.new is not None], made.number)
            except (FleetError, KeyboardInterrupt) as error:
                self._put_back(mine, made, error, done=done, left=hosts[len(done) + len(chosen) :])
                raise
            done += chosen
        return tuple(ready)

    def start(self, launches: Sequence[LaunchConfig], generation: int) -> list[Ready]:
        """Start launches, those that others depend on first; return when all are ready."""
        ready: list[Ready] = []
        for wave in start_order(launches):
            for outcome in self.group.start_all(wave, generation=generation).values():
                if outcome.error is not None:
                    raise outcome.error
            ready += self._await(wave)
        return ready

    def look_at(self, change: Change) -> Ready | None:
        """Make sure that a kept server is ready; an interrupted `up` may have left it loading."""
        launch, server = change.new, change.old
        if launch is None or server is None or launch.role != "server":
            return None
        client = self.client(server, launch)
        if client.health() == "ready":
            context = verify(launch, server, self.group.only(launch.host), client)
            return Ready(load_s=0.0, context=context, first_request=None, host=launch.host)
        return self._await_server(launch)

    def _fits_beside(self, change: Change) -> bool:
        """Whether the new server can prove itself before the old one, which serves, is stopped."""
        old, new, model = change.old, change.new, self.model
        if old is None or new is None or model is None or old.state != "running":
            return False
        before = self._launched(old)
        facts = self.group.facts[change.host]
        if before is None or not fits_beside(new, before, model=model, host=facts):
            return False
        # the host has the key of the old one until that is replaced
        return not keeps_old_key(self.client(old, new), new)

    def _rehearse(self, changes: Sequence[Change], generation: int) -> None:
        """Start each new server beside the old one, see it ready, and take it away again.

        A version that cannot serve is so found out before anything is stopped, and its files
        are in the host's memory when it takes the old one's port.
        """

        def rehearse(launch: LaunchConfig) -> None:
            self.progress(f"{launch.host}: the new version proves itself beside the old one")
            port = self.group.free_port(launch.host, launch.bind)
            tried = rehearsal_of(launch, port)
            self.group.rehearse(tried, generation=generation)
            try:
                self._await_ready(tried)
            finally:
                self.group.take_away(tried)

        launches = [change.new for change in changes if change.new is not None]
        for answer in on_each(launches, rehearse, forks=self.group.forks).values():
            if isinstance(answer, FleetError):
                raise answer

    def _launched(self, server: RunningServer) -> LaunchConfig | None:
        """Return what the running server was launched as, None when that is not kept."""
        place = (server.host, server.server)
        for each in read_generations(self.rim.folders, server.deployment):
            if each.number == server.generation:
                return next((e for e in each.launches if (e.host, e.server) == place), None)
        return None

    def _await(self, wave: Sequence[LaunchConfig]) -> list[Ready]:
        answers = on_each(wave, self._await_one, forks=self.group.forks)
        for answer in answers.values():
            if isinstance(answer, FleetError):
                raise answer
        return [answer for answer in answers.values() if isinstance(answer, Ready)]

    def _await_one(self, launch: LaunchConfig) -> Ready | None:
        if launch.role == "server":
            return self._await_server(launch)
        server, host = self._server(launch), self.group.only(launch.host)
        until = self.rim.clock.monotonic() + LISTENS_S
        while launch.role == "rpc-worker" and not self._listens(launch):
            check_alive(launch, server, host)
            if self.rim.clock.monotonic() > until:
                message = f"does not listen on {launch.bind}:{launch.port}"
                raise EngineFailed(message, where=f"{launch.server} on {launch.host}")
            self.rim.clock.sleep(0.1)
        check_alive(launch, server, host)
        return None

    def _await_ready(self, launch: LaunchConfig) -> tuple[Ready, ServerClient]:
        server = self._server(launch)
        client = self.client(server, launch)
        # the launch knows its model's size, also one that lies on the hosts alone
        bound = max(LEAST_S, 2 * launch.health.start_period_s)
        ready = await_ready(
            launch, server, host=self.group.only(launch.host), client=client,
            clock=self.rim.clock, progress=self.progress, bound_s=bound,
        )  # fmt: skip
        return ready, client

    def _await_server(self, launch: LaunchConfig) -> Ready:
        ready, client = self._await_ready(launch)
        prefix = self.deployment.shared_prefix if self.deployment else None
        if prefix is not None:
            self.progress(f"{launch.host}: priming the shared prefix")
            # the model lies there: as if it could not go back by itself
            settings = dict(launch.settings)
            report = prime(
                prefix, client, read_text=read_text, look_before=False,
                slot_files=bool(settings.get("slot_save_path")),
                memory=memory_of_remote(launch),
            )  # fmt: skip
            self.primed.append(report)
        return ready

    def _listens(self, launch: LaunchConfig) -> bool:
        words = ("timeout", "2", "bash", "-c", LISTENS, launch.bind, str(launch.port))
        return self.group.commands(launch.host).run(words).ok

    def _server(self, launch: LaunchConfig) -> RunningServer:
        for each in self.group.only(launch.host).running():
            if (each.deployment, each.server) == (launch.deployment, launch.server):
                return each
        message = "it was removed as soon as it was started"
        raise EngineFailed(message, where=f"{launch.deployment}/{launch.server} on {launch.host}")

    def _end(self, servers: Sequence[RunningServer]) -> None:
        for wave in reversed(waves(servers)):
            self.group.stop_all(wave)

    def _put_back(
        self,
        changes: Sequence[Change],
        made: Generation,
        error: BaseException,
        *,
        done: Sequence[str],
        left: Sequence[str],
    ) -> None:
        """End what was started in this batch and start again what served before."""
        name = made.launches[0].deployment
        touched = sorted({change.host for change in changes})
        together = share_a_model([change.new for change in changes if change.new is not None])
        restored: list[str] = []
        for hosts in [touched] if together else [[host] for host in touched]:
            try:
                restored += self._put_back_hosts(name, hosts, changes)
            except FleetError as again:
                self.progress(f"{', '.join(hosts)}: could not be put back: {again}")
        if isinstance(error, FleetError):
            told = who_runs_what(done, restored, left)
            error.message += f" ({told})" if told else ""

    def _put_back_hosts(
        self, name: str, hosts: Sequence[str], changes: Sequence[Change]
    ) -> list[str]:
        there = [server for host in hosts for server in self.group.only(host).running()]
        self._end([e for e in there if e.deployment == name and e.state != "unknown"])
        before = [
            (change.old.generation, launch)
            for change in changes
            if change.host in hosts and change.old is not None and change.old.state in LIVE
            if (launch := self._launched(change.old)) is not None
        ]
        for number in dict.fromkeys(number for number, _ in before):
            self.progress(f"{', '.join(hosts)}: putting generation {number} back")
            self.start([launch for old, launch in before if old == number], number)
        return [launch.host for _, launch in before]


def share_a_model(launches: Sequence[LaunchConfig]) -> bool:
    """Whether the launches are parts of one model over several hosts."""
    return any(launch.depends_on or launch.role != "server" for launch in launches)


def waves(servers: Sequence[RunningServer]) -> list[tuple[RunningServer, ...]]:
    """Return servers in waves of at most one a host, workers before heads."""
    found: list[list[RunningServer]] = []
    for server in sorted(servers, key=lambda each: each.role == "server"):
        free = next((w for w in found if all(each.host != server.host for each in w)), None)
        if free is None:
            found.append([server])
        else:
            free.append(server)
    return [tuple(wave) for wave in found]
