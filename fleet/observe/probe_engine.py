"""Ask an engine for its own options and number: `--help` and `--version`, in its image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.errors import OutsideError
from fleet.facts.parse_help import parse_help

if TYPE_CHECKING:
    from fleet.effects.commands import Commands
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
    for path in (program, _ELSEWHERE.get(program, program)):
        helped = _ask(commands, image, path, words)
        if helped is not None:
            version = _ask(commands, image, path, ("--version",)) or ""
            return parse_help(helped, version, engine=engine)
    message = f"`{program} --help` gives nothing in this image"
    fix = f"try `podman run --rm --entrypoint {program} {image} --help`"
    raise OutsideError(message, where=image, fix=fix)


def _ask(commands: Commands, image: str, program: str, words: tuple[str, ...]) -> str | None:
    argv = ("podman", "run", "--rm", "--network", "none", "--entrypoint", program, image, *words)
    answer = commands.run(argv, timeout_s=_TIMEOUT_S)
    # the version goes to stderr in most builds
    return answer.stdout + answer.stderr if answer.ok else None
