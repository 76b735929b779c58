"""Hosts of deployments as SSH knows them, and the file that remembers them for `down`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from fleet.deploy.generations import deployment_folder
from fleet.deploy.launch_record import damaged
from fleet.effects.files import write_atomically
from fleet.effects.ssh import SshTarget

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleet.effects.folders import Folders
    from fleet.profiles.kinds import HostTarget


def target_of(host: HostTarget) -> SshTarget:
    """Return the host as ssh is told it."""
    return SshTarget(
        name=host.name, address=host.address, user=host.user, port=host.port,
        key_file=host.key_file,
    )  # fmt: skip


def remember_targets(folders: Folders, deployment: str, targets: Iterable[SshTarget]) -> None:
    """Write where the deployment's servers are, so that they are found when its file changes."""
    known = {target.name: target for target in remembered_targets(folders, deployment)}
    known |= {target.name: target for target in targets}
    path = deployment_folder(folders, deployment) / "hosts.json"
    write_atomically(path, json.dumps([asdict(target) for target in known.values()], indent=1))


def remembered_targets(folders: Folders, deployment: str) -> tuple[SshTarget, ...]:
    """Return the hosts that the deployment was ever brought to. Raises `OutsideError`."""
    path = deployment_folder(folders, deployment) / "hosts.json"
    try:
        return tuple(SshTarget(**each) for each in json.loads(path.read_text()))
    except FileNotFoundError:
        return ()
    except (ValueError, TypeError) as error:
        raise damaged(str(path), str(error)) from None
