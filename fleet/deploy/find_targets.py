"""From a word of the command line to a host: a deployment's by name, else an address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.deploy.ssh_hosts import target_of
from fleet.effects.machine import LOCAL
from fleet.errors import FleetError
from fleet.profiles.host_target import parse_host_target
from fleet.profiles.resolve_deployment import resolve_deployment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleet.effects.ssh import SshTarget
    from fleet.profiles.library import ProfileLibrary

HERE = frozenset({LOCAL, "localhost"})


def find_targets(names: Iterable[str], library: ProfileLibrary) -> dict[str, SshTarget | None]:
    """Return each host by name, None for this machine. Raises `UserError` for no address."""
    known = _named(library)
    return {
        LOCAL if name in HERE else name: None
        if name in HERE
        else known.get(name) or target_of(parse_host_target(name))
        for name in names
    }


def _named(library: ProfileLibrary) -> Mapping[str, SshTarget]:
    """Return the hosts of all deployments; of two with one name the user's own comes first."""
    found: dict[str, SshTarget] = {}
    for entry in library.entries("deployment"):
        try:
            hosts = resolve_deployment(library, entry.name).hosts
        except FleetError:
            continue  # `fleet validate` names what is wrong with it
        for host in hosts:
            found.setdefault(host.name, target_of(host))
    return found
