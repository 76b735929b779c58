"""Quadlet units: systemd starts the server, watches its health and brings it back.

For podman 5 (`Notify=healthy`); `podman-system-generator` turns a unit into a service. A
unit is read by systemd first, so `%` and `$` in words are doubled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.render.artefact import Artefact
from fleet.render.podman_line import (
    LOG_SIZE,
    PIDS,
    USER,
    health_check,
    labels,
    mount_word,
    needs_groups,
    published,
    secret_word,
    secrets_mount,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fleet.compiler.launch_config import LaunchConfig

_MARGIN_S = 60  # after the start period, before systemd gives up
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@~")


def render_quadlet(
    launches: Sequence[LaunchConfig], *, more_labels: Mapping[str, str] | None = None
) -> tuple[Artefact, ...]:
    """Return a `.container` unit for each server that runs in a container."""
    return tuple(
        Artefact(path=f"quadlet/{launch.host}/{unit_name(launch)}", text=_unit(launch, more_labels))
        for launch in launches
        if launch.image
    )


def unit_name(launch: LaunchConfig) -> str:
    """Return the unit's file name; its service has the same stem."""
    return f"{launch.container_name}.container"


def _unit(launch: LaunchConfig, more_labels: Mapping[str, str] | None) -> str:
    sections = (
        ("Unit", _unit_section(launch)),
        ("Container", _container_section(launch, more_labels or {})),
        ("Service", _service_section(launch)),
        ("Install", iter([("WantedBy", "multi-user.target default.target")])),
    )
    blocks = [
        "\n".join([f"[{name}]", *(f"{key}={it}" for key, it in rows)]) for name, rows in sections
    ]
    return "\n\n".join(blocks) + "\n"


def _unit_section(launch: LaunchConfig) -> Iterator[tuple[str, str]]:
    yield "Description", f"{launch.server} of {launch.deployment} ({launch.engine} {launch.build})"
    yield "Wants", "network-online.target"
    yield "After", "network-online.target"
    # a wrong argument ends with 1 each time: stop trying
    yield "StartLimitIntervalSec", "600"
    yield "StartLimitBurst", "3"


def _container_section(
    launch: LaunchConfig, more_labels: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    yield "ContainerName", launch.container_name
    yield "Image", str(launch.image)
    yield "Pull", "missing"
    yield "LogDriver", "k8s-file"
    yield "PodmanArgs", f"--entrypoint {launch.program} --log-opt max-size={LOG_SIZE}"
    yield "Exec", " ".join(quoted(word) for word in launch.argv)
    for name, value in launch.env:
        yield "Environment", quoted(f"{name}={value}")
    for name, value in {**labels(launch), **more_labels}.items():
        yield "Label", quoted(f"{name}={value}")
    yield from _confinement(launch)
    yield from _resources(launch)
    for mount in launch.mounts:
        yield "Volume", quoted(mount_word(mount))
    for secret in launch.secrets:
        yield "Secret", secret_word(secret)
    yield from _health(launch)


def _confinement(launch: LaunchConfig) -> Iterator[tuple[str, str]]:
    user, group = USER.split(":")
    yield from (("User", user), ("Group", group), ("DropCapability", "all"))
    for cap in launch.caps:
        yield "AddCapability", f"CAP_{cap}"
    yield from (("NoNewPrivileges", "true"), ("ReadOnly", "true"))
    yield "Mount", "type=tmpfs,destination=/tmp,tmpfs-size=256m"
    secrets = secrets_mount(launch)
    if secrets:
        yield "Mount", secrets
    if launch.network == "host":
        yield "Network", "host"
    else:
        yield "PublishPort", published(launch)


def _resources(launch: LaunchConfig) -> Iterator[tuple[str, str]]:
    yield "PidsLimit", str(PIDS)
    for device in launch.devices:
        yield "AddDevice", device
    if launch.shm_size is not None:
        yield "ShmSize", f"{int(launch.shm_size)}b"
    if launch.memlock_unlimited:
        yield "Ulimit", "memlock=-1:-1"
    # podman has no keys of their own for these
    more = []
    if needs_groups(launch):
        more.append("--group-add keep-groups")
    if launch.cpuset:
        more.append(f"--cpuset-cpus {launch.cpuset}")
    if launch.cpuset_mems:
        more.append(f"--cpuset-mems {launch.cpuset_mems}")
    if launch.memory_limit is not None:
        more.append(f"--memory {int(launch.memory_limit)}b")
    if launch.ipc_host:
        more.append("--ipc host")
    if more:
        yield "PodmanArgs", " ".join(more)


def _health(launch: LaunchConfig) -> Iterator[tuple[str, str]]:
    check = health_check(launch)
    if check:
        yield "Notify", "healthy"
    for key, value in check.items():
        yield f"Health{key.title().replace('-', '')}", value


def _service_section(launch: LaunchConfig) -> Iterator[tuple[str, str]]:
    yield "Restart", "on-failure"
    yield "RestartSec", "10"
    yield "TimeoutStartSec", f"{launch.health.start_period_s + _MARGIN_S:g}"
    yield "TimeoutStopSec", "20"


def quoted(word: str) -> str:
    """Return a word as systemd splits it, with its specifiers and variables made plain."""
    plain = word.replace("%", "%%").replace("$", "$$")
    if word and all(letter in _PLAIN for letter in word):
        return plain
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
