"""The order in which a deployment comes up on other hosts: look, bring, roll out in batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleet.deploy.ansible_host import group_of
from fleet.deploy.api_keys import ensure_key
from fleet.deploy.await_ready import Ready
from fleet.deploy.bring_up import BroughtUp, UpOptions, ask, locked
from fleet.deploy.distribute import distribute
from fleet.deploy.find_hung import replace_hung
from fleet.deploy.fit_hosts import check_fit_on_hosts
from fleet.deploy.generations import (
    Generation,
    Record,
    read_generations,
    read_record,
    write_generation,
    write_record,
)
from fleet.deploy.host_work import HostWork, share_a_model, waves
from fleet.deploy.model_files import header_of
from fleet.deploy.plan_changes import Change, plan_changes
from fleet.deploy.prepare import check_draft
from fleet.deploy.prepare_hosts import look_at_all, prepare_hosts, wanted_hosts
from fleet.deploy.ssh_hosts import remember_targets, remembered_targets, target_of
from fleet.effects.ssh import on_each
from fleet.errors import FleetError, HostUnreachable, UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fleet.deploy.ansible_host import HostGroup
    from fleet.deploy.bring_up import Progress
    from fleet.deploy.prepare_hosts import PreparedHosts
    from fleet.deploy.rim import Rim
    from fleet.observe.observation import RunningServer
    from fleet.profiles.kinds import Deployment

GGUF_SETTINGS = frozenset({"mmproj", "lora"})
SHARED = frozenset({"rpc", "tensor-parallel"})  # topologies whose hosts change together


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
    with locked(deployment.name, rim, progress, options):
        prepared = prepare_hosts(
            deployment, group, rim=rim, progress=progress, here_only=options.dry_run
        )
        work = HostWork(
            rim=rim, progress=progress,
            group=replace(group, facts={n: s.facts for n, s in prepared.sights.items()}),
            deployment=prepared.deployment, model=prepared.facts,
        )  # fmt: skip
        changes = _plan(prepared, work)
        ready: tuple[Ready, ...] = ()
        if not options.dry_run:
            _refuse_unless_whole(prepared)
            _check_fit(prepared, changes)
            ask(changes, options)
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
    group = group_of(remembered_targets(rim.folders, name), rim, progress=progress)
    with locked(name, rim, progress):
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
        _record(made, rim)
    if away is not None:
        raise _but(silent[away], sights)
    return ready


def take_down_on_hosts(name: str, *, rim: Rim, progress: Progress) -> tuple[RunningServer, ...]:
    """End the deployment's servers on all its hosts at once; return what was ended.

    Raises `HostUnreachable` for a host that does not answer, after the others are done.
    """
    group = group_of(remembered_targets(rim.folders, name), rim, progress=progress)
    with locked(name, rim, progress):
        record = read_record(rim.folders, name)
        if record is not None:
            write_record(rim.folders, replace(record, wanted="down", at=_now(rim)))
        mine = tuple(each for each in group.running() if each.deployment == name)
        ended = tuple(each for each in mine if each.state != "unknown")
        # a head before its workers: it would fail, loudly, without them
        for wave in reversed(waves(ended)):
            group.stop_all(wave)
        left = sorted({each.host for each in mine if each.state == "unknown"})
    if left:
        fix = f"`fleet down {name}` again when it answers"
        raise HostUnreachable("no answer; its servers may still run", where=left[0], fix=fix)
    return ended


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
    _record(made, work.rim, options)
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
    _record(made, work.rim, options)
    try:
        return work.roll_out(moved, made, batch=_batch(prepared))
    except (FleetError, KeyboardInterrupt):
        if before is not None:
            write_record(folders, before)
        raise


def _plan(prepared: PreparedHosts, work: HostWork) -> tuple[Change, ...]:
    """Return the changes; hosts that share one model change together or not at all."""
    name = prepared.deployment.name
    wanted = [launch for launch in prepared.launches if launch.host in prepared.sights]
    running = [
        server
        for sight in prepared.sights.values()
        for server in sight.servers
        if server.deployment == name
    ]
    changes = replace_hung(plan_changes(wanted, running), name, work.rim, client=work.client_of)
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
    """Raise `DoesNotFit`, naming the host, before anything is copied or stopped.

    Raises `UserError` for a file that is no GGUF, and for a draft of another vocabulary.
    """
    moved = [change.new for change in changes if change.new and change.action != "keep"]
    if prepared.facts is not None:
        facts = {name: sight.facts for name, sight in prepared.sights.items()}
        for file in prepared.files:
            if file.source and file.setting in GGUF_SETTINGS:
                header_of(file.source)
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
    used = [each.number for each in kept if each.ready]  # one that never served gives its number
    used += [change.old.generation for change in changes if change.old is not None]
    digests = {launch.digest for launch in prepared.launches}
    same = [each for each in kept if {launch.digest for launch in each.launches} == digests]
    number = same[-1].number if same else max(used, default=0) + 1
    tuned = prepared.deployment.tuned
    return Generation(
        number=number, at=_now(work.rim), runtime="ansible", launches=prepared.launches,
        ready=bool(same) and same[-1].ready, tuned=tuned.name if tuned else None,
    )  # fmt: skip


def _batch(prepared: PreparedHosts) -> str:
    return "100%" if prepared.deployment.topology in SHARED else prepared.deployment.batch


def _record(made: Generation, rim: Rim, options: UpOptions | None = None) -> None:
    """Write down that the generation is wanted, on all hosts of its launches."""
    name = made.launches[0].deployment
    before = read_record(rim.folders, name)
    origin = options.origin if options else before.origin if before else None
    hosts = tuple(dict.fromkeys(launch.host for launch in made.launches))
    write_record(
        rim.folders,
        Record(
            deployment=name, wanted="up", runtime="ansible", generation=made.number,
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


def _now(rim: Rim) -> str:
    return rim.clock.now().isoformat()
