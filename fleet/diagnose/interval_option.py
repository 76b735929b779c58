"""What the distance of checkpoints is called by an engine and build."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.errors import UserError
from fleet.facts.known_builds import build_facts, since_and_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.facts.build_facts import BuildFacts

SETTING = "checkpoint_interval"
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "llama.cpp": ("--checkpoint-min-step", "--checkpoint-every-n-tokens"),
    "ik_llama.cpp": ("--ctx-checkpoints-interval",),
    "vllm": ("--prefix-cache-retention-interval",),
}


def interval_option(engine: str, build: BuildFacts | None) -> str | None:
    """Return the option of this build, the newest name where the build is unknown.

    None for a build that has no such option.
    """
    names = OPTIONS[engine]
    return names[0] if build is None else next((name for name in names if name in build), None)


def can_be_set(engine: str, build: str | None) -> bool:
    """Whether the build that a log names has the option; an unknown build may."""
    return interval_option(engine, _facts(engine, build)) is not None


def interval_words(engine: str, build: str | None) -> str:
    """Say how the interval is set: for the build that a log names, else for each build."""
    facts = _facts(engine, build)
    if facts is None:
        return "the interval is " + " or ".join(
            _with_builds(name, engine) for name in OPTIONS[engine]
        )
    name = interval_option(engine, facts)
    return f"the interval {f'is `{name}`' if name else 'cannot be set'} in {facts.name}"


def _facts(engine: str, build: str | None) -> BuildFacts | None:
    try:
        return build_facts("llama.cpp", build) if build and engine == "llama.cpp" else None
    except UserError:
        return None


def _with_builds(name: str, engine: str) -> str:
    since, until = since_and_until(name) if engine == "llama.cpp" else (None, None)
    if since is None:
        return f"`{name}`"
    return f"`{name}` " + (f"(from {since} to {until})" if until else f"(since {since})")
