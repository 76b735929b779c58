"""How the servers of a launch resume a prompt, for priming and its proof."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleet.diagnose.prompts.placement import Memory, memory_of
from fleet.errors import UserError
from fleet.facts.known_builds import build_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.prepare import Prepared
    from fleet.facts.build_facts import BuildFacts
    from fleet.facts.model_facts import ModelFacts
    from fleet.profiles.settings_table import SettingScalar


def careful_memory(
    settings: Mapping[str, SettingScalar], facts: ModelFacts | None, build: BuildFacts | None
) -> Memory:
    """Return how a launch resumes; an unknown model as if it could not go back by itself."""
    memory = memory_of(settings, facts, build)
    return memory if facts else replace(memory, recurrent=True)


def memory_of_launch(prepared: Prepared) -> Memory:
    """Return how the first server of a compiled deployment resumes."""
    facts = prepared.model.facts if prepared.model else None
    return careful_memory(dict(prepared.launches[0].settings), facts, prepared.build)


def memory_of_remote(launch: LaunchConfig) -> Memory:
    """Return how a launch resumes whose model lies on another host."""
    try:
        build = build_facts(launch.engine, launch.build)
    except UserError:
        build = None
    return careful_memory(dict(launch.settings), None, build)


def has_slot_files(prepared: Prepared) -> bool:
    """Whether the server keeps slots in a folder (`--slot-save-path`)."""
    return bool(dict(prepared.launches[0].settings).get("slot_save_path"))
