"""The order in which a deployment comes up: plan, fit, start, ready, prime, verify, record."""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from fleet.compiler.compile_deployment import runtime_of
from fleet.deploy.api_keys import ensure_key
from fleet.deploy.await_ready import Ready, await_ready, load_bound, verify
from fleet.deploy.capture import stop_capture
from fleet.deploy.check_fit import check_fit
from fleet.deploy.find_hosts import local_host
from fleet.deploy.find_hung import replace_hung
from fleet.deploy.generations import (
    Generation,
    Origin,
    deployment_folder,
    read_generations,
    read_record,
    write_generation,
    write_record,
)
from fleet.deploy.launch_memory import has_slot_files, memory_of_launch
from fleet.deploy.local_work import LocalWork
from fleet.deploy.plan_changes import plan_changes
from fleet.deploy.prepare import prepare
from fleet.deploy.prime import prime
from fleet.deploy.trial_leftovers import end_leftovers, leftovers
from fleet.effects.files import read_text
from fleet.effects.lock import held
from fleet.errors import NotAsWanted, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

    from fleet.deploy.plan_changes import Change
    from fleet.deploy.prepare import Prepared
    from fleet.deploy.prime import PrimeReport
    from fleet.deploy.rim import Rim
    from fleet.observe.observation import RunningServer
    from fleet.profiles.kinds import Deployment, RuntimeName


class Progress(Protocol):
    """What is told while work goes on; one line, replaced by the next."""

    def __call__(self, text: str) -> None:
        """Show `text`."""
        ...


def refuse(_: tuple[Change, ...]) -> bool:
    """Answer no to stopping a serving server."""
    return False


@dataclass(frozen=True, kw_only=True, slots=True)
class UpOptions:
    """How `up` is to act. `confirm` is asked before a serving server is stopped.

    `origin` are the words the deployment came from, kept so that `status` can look again.
    """

    runtime: RuntimeName | None = None
    dry_run: bool = False
    confirm: Callable[[tuple[Change, ...]], bool] = field(default=refuse)
    prime: bool = True
    use_tuned: bool = True
    lock_wait_s: float = 30.0
    origin: Origin | None = None
    hosts: tuple[str, ...] = ()  # of those the deployment names; all when empty
    forks: int = 10  # hosts at a time


@dataclass(frozen=True, kw_only=True, slots=True)
class BroughtUp:
    """What `up` did and found; `ready` holds what each started server was found to be."""

    deployment: str
    servers: tuple[RunningServer, ...]
    changes: tuple[Change, ...]
    seconds: float
    ready: tuple[Ready, ...] = ()
    primed: tuple[PrimeReport, ...] = ()
    tuned: str | None = None
    warnings: tuple[str, ...] = ()


def bring_up(
    deployment: Deployment, *, rim: Rim, options: UpOptions, progress: Progress
) -> BroughtUp:
    """Make `deployment` run as its profile says; changes nothing when it does already.

    Raises `UserError`, `DoesNotFit`, `OutsideError` (`EngineFailed` names the classified
    cause and the log); on failure the generation that ran before runs again.
    """
    began = rim.clock.monotonic()
    runtime = options.runtime or runtime_of(deployment)
    if runtime == "ansible":
        done: BroughtUp = _on_hosts().bring_up_on_hosts(
            deployment, rim=rim, options=options, progress=progress
        )
        return done
    if options.hosts:
        message = f"the runtime `{runtime}` knows this machine alone"
        raise UserError(message, where="--hosts", fix="name `hosts:` in the deployment")
    work = LocalWork(rim=rim, progress=progress, host=local_host(runtime, rim), runtime=runtime)
    with locked(deployment.name, rim, progress, options):
        if not options.dry_run:
            end_leftovers(local_host(runtime, rim, trial=True), deployment.name)
        prepared = prepare(
            deployment, runtime=runtime, rim=rim, progress=progress, use_tuned=options.use_tuned,
            here_only=options.dry_run,
        )  # fmt: skip
        changes = replace_hung(
            plan_changes(prepared.launches, work.mine(deployment.name)),
            deployment.name, rim, client=work.client_of,
        )  # fmt: skip
        ready: tuple[Ready, ...] = ()
        primed: tuple[PrimeReport, ...] = ()
        if not options.dry_run:
            check_fit(prepared)
            ask(changes, options)
            ready, primed = _converge(prepared, changes, work, options)
    return BroughtUp(
        deployment=deployment.name,
        servers=work.mine(deployment.name),
        changes=changes,
        seconds=rim.clock.monotonic() - began,
        ready=ready,
        primed=primed,
        tuned=prepared.deployment.tuned.name if prepared.deployment.tuned else None,
    )


def take_down(name: str, *, rim: Rim, progress: Progress) -> tuple[RunningServer, ...]:
    """Stop and remove every server of the deployment `name`; return what was ended.

    Raises `UserError` when there is neither a record nor a server of that name.
    """
    record = read_record(rim.folders, name)
    runtime: RuntimeName = record.runtime if record else "embedded"
    if runtime == "ansible":
        away: tuple[RunningServer, ...] = _on_hosts().take_down_on_hosts(
            name, rim=rim, progress=progress
        )
        return away
    work = LocalWork(rim=rim, progress=progress, host=local_host(runtime, rim), runtime=runtime)
    trials = local_host(runtime, rim, trial=True)
    if record is None and not work.mine(name) and not leftovers(trials, name):
        fix = "`fleet status` lists what is recorded or running"
        raise UserError("nothing of that name was brought up", where=name, fix=fix)
    with locked(name, rim, progress):
        ended = work.mine(name)
        if record is not None:
            down = replace(record, wanted="down", at=rim.clock.now().isoformat())
            write_record(rim.folders, down)
        stop_capture(name, rim)
        for server in ended:
            progress(f"stopping {server.server}")
            work.stop(server)
        return (*ended, *end_leftovers(trials, name))


def start_generation(
    name: str, made: Generation, *, rim: Rim, progress: Progress
) -> tuple[Ready, ...]:
    """Run the launches of an earlier generation in place of what runs now; the caller asked.

    Raises as `bring_up` does; on failure what ran before runs again.
    """
    if made.runtime == "ansible":
        there: tuple[Ready, ...] = _on_hosts().start_generation_on_hosts(
            name, made, rim=rim, progress=progress
        )
        return there
    work = LocalWork(
        rim=rim, progress=progress, host=local_host(made.runtime, rim), runtime=made.runtime
    )
    with locked(name, rim, progress):
        record = read_record(rim.folders, name)
        origin = record.origin if record else None
        if record is not None:
            write_record(rim.folders, record)  # a full disk says so before anything is stopped
        return work.replace_all(
            made, work.mine(name), bound_s=load_bound(0, None),
            finish=lambda: work.record(name, made.number, origin=origin),
        )  # fmt: skip


def ask(changes: Sequence[Change], options: UpOptions) -> None:
    """Ask before a serving server is stopped or replaced. Raises `NotAsWanted`."""
    disturbing = tuple(change for change in changes if change.disturbs)
    if disturbing and not options.confirm(disturbing):
        what = "; ".join(f"{e.action} {e.server} on {e.host}: {e.why}" for e in disturbing)
        raise NotAsWanted(f"this would stop a serving server ({what})", fix="say `--yes` to do it")


@contextmanager
def locked(
    name: str, rim: Rim, progress: Progress, options: UpOptions | None = None
) -> Iterator[None]:
    """Hold the deployment's lock; a dry run changes nothing and needs none."""
    chosen = options or UpOptions()
    if chosen.dry_run:
        yield
        return
    path = deployment_folder(rim.folders, name) / "lock"
    with held(path, wait_s=chosen.lock_wait_s, on_wait=progress):
        yield


def _on_hosts() -> ModuleType:
    """Return the same order for other hosts, loaded only where hosts are named."""
    return importlib.import_module("fleet.deploy.bring_up_hosts")


def _converge(
    prepared: Prepared, changes: Sequence[Change], work: LocalWork, options: UpOptions
) -> tuple[tuple[Ready, ...], tuple[PrimeReport, ...]]:
    """Apply the changes, prime, and record; a kept server is looked at, not touched."""
    name, folders = prepared.deployment.name, work.rim.folders
    kept = [change for change in changes if change.action == "keep"]
    if len(kept) == len(changes):
        made = _kept_generation(prepared, kept[0], work)
        ready = tuple(_look_at(change, work, prepared) for change in kept)
    else:
        made = _next_generation(prepared, changes, work)
        write_generation(folders, name, made)
        if any(launch.secrets for launch in made.launches):
            ensure_key(folders, name)
        model_bytes = prepared.model.size if prepared.model else 0
        bound = load_bound(model_bytes, prepared.host.disk_bandwidth)
        old = [change.old for change in changes if change.old is not None]
        ready = work.replace_all(
            made, old, bound_s=bound, finish=lambda: _remember(made, work, options)
        )
        return ready, _prime(prepared, work) if options.prime else ()
    _remember(made, work, options)
    return ready, ()


def _remember(made: Generation, work: LocalWork, options: UpOptions) -> None:
    """Write down that `made` serves and is wanted."""
    name = made.launches[0].deployment
    if not made.ready:
        write_generation(work.rim.folders, name, replace(made, ready=True))
    work.record(name, made.number, origin=options.origin)


def _look_at(change: Change, work: LocalWork, prepared: Prepared) -> Ready:
    """Make sure that a kept server is ready, also one that an interrupted `up` left loading."""
    launch, server = change.new, change.old
    assert launch is not None and server is not None  # noqa: S101, PT018 - what keep means
    client = work.client_of(change)
    if client.health() == "ready":
        context = verify(launch, server, work.host, client)
        return Ready(load_s=0.0, context=context, first_request=None)
    model_bytes = prepared.model.size if prepared.model else 0
    return await_ready(
        launch, server, host=work.host, client=client, clock=work.rim.clock,
        progress=work.progress, bound_s=load_bound(model_bytes, prepared.host.disk_bandwidth),
    )  # fmt: skip


def _kept_generation(prepared: Prepared, change: Change, work: LocalWork) -> Generation:
    """Return the running generation's record, made anew if an interrupted `up` lost it."""
    number = change.old.generation if change.old else 1
    for each in read_generations(work.rim.folders, prepared.deployment.name):
        if each.number == number:
            return each
    return _generation(prepared, number, work)


def _next_generation(prepared: Prepared, changes: Sequence[Change], work: LocalWork) -> Generation:
    kept = read_generations(work.rim.folders, prepared.deployment.name)
    used = [each.number for each in kept if each.ready]  # one that never served gives its number
    used += [change.old.generation for change in changes if change.old is not None]
    return _generation(prepared, max(used, default=0) + 1, work)


def _generation(prepared: Prepared, number: int, work: LocalWork) -> Generation:
    tuned = prepared.deployment.tuned
    return Generation(
        number=number,
        at=work.rim.clock.now().isoformat(),
        runtime=prepared.runtime,
        launches=prepared.launches,
        tuned=tuned.name if tuned else None,
    )


def _prime(prepared: Prepared, work: LocalWork) -> tuple[PrimeReport, ...]:
    prefix = prepared.deployment.shared_prefix
    if prefix is None:
        return ()
    work.progress("priming the shared prefix")
    servers = work.mine(prepared.deployment.name)
    clients = (
        work.client(launch, server.asked_at or "")
        for launch, server in zip(prepared.launches, servers, strict=False)
    )
    memory = memory_of_launch(prepared)
    return tuple(
        prime(
            prefix,
            client,
            read_text=read_text,
            memory=memory,
            look_before=False,
            slot_files=has_slot_files(prepared),
        )
        for client in clients
    )
