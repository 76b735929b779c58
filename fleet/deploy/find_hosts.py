"""Which places servers can run on: one object a runtime, loaded when that runtime is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from fleet.deploy.embedded_host import EmbeddedHost
from fleet.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.deploy.rim import Rim
    from fleet.deploy.server_host import ServerHost
    from fleet.profiles.kinds import RuntimeName

# podman's client takes as long to import as all the rest: only who uses it waits for it
_PODMAN = "fleet.deploy.podman_host"
_ANSIBLE = "fleet.deploy.ansible_host"


def local_host(runtime: RuntimeName, rim: Rim, *, trial: bool = False) -> ServerHost:
    """Return this machine as `runtime` sees it; trial servers are kept apart from others."""
    if runtime in rim.hosts:
        return rim.hosts[runtime]
    if runtime == "embedded":
        return EmbeddedHost(folders=rim.folders, shelf="trials" if trial else "servers")
    if runtime == "podman":
        connect = importlib.import_module(_PODMAN).podman_host
        return cast("Callable[..., ServerHost]", connect)(rim, trial=trial)
    if runtime == "ansible":
        group = importlib.import_module(_ANSIBLE).recorded_group
        return cast("Callable[..., ServerHost]", group)(rim)
    raise UserError(f"the runtime `{runtime}` is not on this machine", where=runtime)
