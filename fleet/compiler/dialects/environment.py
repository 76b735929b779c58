"""A launch's options as variables, for those that the engine reads from the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.compiler.launch_config import is_option
from fleet.facts.known_builds import build_facts

if TYPE_CHECKING:
    from fleet.compiler.launch_config import LaunchConfig

_LLAMA = ("llama.cpp", "embedded")


def as_environment(launch: LaunchConfig) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return what stays an argument, and the variables.

    An unknown variable is ignored without a word, so only those of the build are used, and
    none for an option that it would hold differently: repeated ones, ik_llama.cpp's, vLLM's.
    """
    if launch.engine not in _LLAMA or launch.role != "server":
        return launch.argv, dict(launch.env)
    facts = build_facts("llama.cpp", launch.build)
    env, rest = dict(launch.env), []
    words = list(launch.argv)
    while words:
        name = words.pop(0)
        value = words.pop(0) if words and not is_option(words[0]) else None
        flag = facts.flags.get(name)
        if flag is None or flag.env is None or flag.removed or flag.env in env:
            rest += [name] if value is None else [name, value]
        elif name in flag.negations:
            env[flag.env] = "0"
        else:
            env[flag.env] = "1" if value is None else value
    return tuple(rest), env
