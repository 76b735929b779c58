"""`Rim`: the seams through which a deployment touches the outside, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet.effects.clock import SystemClock
from fleet.effects.commands import LocalCommands
from fleet.effects.folders import Folders
from fleet.effects.http import Http

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.deploy.server_host import ServerHost
    from fleet.effects.clock import Clock
    from fleet.effects.commands import Commands


@dataclass(frozen=True, kw_only=True, slots=True)
class Rim:
    """What `bring_up`, `tune` and `bench` act through; a test replaces any part.

    `commands` runs programs on this machine. `hosts` are places for servers by name that
    win over those the deployment names; empty in normal use.
    """

    clock: Clock = field(default_factory=SystemClock)
    commands: Commands = field(default_factory=LocalCommands)
    http: Http = field(default_factory=Http)
    folders: Folders = field(default_factory=Folders)
    hosts: Mapping[str, ServerHost] = field(default_factory=dict)
