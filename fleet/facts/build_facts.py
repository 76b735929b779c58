"""What one engine build accepts: its flags, their variables, its number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Engine = Literal["llama.cpp", "ik_llama.cpp", "vllm", "embedded"]
ENGINES: tuple[Engine, ...] = ("llama.cpp", "ik_llama.cpp", "vllm", "embedded")


@dataclass(frozen=True, kw_only=True, slots=True)
class Flag:
    """One option of a build, under all its names."""

    names: tuple[str, ...]
    negations: tuple[str, ...] = ()
    env: str | None = None
    removed: bool = False  # a stub that only says what replaced it
    choices: tuple[str, ...] = ()  # accepted values, where the help lists them


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildFacts:
    """The options of one build of one engine.

    `number` is the llama.cpp build (11549 for b11549), for snapshots older than the
    table's first number it is None and `date` (ISO) orders them; vLLM has a `version`.
    `source` says whether the engine's own help or the shipped table was read.
    """

    engine: Engine
    number: int | None
    date: str | None = None
    version: str | None = None
    commit: str | None = None
    flags: Mapping[str, Flag]  # by each of its names and negations
    source: Literal["help", "table"]

    def __contains__(self, flag: str) -> bool:
        """Whether the build accepts `flag` (a removed stub is not accepted)."""
        known = self.flags.get(flag)
        return known is not None and not known.removed
