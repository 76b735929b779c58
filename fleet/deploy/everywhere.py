"""Up, down and back for every runtime: this machine here, other hosts where they are handled."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fleet.compiler.compile_deployment import runtime_of
from fleet.deploy.bring_up import BroughtUp, Progress, UpOptions, bring_up
from fleet.deploy.bring_up import start_generation as start_here
from fleet.deploy.bring_up import take_down as take_down_here
from fleet.deploy.generations import read_record

if TYPE_CHECKING:
    from fleet.deploy.await_ready import Ready
    from fleet.deploy.generations import Generation
    from fleet.deploy.rim import Rim
    from fleet.observe.observation import RunningServer
    from fleet.profiles.kinds import Deployment

# ansible takes a second to import: only who deploys to other hosts waits for it
_OTHER_HOSTS = "fleet.deploy.bring_up_hosts"


def bring_up_everywhere(
    deployment: Deployment, *, rim: Rim, options: UpOptions, progress: Progress
) -> BroughtUp:
    """Do `bring_up` on this machine or on the deployment's hosts, by its runtime."""
    if (options.runtime or runtime_of(deployment)) != "ansible":
        return bring_up(deployment, rim=rim, options=options, progress=progress)
    on_hosts = _other_hosts().bring_up_on_hosts
    done: BroughtUp = on_hosts(deployment, rim=rim, options=options, progress=progress)
    return done


def take_down(name: str, *, rim: Rim, progress: Progress) -> tuple[RunningServer, ...]:
    """Stop every server of `name`, wherever its record says that it runs."""
    record = read_record(rim.folders, name)
    if record is None or record.runtime != "ansible":
        return take_down_here(name, rim=rim, progress=progress)
    ended: tuple[RunningServer, ...] = _other_hosts().take_down_on_hosts(
        name, rim=rim, progress=progress
    )
    return ended


def start_generation(
    name: str, made: Generation, *, rim: Rim, progress: Progress
) -> tuple[Ready, ...]:
    """Run an earlier generation again, wherever it ran."""
    if made.runtime != "ansible":
        return start_here(name, made, rim=rim, progress=progress)
    on_hosts = _other_hosts().start_generation_on_hosts
    ready: tuple[Ready, ...] = on_hosts(name, made, rim=rim, progress=progress)
    return ready


def _other_hosts() -> Any:  # noqa: ANN401 - a module, loaded late
    return importlib.import_module(_OTHER_HOSTS)
