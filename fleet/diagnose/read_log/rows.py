"""A row of a grammar: what is looked for in a line, and what takes the figures of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.diagnose.read_log.log_reading import LogReading

    Spans = tuple[tuple[int, int], ...]
    Take = Callable[..., str | None]  # of a reading (and a task) and figures; the event it is


class Row(NamedTuple):
    """Patterns in the order in which they are tried; lines of one shape fit the same one.

    `once` sees the text of the first line of each shape.
    """

    patterns: tuple[tuple[re.Pattern[str], Take], ...] = ()
    how: int = 0
    once: Callable[[LogReading, str], None] | None = None

    def find(self, line: str, begin: int = 0) -> tuple[Take, Spans] | None:
        """Return what takes a line that speaks from `begin` on, and where its figures stand."""
        for pattern, take in self.patterns:
            if found := pattern.search(line, begin):
                return take, found.regs[1:]
        return None

    def read(self, text: str, *into: object) -> str | None:
        """Take a text into a reading (and a task); return the event that it is, if any."""
        if (found := self.find(text)) is None:
            return None
        take, spans = found
        return take(*into, *(text[begin:end] for begin, end in spans))


def row(
    *patterns: tuple[str, Take],
    how: int = 0,
    once: Callable[[LogReading, str], None] | None = None,
) -> Row:
    """Return a row of patterns as they are written."""
    return Row(tuple((re.compile(pattern), take) for pattern, take in patterns), how, once)


def keys(*names: str) -> str:
    """Return the pattern of figures `name = n` that stand anywhere behind, each or none."""
    return "".join(rf"(?=(?:.*?\b{name} = (-?\d+))?)" for name in names)
