"""What a line turned out to be, kept for the lines of the same shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fleet.diagnose.read_log import slot_lines
from fleet.diagnose.read_log.prefixes import source_place

if TYPE_CHECKING:
    from collections.abc import Callable

    Reader = Callable[..., str | None]  # of a reading and a text; of a reading, a task, a text

# how a slot line is read: by its row alone, for nothing, for the slot, with more to do
TAKEN, SILENT, OF_SLOT, HEADER, UNKNOWN, LAUNCH, CHOICE, RELEASE, TIMED = range(9)
# how any other is: by its reader alone, a function's (which can mean trouble besides), a timing
PLAIN, FUNCTION, TIMING, OF_BUILD = range(4)


class SlotLine(NamedTuple):
    """Where the parts of a slot line lie: ` id `, ` | task `, its end, the text; who reads it."""

    start: int
    at: int
    end: int
    begin: int
    handler: slot_lines.Handler
    how: int
    named: slice  # the server, by another program in front


class Known(NamedTuple):
    """Who reads a line, from where on, and how."""

    read: Reader
    begin: int
    kind: int
    named: slice


class Envelope(NamedTuple):
    """Where a line of the log stands in one of JSON."""

    begin: int
    end: int


def envelope_of(line: str, message: str, *, escapes: int = 0) -> Envelope | None:
    """Return where `message` stands in `line`, None where that is not as plain as it looks.

    `escapes` is how many characters behind the message are written with a backslash.
    """
    begin = line.find(message)
    plain = line.isascii() and line.count("\\") == escapes and begin == line.rfind(message)
    return Envelope(begin, begin + len(message)) if message and plain and begin >= 0 else None


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
    handler = slot_lines.TABLE.get(line[begin : begin + 8], slot_lines.unknown)
    how = _HOW.get(handler, TAKEN) if begin < len(line) else HEADER
    return SlotLine(start, at, end, begin, handler, how, source_place(line))


_HOW = {
    slot_lines.nothing: SILENT, slot_lines.new_slot: OF_SLOT, slot_lines.unknown: UNKNOWN,
    slot_lines.launch: LAUNCH, slot_lines.selected: CHOICE, slot_lines.release: RELEASE,
    slot_lines.prompt_timing: TIMED,
}  # fmt: skip
