"""A server as a podman container on another host: the words that start it, what was found.

Labels are the truth: `fleet.launch` holds the whole launch (no secrets are in one), so that
any controller can tell what runs from the host alone.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from fleet.compiler.dialects.llama_cpp import WORDS
from fleet.deploy.launch_record import launch_from_json, launch_to_json
from fleet.deploy.podman_container import started_at
from fleet.errors import OutsideError
from fleet.observe.observation import RunningServer
from fleet.render.podman_line import podman_line
from fleet.render.quadlet import quoted, render_quadlet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fleet.compiler.launch_config import LaunchConfig, SettingScalar
    from fleet.facts.host_facts import HostFacts
    from fleet.observe.observation import State

START = ("podman", "run", "--detach")
START_MARGIN_S = 60
# every name that some build has for a setting
SETTING_OF = {option: setting for setting, row in WORDS.items() if row for option in row.names}
STATES: Mapping[str, State] = {
    "running": "running",
    "paused": "running",
    "stopping": "running",
    "restarting": "starting",
}
# prints the inspection of every container that any fleet made, stopped ones too
LIST_SCRIPT = """
command -v podman >/dev/null || { echo "podman: command not found" >&2; exit 127; }
made=$(podman ps --all --quiet --filter label=fleet.deployment 2>/dev/null)
if [ -n "$made" ]; then podman inspect $made; else echo "[]"; fi
"""


def run_words(
    launch: LaunchConfig, *, generation: int, restart: Literal["always", "no"] | None = None
) -> tuple[str, ...]:
    """Return the words after `podman run --detach`: options, image, program and arguments.

    `always` is for hosts where no unit starts the container after a reboot.
    """
    words = podman_line(launch)
    more = [
        *(f"--label={name}={value}" for name, value in _labels(launch, generation).items()),
        # of two `--restart` the last one holds
        *([f"--restart={restart}"] if restart else []),
    ]
    at = words.index("--entrypoint")
    return (*words[len(START) : at], *more, *words[at:])


def unit_of(launch: LaunchConfig, *, generation: int, facts: HostFacts) -> tuple[str, str] | None:
    """Return where the unit goes and its text, None where nothing reads units."""
    way = restart_way(facts)
    if way == "policy":
        return None
    name = launch.container_name
    if way == "quadlet":
        folder = "~/.config/containers/systemd" if facts.rootless else "/etc/containers/systemd"
        unit = render_quadlet((launch,), more_labels=_labels(launch, generation))[0].text
        return f"{folder}/{name}.container", unit
    folder = "~/.config/systemd/user" if facts.rootless else "/etc/systemd/system"
    return f"{folder}/{name}.service", _plain_unit(launch, generation)


def servers_of(inspected: str, host: str) -> tuple[RunningServer, ...]:
    """Return the servers in podman's inspection of a host. Raises `OutsideError`."""
    try:
        found = json.loads(inspected)
    except ValueError:
        raise OutsideError("podman's answer is not JSON", where=host) from None
    return tuple(_server(each, host) for each in found)


def restart_way(facts: HostFacts) -> str:
    """Return how a server comes back after a reboot: `quadlet`, `systemd` or `policy`."""
    if not facts.systemd:
        return "policy"
    return "quadlet" if facts.quadlet else "systemd"


def changed_words(
    wanted: Sequence[str], found: Sequence[str]
) -> tuple[tuple[str, SettingScalar], ...]:
    """Return the options whose value differs from the launch's, under the setting's name."""
    want, have = dict(_options(wanted)), dict(_options(found))
    return tuple(
        (SETTING_OF.get(name, name.lstrip("-").replace("-", "_")), _value(have.get(name)))
        for name in dict.fromkeys([*want, *have])
        if want.get(name) != have.get(name)
    )


def _value(word: str | None) -> SettingScalar:
    """Return a number where the word is one."""
    for number in (int, float):
        try:
            return number(word or "")
        except ValueError:
            continue
    return word


def _labels(launch: LaunchConfig, generation: int) -> dict[str, str]:
    content = launch_to_json(replace(launch, warnings=()))
    return {
        "fleet.generation": str(generation),
        "fleet.launch": json.dumps(content, separators=(",", ":")),
    }


def _plain_unit(launch: LaunchConfig, generation: int) -> str:
    """Return a service for systemd without Quadlet: podman in the foreground, named and removed."""
    words = run_words(launch, generation=generation)
    kept = [word for word in _without_restart(words) if word != "--detach"]
    start = " ".join(quoted(word) for word in ("/usr/bin/podman", "run", "--replace", *kept))
    seconds = launch.health.start_period_s + START_MARGIN_S
    return f"""\
[Unit]
Description={launch.server} of {launch.deployment}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=600
StartLimitBurst=3

[Service]
ExecStart={start}
ExecStop=/usr/bin/podman stop --ignore --time 2 {launch.container_name}
Restart=on-failure
RestartSec=10
TimeoutStartSec={seconds:g}
TimeoutStopSec=20

[Install]
WantedBy=multi-user.target default.target
"""


def _without_restart(words: Sequence[str]) -> Iterator[str]:
    """Leave podman's own restart policy out: systemd restarts."""
    rest = iter(words)
    for word in rest:
        if word == "--restart":
            next(rest)
        else:
            yield word


def _server(found: Mapping[str, Any], host: str) -> RunningServer:
    labels, state = found["Config"]["Labels"], found["State"]
    launch = launch_from_json(json.loads(labels["fleet.launch"]), where=f"{host}: {found['Name']}")
    argv = _argv(found, launch)
    edited = _edits(found, launch, argv)
    return RunningServer(
        deployment=labels["fleet.deployment"],
        server=labels["fleet.server"],
        host=host,
        state=_state(state),
        generation=int(labels["fleet.generation"]),
        digest=f"{labels['fleet.digest']}{'-edited' if edited else ''}",
        url=server_url(launch),
        role=launch.role,
        container=found["Id"],
        argv=argv,
        settings=tuple((dict(launch.settings) | edited).items()),
        image=found["ImageName"],
        restarts=int(found.get("RestartCount") or 0),
        started_at=started_at(state),
        exit_code=None if state["Status"] in STATES else state.get("ExitCode"),
        log_path=f"`podman logs {found['Name']}` on {host}",
    )


def _argv(found: Mapping[str, Any], launch: LaunchConfig) -> tuple[str, ...]:
    """Return the arguments that were really given, without the program."""
    words = tuple(found["Config"].get("Cmd") or ())
    return words[1:] if words[:1] == (launch.program,) else words


def _edits(
    found: Mapping[str, Any], launch: LaunchConfig, argv: tuple[str, ...]
) -> dict[str, SettingScalar]:
    """Return what somebody changed behind fleet's back: options, image, limits."""
    limits = found["HostConfig"]
    pairs: dict[str, tuple[SettingScalar, SettingScalar]] = {
        "memory_limit": (int(launch.memory_limit or 0), int(limits.get("Memory") or 0)),
        "cpuset": (launch.cpuset or "", limits.get("CpusetCpus") or ""),
    }
    edited = {name: have for name, (want, have) in pairs.items() if want != have}
    return edited | dict(changed_words(launch.argv, argv))


def _state(state: Mapping[str, Any]) -> State:
    known = STATES.get(state["Status"])
    if known:
        return known
    return "failed" if state["Status"] == "exited" and state.get("ExitCode") else "stopped"


def server_url(launch: LaunchConfig) -> str:
    """Return the address as the host itself has it."""
    address = f"[{launch.bind}]" if ":" in launch.bind else launch.bind
    tls = {"--ssl-cert-file", "--ssl-certfile"} & set(launch.argv)
    return f"{'https' if tls else 'http'}://{address}:{launch.port}"


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield option and value; a switch has the value `on`, a bare word its place as name."""
    rest = list(words)
    place = 0
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            yield f"argument_{place}", word
        elif rest and not _is_option(rest[0]):
            yield word, rest.pop(0)
        else:
            yield word, "on"
        place += 1


def _is_option(word: str) -> bool:
    return word.startswith("-") and not word.lstrip("-").replace(".", "").isdigit()
