"""The order in which a deployment comes up on other hosts: look, bring, roll out in batches."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fleet.deploy.ansible_host import group_of
from fleet.deploy.api_keys import ensure_key, read_key
from fleet.deploy.await_ready import LEAST_S, Ready, await_ready, check_alive, verify
from fleet.deploy.bring_up import BroughtUp, UpOptions
from fleet.deploy.distribute import distribute
from fleet.deploy.fit_hosts import check_fit_on_hosts, fits_beside
from fleet.deploy.generations import (
    Generation,
    Record,
    deployment_folder,
    read_generations,
    read_record,
    write_generation,
    write_record,
)
from fleet.deploy.plan_changes import LIVE, Change, plan_changes
from fleet.deploy.prepare import check_draft
from fleet.deploy.prepare_hosts import look_at_all, prepare_hosts, wanted_hosts
from fleet.deploy.prime import careful_memory, prime
from fleet.deploy.rollout import batches, rehearsal_of, start_order, who_runs_what
from fleet.deploy.ssh_hosts import remember_targets, remembered_targets, target_of
from fleet.effects.files import read_text
from fleet.effects.lock import held
from fleet.effects.ssh import on_each
from fleet.errors import (
    EngineFailed,
    FleetError,
    HostUnreachable,
    NotAsWanted,
    UserError,
)
from fleet.observe.server_client import ServerClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.ansible_host import HostGroup
    from fleet.deploy.bring_up import Progress
    from fleet.deploy.prepare_hosts import PreparedHosts
    from fleet.deploy.prime import PrimeReport
    from fleet.deploy.rim import Rim
    from fleet.facts.model_facts import ModelFacts
    from fleet.observe.observation import RunningServer
    from fleet.profiles.kinds import Deployment

SHARED = frozenset({"rpc", "tensor-parallel"})  # topologies whose hosts change together
LISTENS_S = 60.0
LISTENS = "exec 3<>/dev/tcp/$0/$1"


def bring_up_on_hosts(
    deployment: Deployment, *, rim: Rim, options: UpOptions, progress: Progress
) -> BroughtUp:
    """Make `deployment` run on its hosts; changes nothing where it does already.

    Hosts that do not answer are left for the next `up` and named at the end.
    Raises as `bring_up` does; the error says which hosts run what.
    """
    began = rim.clock.monotonic()
    deployment = wanted_hosts(deployment, options.hosts)
    if not deployment.hosts:
        fix = "name them in the deployment's `hosts`"
        raise UserError("the runtime `ansible` needs hosts", where=deployment.name, fix=fix)
    group = _group(deployment, rim, options, progress)
    with _lock(deployment.name, rim, options, progress):
        prepared = prepare_hosts(
            deployment, group, rim=rim, progress=progress, here_only=options.dry_run
        )
        changes = _plan(prepared)
        work = HostWork(
            rim=rim, progress=progress,
            group=replace(group, facts={n: s.facts for n, s in prepared.sights.items()}),
            deployment=prepared.deployment, model=prepared.facts,
        )  # fmt: skip
        ready: tuple[Ready, ...] = ()
        if not options.dry_run:
            _refuse_unless_whole(prepared)
            _check_fit(prepared, changes)
            _ask(changes, options)
            ready = _converge(prepared, changes, work, options)
    return BroughtUp(
        deployment=deployment.name,
        servers=tuple(each for each in group.running() if each.deployment == deployment.name),
        changes=changes,
        seconds=rim.clock.monotonic() - began,
        ready=ready,
        primed=tuple(work.primed),
        tuned=prepared.deployment.tuned.name if prepared.deployment.tuned else None,
        warnings=_warnings(prepared, changes, dry_run=options.dry_run),
    )


def start_generation_on_hosts(
    name: str, made: Generation, *, rim: Rim, progress: Progress
) -> tuple[Ready, ...]:
    """Run an earlier generation on its hosts again, in place of what runs; the caller asked."""
    options = UpOptions()
    group = group_of(remembered_targets(rim.folders, name), rim, progress=progress)
    with _lock(name, rim, options, progress):
        sights, silent = look_at_all(group)
        running = {
            (each.host, each.server): each for sight in sights.values() for each in sight.servers
            if each.deployment == name
        }  # fmt: skip
        changes = tuple(
            Change(
                host=launch.host, server=launch.server, action="replace", why="asked for",
                old=running.get((launch.host, launch.server)), new=launch,
            )
            for launch in made.launches if launch.host in sights
        )  # fmt: skip
        facts = {host: sight.facts for host, sight in sights.items()}
        work = HostWork(rim=rim, progress=progress, group=replace(group, facts=facts))
        shared = share_a_model(made.launches)
        away = next((e.host for e in made.launches if e.host not in sights), None)
        if away is not None and (shared or not sights):
            raise silent[away]
        ready = work.roll_out(changes, made, batch="100%" if shared else "1")
        _record(name, made.number, rim, made.launches)
    if away is not None:
        raise _but(silent[away], sights)
    return ready


def share_a_model(launches: Sequence[LaunchConfig]) -> bool:
    """Whether the launches are parts of one model over several hosts."""
    return any(launch.depends_on or launch.role != "server" for launch in launches)


def take_down_on_hosts(name: str, *, rim: Rim, progress: Progress) -> tuple[RunningServer, ...]:
    """End the deployment's servers on all its hosts at once; return what was ended.

    Raises `HostUnreachable` for a host that does not answer, after the others are done.
    """
    group = group_of(remembered_targets(rim.folders, name), rim, progress=progress)
    with _lock(name, rim, UpOptions(), progress):
        record = read_record(rim.folders, name)
        if record is not None:
            write_record(rim.folders, replace(record, wanted="down", at=_now(rim)))
        mine = tuple(each for each in group.running() if each.deployment == name)
        ended = tuple(each for each in mine if each.state != "unknown")
        # a head before its workers: it would fail, loudly, without them
        for wave in reversed(_waves(ended)):
            group.stop_all(wave)
        left = sorted({each.host for each in mine if each.state == "unknown"})
    if left:
        fix = f"`fleet down {name}` again when it answers"
        raise HostUnreachable("no answer; its servers may still run", where=left[0], fix=fix)
    return ended


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
            return Ready(load_s=0.0, context=context, first_request=None)
        return self._await_server(launch)

    def _fits_beside(self, change: Change) -> bool:
        """Whether the new server can prove itself before the old one, which serves, is stopped."""
        old, new, model = change.old, change.new, self.model
        if old is None or new is None or model is None or old.state != "running":
            return False
        before = self._launched(old)
        facts = self.group.facts[change.host]
        return before is not None and fits_beside(new, before, model=model, host=facts)

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
                self.group.end_rehearsal(tried)

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
                memory=careful_memory(settings, None, None),
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
        for wave in reversed(_waves(servers)):
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


def _converge(
    prepared: PreparedHosts, changes: Sequence[Change], work: HostWork, options: UpOptions
) -> tuple[Ready, ...]:
    """Bring what is missing, roll out, record; hosts that did not answer are named last."""
    name, folders = prepared.deployment.name, work.rim.folders
    remember_targets(folders, name, [target_of(host) for host in prepared.deployment.hosts])
    moved = [change for change in changes if change.action != "keep"]
    kept = [change for change in changes if change.action == "keep"]
    looked = on_each(kept, work.look_at, forks=work.group.forks)
    for answer in looked.values():
        if isinstance(answer, FleetError):
            raise answer
    ready = tuple(answer for answer in looked.values() if isinstance(answer, Ready))
    made = _generation(prepared, changes, work)
    if moved:
        launches = {change.host: change.new for change in moved if change.new is not None}
        distribute(prepared, launches, group=work.group, rim=work.rim, progress=work.progress)
        if any(launch.secrets for launch in made.launches):
            ensure_key(folders, name)
        ready += _recorded_roll_out(prepared, moved, made, work, options)
    write_generation(folders, name, replace(made, ready=True))
    _record(name, made.number, work.rim, made.launches, options)
    if prepared.missing:
        raise _but(next(iter(prepared.missing.values())), prepared.sights)
    return ready


def _but(error: FleetError, done: Iterable[str]) -> FleetError:
    """Return a silent host's error with the hosts that answered."""
    error.message += f" (the others are as wanted: {', '.join(done)})"
    return error


def _recorded_roll_out(
    prepared: PreparedHosts,
    moved: Sequence[Change],
    made: Generation,
    work: HostWork,
    options: UpOptions,
) -> tuple[Ready, ...]:
    """Write down what is wanted before it is begun, so that `down` finds what a kill left."""
    name, folders = prepared.deployment.name, work.rim.folders
    before = read_record(folders, name)
    write_generation(folders, name, made)
    _record(name, made.number, work.rim, made.launches, options)
    try:
        return work.roll_out(moved, made, batch=_batch(prepared))
    except (FleetError, KeyboardInterrupt):
        if before is not None:
            write_record(folders, before)
        raise


def _plan(prepared: PreparedHosts) -> tuple[Change, ...]:
    """Return the changes; hosts that share one model change together or not at all."""
    name = prepared.deployment.name
    wanted = [launch for launch in prepared.launches if launch.host in prepared.sights]
    running = [
        server
        for sight in prepared.sights.values()
        for server in sight.servers
        if server.deployment == name
    ]
    changes = plan_changes(wanted, running)
    shared = prepared.deployment.topology in SHARED
    if not shared or all(change.action == "keep" for change in changes):
        return changes
    return tuple(
        replace(change, action="replace", why="its partner changes")
        if change.action == "keep"
        else change
        for change in changes
    )


def _warnings(
    prepared: PreparedHosts, changes: Sequence[Change], *, dry_run: bool
) -> tuple[str, ...]:
    """Return what the servers that change are warned of, and hosts that nobody can look at."""
    moved = [each.new for each in changes if each.new is not None and each.action != "keep"]
    told = [f"{each.host}: {warning.message}" for each in moved for warning in each.warnings]
    named = {} if dry_run else prepared.missing
    told += [
        f"{host}: {error.message}; what it runs is not known"
        for host, error in prepared.silent.items()
        if host not in named
    ]
    return tuple(told)


def _check_fit(prepared: PreparedHosts, changes: Sequence[Change]) -> None:
    """Raise `DoesNotFit`, naming the host, before anything is copied or stopped."""
    moved = [change.new for change in changes if change.new and change.action != "keep"]
    if prepared.facts is not None:
        facts = {name: sight.facts for name, sight in prepared.sights.items()}
        check_draft(prepared.here.get("draft_model"), prepared.facts)
        check_fit_on_hosts(moved, prepared.facts, facts, prepared.here)


def _refuse_unless_whole(prepared: PreparedHosts) -> None:
    """Raise the error of a silent host when the model needs all of its hosts."""
    if prepared.missing and prepared.deployment.topology in SHARED:
        raise next(iter(prepared.missing.values()))


def _generation(prepared: PreparedHosts, changes: Sequence[Change], work: HostWork) -> Generation:
    """Return the generation that runs when nothing moves, else the next one."""
    name = prepared.deployment.name
    kept = read_generations(work.rim.folders, name)
    used = [each.number for each in kept]
    used += [change.old.generation for change in changes if change.old is not None]
    digests = {launch.digest for launch in prepared.launches}
    same = [each for each in kept if {launch.digest for launch in each.launches} == digests]
    number = same[-1].number if same else max(used, default=0) + 1
    tuned = prepared.deployment.tuned
    return Generation(
        number=number, at=_now(work.rim), runtime="ansible", launches=prepared.launches,
        tuned=tuned.name if tuned else None,
    )  # fmt: skip


def _batch(prepared: PreparedHosts) -> str:
    return "100%" if prepared.deployment.topology in SHARED else prepared.deployment.batch


def _waves(servers: Sequence[RunningServer]) -> list[tuple[RunningServer, ...]]:
    """Return servers in waves of at most one a host, workers before heads."""
    waves: list[list[RunningServer]] = []
    for server in sorted(servers, key=lambda each: each.server in {"head", "server"}):
        free = next((w for w in waves if all(each.host != server.host for each in w)), None)
        if free is None:
            waves.append([server])
        else:
            free.append(server)
    return [tuple(wave) for wave in waves]


def _record(
    name: str,
    generation: int,
    rim: Rim,
    launches: Sequence[LaunchConfig],
    options: UpOptions | None = None,
) -> None:
    before = read_record(rim.folders, name)
    origin = options.origin if options else before.origin if before else None
    hosts = tuple(dict.fromkeys(launch.host for launch in launches))
    write_record(
        rim.folders,
        Record(
            deployment=name, wanted="up", runtime="ansible", generation=generation,
            at=_now(rim), origin=origin, hosts=hosts,
        ),
    )  # fmt: skip


def _group(deployment: Deployment, rim: Rim, options: UpOptions, progress: Progress) -> HostGroup:
    """Return the deployment's hosts, and those that it was on before and has left."""
    named = [target_of(host) for host in deployment.hosts]
    names = {target.name for target in named}
    left = [
        target
        for target in remembered_targets(rim.folders, deployment.name)
        if target.name not in names and not options.hosts
    ]
    return group_of([*named, *left], rim, progress=progress, forks=options.forks)


def _ask(changes: tuple[Change, ...], options: UpOptions) -> None:
    disturbing = tuple(change for change in changes if change.disturbs)
    if disturbing and not options.confirm(disturbing):
        what = "; ".join(f"{e.action} {e.server} on {e.host}: {e.why}" for e in disturbing)
        raise NotAsWanted(f"this would stop serving servers ({what})", fix="say `--yes` to do it")


def _lock(
    name: str, rim: Rim, options: UpOptions, progress: Progress
) -> AbstractContextManager[None]:
    if options.dry_run:
        return nullcontext()
    path = deployment_folder(rim.folders, name) / "lock"
    return held(path, wait_s=options.lock_wait_s, on_wait=progress)


def _now(rim: Rim) -> str:
    return rim.clock.now().isoformat()
