"""Where the parts of a line stand, which is the same in every line of its shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from fleet.diagnose.read_log import slot_lines
from fleet.diagnose.read_log.prefixes import source_place

if TYPE_CHECKING:
    from fleet.diagnose.read_log.rows import Row

Figures = Callable[[str], Sequence[str]]


def figures_at(spans: Sequence[tuple[int, int]]) -> Figures:
    """Return what takes the pieces of a line that stand at `spans`."""
    places = [slice(*span) for span in spans]
    if len(places) > 1:
        return itemgetter(*places)
    return (lambda line: (line[places[0]],)) if places else lambda _line: ()


class TaskPlace(NamedTuple):
    """Where a line names the server (by another program in front), slot and task."""

    named: slice
    head: slice  # slot and task together
    slot: slice
    number: slice


class SlotLine(NamedTuple):
    """Where a slot line names its task, where its text begins, and the row for it."""

    task: TaskPlace
    begin: int
    row: Row
    how: int


def slot_line_of(line: str, at: int) -> SlotLine | None:
    """Return the parts of a slot line, None when it is something else after all."""
    start = line.rfind(" id ", 0, at)
    mid = line.find(" |", at + 8)
    end = mid if mid >= 0 else len(line)
    try:
        int(line[start + 4 : at]), int(line[at + 8 : end])
    except ValueError:
        return None
    begin = len(line) - len(line[end + 2 :].lstrip())
    row = slot_lines.TABLE.get(line[begin : begin + 8], slot_lines.NOT_KNOWN)
    how = row.how if begin < len(line) else slot_lines.HEADER
    slot, number = slice(start + 4, at), slice(at + 8, end)
    task = TaskPlace(source_place(line), slice(start, end), slot, number)
    return SlotLine(task, begin, row, how)


def envelope_of(line: str, message: str, *, escapes: int = 0) -> slice | None:
    """Return where `message` stands in a line of JSON, None where that is not plain to see.

    `escapes` is how many characters behind the message are written with a backslash.
    """
    begin = line.find(message)
    plain = line.isascii() and line.count("\\") == escapes and begin == line.rfind(message)
    return slice(begin, begin + len(message)) if message and plain and begin >= 0 else None
