"""Ask an engine for its own options and number: `--help` and `--version`, in its image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.errors import OutsideError
from fleet.facts.parse_help import parse_help

if TYPE_CHECKING:
    from fleet.effects.commands import CommandResult, Commands
    from fleet.facts.build_facts import BuildFacts, Engine

_PROGRAMS: dict[Engine, tuple[str, tuple[str, ...]]] = {
    "llama.cpp": ("llama-server", ("--help",)),
    "embedded": ("llama-server", ("--help",)),
    "ik_llama.cpp": ("llama-server", ("--help",)),
    "vllm": ("vllm", ("serve", "--help=all")),
}
_TIMEOUT_S = 120.0
# where images put the server when it is not on the path
_ELSEWHERE = {"llama-server": "/app/llama-server"}


def probe_image(commands: Commands, image: str, *, engine: Engine) -> BuildFacts:
    """Return what the engine in `image` accepts. Raises `OutsideError`; nothing stays behind."""
    program, words = _PROGRAMS[engine]
    helped = _ask(commands, image, program, words)
    if not helped.ok and program in _ELSEWHERE:
        program = _ELSEWHERE[program]
        helped = _ask(commands, image, program, words)
    if not helped.ok:
        last = (helped.stderr.strip().splitlines() or ["it says nothing"])[-1]
        fix = f"try `podman run --rm --entrypoint {program} {image} {' '.join(words)}`"
        raise OutsideError(f"`{program}` does not tell its options: {last}", where=image, fix=fix)
    version = _ask(commands, image, program, ("--version",))
    # the version goes to stderr in most builds
    told = version.stdout + version.stderr if version.ok else ""
    return parse_help(helped.stdout + helped.stderr, told, engine=engine)


def _ask(commands: Commands, image: str, program: str, words: tuple[str, ...]) -> CommandResult:
    # what is only asked is not fetched
    argv = ("podman", "run", "--rm", "--pull", "never", "--network", "none")
    return commands.run((*argv, "--entrypoint", program, image, *words), timeout_s=_TIMEOUT_S)
