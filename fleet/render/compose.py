"""A compose file with the servers of one host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from fleet.render.artefact import Artefact
from fleet.render.podman_line import (
    LOG_SIZE,
    PIDS,
    USER,
    by_host,
    health_check,
    labels,
    mount_word,
    published,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.compiler.launch_config import LaunchConfig


def render_compose(launches: Sequence[LaunchConfig]) -> tuple[Artefact, ...]:
    """Return `compose/<host>.yaml` for each host; `podman-compose` and `docker compose` read it."""
    contained = by_host(launch for launch in launches if launch.image)
    return tuple(
        Artefact(path=f"compose/{host}.yaml", text=_text(of_host))
        for host, of_host in contained.items()
    )


def _text(launches: Sequence[LaunchConfig]) -> str:
    document: dict[str, Any] = {
        "name": launches[0].deployment,
        "services": {launch.server: _service(launch) for launch in launches},
    }
    secrets = {secret.name: {"external": True} for it in launches for secret in it.secrets}
    if secrets:
        document["secrets"] = secrets
    return yaml.safe_dump(document, sort_keys=False, width=100)


def _service(launch: LaunchConfig) -> dict[str, Any]:
    service: dict[str, Any] = {
        "image": launch.image,
        "container_name": launch.container_name,
        "entrypoint": [launch.program],
        # compose replaces `$NAME`; a doubled dollar stays one
        "command": [word.replace("$", "$$") for word in launch.argv],
        "user": USER,
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "tmpfs": ["/tmp:size=256m"],  # noqa: S108 - in the container
        "pids_limit": PIDS,
        "restart": "on-failure:3",
        "logging": {"options": {"max-size": LOG_SIZE}},
        "labels": labels(launch),
    }
    optional: dict[str, Any] = {
        "cap_add": list(launch.caps),
        "environment": dict(launch.env),
        "devices": list(launch.devices),
        "volumes": [mount_word(mount) for mount in launch.mounts],
        "secrets": [{"source": it.name, "target": it.target} for it in launch.secrets],
        "cpuset": launch.cpuset,
        "mem_limit": int(launch.memory_limit) if launch.memory_limit is not None else None,
        "shm_size": int(launch.shm_size) if launch.shm_size is not None else None,
        "ulimits": {"memlock": -1} if launch.memlock_unlimited else None,
        "network_mode": "host" if launch.network == "host" else None,
        "ports": None if launch.network == "host" else [published(launch)],
        "depends_on": list(launch.depends_on),
        "healthcheck": _health(launch),
    }
    return service | {key: value for key, value in optional.items() if value}


def _health(launch: LaunchConfig) -> dict[str, Any]:
    check = {key.replace("-", "_"): value for key, value in health_check(launch).items()}
    if not check:
        return {}
    command = check.pop("cmd").split()
    return {"test": ["CMD", *command], **check, "retries": launch.health.retries}
