"""Where an engine's own help and the shipped table differ in what a launch uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.compiler.launch_config import Warn

if TYPE_CHECKING:
    from fleet.compiler.launch_config import LaunchConfig
    from fleet.facts.build_facts import BuildFacts


def differences(launch: LaunchConfig, *tables: BuildFacts) -> tuple[Warn, ...]:
    """Return a warning for options of `launch` that the help has and the table lacks."""
    found = []
    for table in tables:
        unknown = [name for name, _ in launch.options() if name not in table]
        if unknown:
            names = ", ".join(f"`{word}`" for word in unknown)
            message = f"the help of {table.name} has {names}, the table of builds has not"
            found.append(Warn(code="help-differs", message=message))
    return tuple(found)
