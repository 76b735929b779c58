"""An Ansible inventory of the deployment's hosts, usable with the shipped playbooks by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from fleet.render.artefact import Artefact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.profiles.kinds import Deployment, HostTarget


def render_inventory(deployment: Deployment, launches: Sequence[LaunchConfig]) -> Artefact:
    """Return `inventory.yaml`: one group, each host with how it is reached and what it runs."""
    hosts: dict[str, Any] = {
        host.name: _reached(host) | {"fleet_servers": _servers(host.name, launches)}
        for host in deployment.hosts
    }
    if not hosts:
        here = {"ansible_connection": "local", "fleet_servers": _servers("local", launches)}
        hosts = {"localhost": here}
    group = deployment.name.replace("-", "_").replace(".", "_")
    variables = {"fleet_deployment": deployment.name}
    document = {"all": {"children": {group: {"hosts": hosts, "vars": variables}}}}
    return Artefact(path="inventory.yaml", text=yaml.safe_dump(document, sort_keys=False))


def _reached(host: HostTarget) -> dict[str, Any]:
    known = {
        "ansible_host": host.address,
        "ansible_user": host.user,
        "ansible_port": host.port,
        "ansible_ssh_private_key_file": host.key_file,
        "fabric_address": host.fabric_address,
        "fabric_interface": host.fabric_interface,
    }
    return {name: value for name, value in known.items() if value is not None}


def _servers(host: str, launches: Sequence[LaunchConfig]) -> list[dict[str, Any]]:
    return [
        {
            "name": launch.container_name,
            "image": launch.image,
            "digest": launch.digest,
            "port": launch.port,
            "model": launch.model_path,
        }
        for launch in launches
        if launch.host == host
    ]
