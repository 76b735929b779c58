"""Where an engine's own help and the shipped table differ in what a launch uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.compiler.launch_config import Warn

if TYPE_CHECKING:
    from fleet.compiler.launch_config import LaunchConfig
    from fleet.facts.build_facts import BuildFacts


def differences(launch: LaunchConfig, *tables: BuildFacts) -> tuple[Warn, ...]:
    """Return a warning for options of `launch` that the help has and the table lacks."""
    used = [word for word in launch.argv if word.startswith("-") and not word[1:2].isdigit()]
    found = []
    for table in tables:
        unknown = [word for word in used if word not in table]
        if unknown:
            names = ", ".join(f"`{word}`" for word in unknown)
            message = f"the help of {table.name} has {names}, the table of builds has not"
            found.append(Warn(code="help-differs", message=message))
    return tuple(found)
