"""The container that a launch asks for, in the words of podman's API; pure.

The API takes what podman's Python objects drop in silence (log size, tmpfs, no-new-privileges).
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from fleet.render.podman_line import PIDS, health_command, needs_groups
from fleet.render.podman_line import labels as rendered_labels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.compiler.launch_config import LaunchConfig, Mount, SecretFile

LABEL = "fleet."
LOG_BYTES = 64 * 2**20
TMP_BYTES = 256 * 2**20
READ_BY_ALL = 0o444  # the container holds one process, and its user may be the image's own
NANO = 10**9
ANYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not bound


def container_spec(
    launch: LaunchConfig,
    *,
    generation: int,
    url: str,
    limits: Mapping[str, tuple[int, int]],
    user: str | None = None,
) -> dict[str, Any]:
    """Return the body for `containers/create`; `user` None leaves the image's own.

    `limits` are soft and hard limits by name (`nofile`) that must be given because naming
    one limit discards podman's defaults for all.
    """
    spec: dict[str, Any] = {
        "name": launch.container_name,
        "image": launch.image,
        "entrypoint": [launch.program],
        "command": list(launch.argv),
        "env": dict(launch.env),
        "labels": labels(launch, generation=generation, url=url),
        "mounts": [*map(_mount, launch.mounts), *_scratch(launch)],
        "devices": [{"path": device} for device in launch.devices],
        "read_only_filesystem": True,
        "no_new_privileges": True,
        "cap_drop": ["ALL"],
        "cap_add": list(launch.caps),
        "log_configuration": {"driver": "k8s-file", "size": LOG_BYTES},
        "resource_limits": _resources(launch),
        "secrets": [_secret(each) for each in launch.secrets if each.kind == "file"],
        "secret_env": {each.target: each.name for each in launch.secrets if each.kind == "env"},
        "stop_timeout": 3,
        **_network(launch),
    }
    if launch.shm_size is not None:
        spec["shm_size"] = int(launch.shm_size)
    if (command := health_command(launch)) is not None:
        spec["healthconfig"] = _health(launch, command)
    if needs_groups(launch):
        spec["annotations"] = {"run.oci.keep_original_groups": "1"}
    if user is not None:
        spec["user"] = user
    if launch.ipc_host:
        spec["ipcns"] = {"nsmode": "host"}
    if launch.memlock_unlimited:
        spec["r_limits"] = [
            _limit("memlock", -1, -1),
            *(_limit(name, *pair) for name, pair in limits.items()),
        ]
    return spec


def labels(launch: LaunchConfig, *, generation: int, url: str) -> dict[str, str]:
    """Return the labels that say what the container is; no secrets, only settings."""
    return {
        **rendered_labels(launch),
        f"{LABEL}host": launch.host,
        f"{LABEL}generation": str(generation),
        f"{LABEL}url": url,
        f"{LABEL}settings": json.dumps(dict(launch.settings), sort_keys=True),
        f"{LABEL}cpuset": launch.cpuset or "",
        f"{LABEL}memory": str(int(launch.memory_limit or 0)),
    }


def started_at(state: Mapping[str, Any]) -> float | None:
    """Return when podman started a container last, in seconds since the epoch."""
    text = state.get("StartedAt")
    return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None


def _mount(mount: Mount) -> dict[str, Any]:
    options = ["rbind", "ro" if mount.read_only else "rw", "z"]
    return {
        "type": "bind", "source": mount.source, "destination": mount.target, "options": options,
    }  # fmt: skip


def _scratch(launch: LaunchConfig) -> list[dict[str, Any]]:
    """Return what must be writable in a read-only root: /tmp, and the folder of secrets."""
    folders = {"/tmp": TMP_BYTES}  # noqa: S108 - inside the container
    for secret in launch.secrets:
        if secret.kind == "file":
            folders[str(PurePosixPath(_target(secret)).parent)] = 2**20
    return [
        {
            "type": "tmpfs", "source": "tmpfs", "destination": folder,
            "options": ["rw", "nosuid", "nodev", f"size={size}", "mode=1777"],
        }
        for folder, size in folders.items()
    ]  # fmt: skip


def _target(secret: SecretFile) -> str:
    return secret.target if secret.target.startswith("/") else f"/run/secrets/{secret.target}"


def _secret(secret: SecretFile) -> dict[str, Any]:
    return {"Source": secret.name, "Target": _target(secret), "Mode": READ_BY_ALL}


def _health(launch: LaunchConfig, command: str) -> dict[str, Any]:
    health = launch.health
    return {
        "Test": ["CMD-SHELL", command],
        "Interval": int(health.interval_s * NANO),
        "Timeout": int(health.timeout_s * NANO),
        "StartPeriod": int(health.start_period_s * NANO),
        "Retries": health.retries,
    }


def _resources(launch: LaunchConfig) -> dict[str, Any]:
    limits: dict[str, Any] = {"pids": {"limit": PIDS}}
    cpu = {"cpus": launch.cpuset, "mems": launch.cpuset_mems}
    if any(cpu.values()):
        limits["cpu"] = {key: value for key, value in cpu.items() if value}
    if launch.memory_limit is not None:
        limit = int(launch.memory_limit)
        # the same for both: no swap on top, which would only be slow
        limits["memory"] = {"limit": limit, "swap": limit}
    return limits


def _limit(name: str, soft: int, hard: int) -> dict[str, Any]:
    unlimited = 2**64 - 1
    return {
        "type": f"RLIMIT_{name.upper()}",
        "soft": unlimited if soft < 0 else soft,
        "hard": unlimited if hard < 0 else hard,
    }


def _network(launch: LaunchConfig) -> dict[str, Any]:
    if launch.network == "host":
        return {"netns": {"nsmode": "host"}}
    host_ip = "" if launch.bind in ANYWHERE else launch.bind
    port = {"container_port": launch.port, "host_port": launch.port, "protocol": "tcp"}
    return {"portmappings": [{**port, "host_ip": host_ip}]}
