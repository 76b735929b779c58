"""Questions put to a running deployment, to learn whether it is what was planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.compiler.planned_context import planned_slot_context
from fleet.deploy.api_keys import is_refused
from fleet.deploy.await_ready import first_request
from fleet.deploy.check_memory import memory_checks
from fleet.deploy.find_hosts import local_host
from fleet.deploy.generations import current_generation
from fleet.deploy.launch_memory import has_slot_files, memory_of_launch
from fleet.deploy.look import Seen, client_of, look
from fleet.deploy.prime import keep_primed
from fleet.deploy.start_failure import classify
from fleet.effects.files import read_text
from fleet.effects.machine import LOCAL
from fleet.errors import OutsideError
from fleet.observe.checks import Check
from fleet.observe.server_client import ServerClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.prepare import Prepared
    from fleet.deploy.rim import Rim
    from fleet.observe.observation import RunningServer
    from fleet.profiles.kinds import RuntimeName, SharedPrefix


def check_deployment(name: str, rim: Rim, *, prepared: Prepared | None) -> tuple[Check, ...]:
    """Return the checks of every server of `name`. Raises `UserError` for one never brought up."""
    made = current_generation(rim.folders, name)
    launches = {(launch.host, launch.server): launch for launch in made.launches}
    found: list[Check] = []
    for seen in look(name, rim, prepared=prepared):
        launch = launches.get((seen.server.host, seen.server.server))
        if launch is not None:
            found += _server_checks(seen, launch, rim, prepared)
    if prepared is not None:
        found += _host_checks(prepared)
    return tuple(found)


_HEALTH_FIX = {
    "unhealthy": "keep its log (`fleet logs {0}`), then `fleet restart {0}`",
    "loading": "wait: the weights are read from disk",
}


def _server_checks(
    seen: Seen, launch: LaunchConfig, rim: Rim, prepared: Prepared | None
) -> Iterator[Check]:
    yield _alive(seen, rim)
    if seen.health == "unknown":
        return
    yield Check(
        name=f"{_who(launch)}: health", ok=seen.health == "ready", message=seen.health,
        fix=_HEALTH_FIX.get(seen.health, "see `fleet logs {0}`").format(launch.deployment),
    )  # fmt: skip
    if seen.health != "ready" or launch.role != "server":
        return
    yield _context(seen, launch, rim)
    prefix = prepared.deployment.shared_prefix if prepared is not None else None
    if prepared is None or prefix is None:
        yield _answer(seen, launch, rim)
    else:
        yield from _prefix(prefix, seen, launch, prepared, rim)
    if launch.secrets:
        yield _key_is_asked(seen, launch, rim)
    if prepared is not None:
        yield from memory_checks(seen.server, launch, prepared, rim, _who(launch))
    changed = ", ".join(f"{d.setting} is {d.running}, wanted {d.wanted}" for d in seen.drift)
    yield Check(
        name=f"{_who(launch)}: settings", ok=not seen.drift,
        message=changed or "runs what the profile says", fix=f"`fleet up {launch.deployment}`",
    )  # fmt: skip
    if seen.tuned is not None:
        yield Check(
            name=f"{_who(launch)}: tuned", ok=seen.tuned == "matches",
            message=f"its tuned profile {seen.tuned}", fix="`fleet tune` it again",
        )  # fmt: skip


def _alive(seen: Seen, rim: Rim) -> Check:
    server = seen.server
    live = server.state in {"running", "starting"}
    fix = f"`fleet up {server.deployment}`"
    message: str = server.state
    if server.state == "unknown":
        message, fix = "unknown: its host does not answer", f"`fleet doctor {server.host}`"
    elif not live and server.container is None and server.pid is None:
        message = f"{server.state}: nothing of it is there"
    elif not live and seen.wanted_up:
        runtime: RuntimeName = "ansible" if server.host != LOCAL else _runtime_here(server)
        host = local_host(runtime, rim)
        failure = classify(tuple(host.logs(server)), server.exit_code)
        line = f"; its log: {failure.line}" if failure.line else ""
        message = f"{server.state}: {failure.message}{line}"
    message = server.damage or message
    ok = live == seen.wanted_up and server.state != "unknown" and not server.damage
    return Check(name=f"{_who(server)}: process", ok=ok, message=message, fix=fix)


def _who(one: LaunchConfig | RunningServer) -> str:
    """Return the server's name, on other hosts with theirs."""
    return one.server if one.host == LOCAL else f"{one.host}/{one.server}"


def _runtime_here(server: RunningServer) -> RuntimeName:
    return "podman" if server.container else "embedded"


def _context(seen: Seen, launch: LaunchConfig, rim: Rim) -> Check:
    settings = {name: value for name, value in launch.settings if value is not None}
    wanted = planned_slot_context(settings)
    fix = "lower `ctx_size`"
    try:
        real = client_of(seen.server, rim).context()
    except OutsideError as error:
        real, wanted = None, wanted or 0
        message, fix = str(error), f"`fleet restart {launch.deployment}`"
    else:
        message = f"{real} tokens a slot, planned {wanted}"
    ok = wanted is None or real == wanted
    return Check(name=f"{_who(launch)}: context", ok=ok, message=message, fix=fix)


def _answer(seen: Seen, launch: LaunchConfig, rim: Rim) -> Check:
    try:
        first_request(launch, client_of(seen.server, rim))
    except OutsideError as error:
        return _answered(launch, str(error))
    return _answered(launch)


def _answered(launch: LaunchConfig, error: str = "") -> Check:
    return Check(
        name=f"{_who(launch)}: completion", ok=not error, message=error or "answers a request",
        fix=f"`fleet restart {launch.deployment}`",
    )  # fmt: skip


def _prefix(
    prefix: SharedPrefix, seen: Seen, launch: LaunchConfig, prepared: Prepared, rim: Rim
) -> Iterator[Check]:
    """Look whether the shared prefix is still reused; prime it again when it is not.

    That is a request too: another one would push the prefix out of a single slot.
    """
    try:
        report = keep_primed(
            prefix, client_of(seen.server, rim), read_text=read_text,
            slot_files=has_slot_files(prepared), memory=memory_of_launch(prepared),
        )  # fmt: skip
    except OutsideError as error:
        yield _answered(launch, str(error))
        return
    yield _answered(launch)
    message = f"{report.reused} of {report.prefix_tokens} tokens reused"
    if report.outcome != "not-needed":
        message = f"{report.before} were reused; {report.outcome} again: {message}"
    ok = report.outcome != "cannot-help"
    name, fix = f"{_who(launch)}: shared prefix", "" if ok else report.why
    yield Check(name=name, ok=ok, message=message, fix=fix)


def _key_is_asked(seen: Seen, launch: LaunchConfig, rim: Rim) -> Check:
    """Ask without the key: `/health` is public, so only this proves it."""
    name = f"{_who(launch)}: key"
    try:
        if is_refused(ServerClient(url=seen.server.asked_at or "", http=rim.http), launch):
            return Check(name=name, ok=True, message="refuses requests without the key")
    except OutsideError as error:
        return Check(name=name, ok=False, message=str(error))
    fix = f"`fleet restart {launch.deployment}`"
    return Check(name=name, ok=False, message="answers requests without the key", fix=fix)


def _host_checks(prepared: Prepared) -> Iterator[Check]:
    for launch in prepared.launches:
        for warning in launch.warnings:
            yield Check(name=f"{_who(launch)}: {warning.code}", ok=True, message=warning.message)
