"""What one engine build accepts: its flags, their variables, its number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Engine = Literal["llama.cpp", "ik_llama.cpp", "vllm", "embedded"]

_FIRST_NUMBER = 1000.0  # of an `order`: below are dates


@dataclass(frozen=True, kw_only=True, slots=True)
class Flag:
    """One option of a build, under all its names."""

    names: tuple[str, ...]
    negations: tuple[str, ...] = ()
    env: str | None = None
    removed: bool = False  # a stub that only says what replaced it
    choices: tuple[str, ...] = ()  # accepted values, where the help lists them

    @property
    def spellings(self) -> tuple[str, ...]:
        """All names, the negative ones last."""
        return (*self.names, *self.negations)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildFacts:
    """The options of one build of one engine.

    `number` is the llama.cpp build (11549 for b11549), for snapshots older than the
    table's first number it is None and `date` (ISO) orders them; vLLM has a `version`.
    `source` says whether the engine's own help or the shipped table was read. `inferred`:
    the program does not tell its number, the nearest known build's stands in for it.
    `after` and `before` are the known builds around one that the table does not list.
    """

    engine: Engine
    number: int | None
    date: str | None = None
    version: str | None = None

    flags: Mapping[str, Flag]  # by each of its names and negations
    source: Literal["help", "table"]
    inferred: bool = False
    after: str | None = None
    before: str | None = None

    @property
    def order(self) -> float:
        """A number that grows with the build; dated snapshots lie below all numbers."""
        if self.number is not None:
            return float(self.number)
        return float(self.date.replace("-", "")) / 1e5 if self.date else 0.0

    @property
    def name(self) -> str:
        """How people call it: `b11549`, `2025-09-29`, `0.33.0`."""
        if self.number is not None:
            return f"b{self.number}"
        return self.date or self.version or "unknown"

    def changed(self, after: float, by: float) -> bool | None:
        """Whether a change that came in `after < build <= by` is in: True, False, unknown."""
        undated = self.number is not None and self.after is not None and self.after[0] != "b"
        if undated and by < _FIRST_NUMBER:
            return None  # a number among the dated snapshots, the change too
        if self.order >= by:
            return True
        return False if self.order <= after else None

    def __contains__(self, flag: str) -> bool:
        """Whether the build accepts `flag` (a removed stub is not accepted)."""
        known = self.flags.get(flag)
        return known is not None and not known.removed
