"""The `podman run` line of a launch, hardened: what every container of fleet's is given.

No capability but those planned, no new privileges, a read-only root with a small /tmp, an
ordinary user, bounded log and processes; the model is mounted read-only.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from fleet.compiler.launch_config import is_option
from fleet.render.artefact import Artefact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fleet.compiler.launch_config import LaunchConfig, Mount, SecretFile

USER = "1000:1000"
LOG_SIZE = "64mb"
PIDS = 4096
SECRETS = "/run/secrets"
READ_BY_USER = "uid=1000,gid=1000,mode=0400"
# engines that read these devices need the groups of the host's user
_GROUP_DEVICES = ("/dev/dri", "/dev/kfd", "/dev/infiniband")


def podman_line(launch: LaunchConfig) -> tuple[str, ...]:
    """Return the words of `podman run` for `launch`; secrets are named, never shown."""
    return tuple(_words(launch))


def published(launch: LaunchConfig) -> str:
    """Return `address:port:port`, IPv6 addresses in brackets."""
    address = f"[{launch.bind}]" if ":" in launch.bind else launch.bind
    return f"{address}:{launch.port}:{launch.port}"


def labels(launch: LaunchConfig) -> dict[str, str]:
    """Return what the container says of itself; its generation is added when it is started."""
    return {
        "fleet.deployment": launch.deployment,
        "fleet.server": launch.server,
        "fleet.digest": launch.digest,
        "fleet.engine": launch.engine,
        "fleet.build": str(launch.build),
    }


def health_command(launch: LaunchConfig) -> str | None:
    """Return a command for inside the container, None where nothing answers HTTP."""
    if not launch.health.path or launch.role != "server":
        return None
    scheme, more = ("https", " -k") if "--ssl-key-file" in launch.argv else ("http", "")
    address = "127.0.0.1" if launch.network == "bridge" or _any(launch.bind) else launch.bind
    address = f"[{address}]" if ":" in address else address
    return f"curl -fsS{more} {scheme}://{address}:{launch.port}{launch.health.path}"


def health_check(launch: LaunchConfig) -> dict[str, str]:
    """Return the command and its times by podman's words, nothing where there is none."""
    command, health = health_command(launch), launch.health
    if command is None:
        return {}
    return {
        "cmd": command,
        "interval": f"{health.interval_s:g}s",
        "timeout": f"{health.timeout_s:g}s",
        "start-period": f"{health.start_period_s:g}s",
        "retries": str(health.retries),
    }


def mount_word(mount: Mount) -> str:
    """Return `source:target:ro` with a private SELinux label left to the host's policy."""
    return f"{mount.source}:{mount.target}:{'ro' if mount.read_only else 'rw'},z"


def secret_word(secret: SecretFile) -> str:
    """Return how podman is told about a secret that exists under its name."""
    if secret.kind == "env":
        return f"{secret.name},type=env,target={secret.target}"
    return f"{secret.name},type=mount,target={secret.target},{READ_BY_USER}"


def secrets_mount(launch: LaunchConfig) -> str | None:
    """Return a small tmpfs for secret files: a read-only root has no place to put them."""
    if not any(secret.kind == "file" for secret in launch.secrets):
        return None
    return f"type=tmpfs,destination={SECRETS},tmpfs-size=1m"


def needs_groups(launch: LaunchConfig) -> bool:
    """Whether devices are reached through the user's own groups."""
    return any(device in launch.devices for device in _GROUP_DEVICES)


def _any(address: str) -> bool:
    return address in {"0.0.0.0", "::", "*"}  # noqa: S104 - compared, not bound


def _words(launch: LaunchConfig) -> Iterator[str]:
    yield from ("podman", "run", "--detach", "--name", launch.container_name)
    yield from ("--restart", "on-failure:3", "--stop-timeout", "10")
    yield from ("--user", USER, "--cap-drop", "all", "--security-opt", "no-new-privileges")
    yield from ("--read-only", "--mount", "type=tmpfs,destination=/tmp,tmpfs-size=256m")
    # journald, the default on many hosts, does not know `max-size`
    yield from ("--log-driver", "k8s-file", "--log-opt", f"max-size={LOG_SIZE}")
    secrets = secrets_mount(launch)
    if secrets:
        yield from ("--mount", secrets)
    yield from ("--pids-limit", str(PIDS))
    for name, value in labels(launch).items():
        yield from ("--label", f"{name}={value}")
    yield from _network(launch)
    yield from _limits(launch)
    for device in launch.devices:
        yield from ("--device", device)
    if needs_groups(launch):
        yield from ("--group-add", "keep-groups")
    for mount in launch.mounts:
        yield from ("--volume", mount_word(mount))
    for secret in launch.secrets:
        yield from ("--secret", secret_word(secret))
    for name, value in launch.env:
        yield from ("--env", f"{name}={value}")
    for key, value in health_check(launch).items():
        yield from (f"--health-{key}", value)
    yield from ("--entrypoint", launch.program, str(launch.image), *launch.argv)


def _network(launch: LaunchConfig) -> Sequence[str]:
    if launch.network == "host":
        return ("--network", "host")
    return ("--publish", published(launch))


def _limits(launch: LaunchConfig) -> Iterator[str]:
    for cap in launch.caps:
        yield from ("--cap-add", cap)
    if launch.cpuset:
        yield from ("--cpuset-cpus", launch.cpuset)
    if launch.cpuset_mems:
        yield from ("--cpuset-mems", launch.cpuset_mems)
    if launch.memory_limit is not None:
        yield from ("--memory", f"{int(launch.memory_limit)}b")
    if launch.shm_size is not None:
        yield from ("--shm-size", f"{int(launch.shm_size)}b")
    if launch.ipc_host:
        yield from ("--ipc", "host")
    if launch.memlock_unlimited:
        yield from ("--ulimit", "memlock=-1:-1")


def render_podman(launches: Sequence[LaunchConfig]) -> tuple[Artefact, ...]:
    """Return a shell script for each host with the lines of its servers."""
    return tuple(
        Artefact(path=f"podman/{host}.sh", text=_script(host, of_host))
        for host, of_host in by_host(launches).items()
    )


def by_host(launches: Iterable[LaunchConfig]) -> dict[str, list[LaunchConfig]]:
    """Return the launches of each host, in their order."""
    found: dict[str, list[LaunchConfig]] = {}
    for launch in launches:
        found.setdefault(launch.host, []).append(launch)
    return found


def _script(host: str, launches: Sequence[LaunchConfig]) -> str:
    lines = ["#!/bin/sh", f"# Servers of `{launches[0].deployment}` on `{host}`", "set -eu"]
    for launch in launches:
        lines += ["", *_wrapped(podman_line(launch))]
    return "\n".join(lines) + "\n"


def _wrapped(words: Sequence[str]) -> Iterator[str]:
    """Yield one option with its values a line, so that a difference shows in a diff."""
    groups: list[list[str]] = [[]]
    for word in words:
        if is_option(word) and groups[-1]:
            groups.append([])
        groups[-1].append(word)
    for number, group in enumerate(groups):
        end = "" if number == len(groups) - 1 else " \\"
        yield ("  " if number else "") + shlex.join(group) + end
