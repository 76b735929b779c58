"""Strip what other programs put in front of a line: journald, compose, routers, clocks."""

from __future__ import annotations

import re
from typing import NamedTuple

# each alternative is one program's habit; they stack in any order
_STACK = re.compile(
    r"[ \t]*(?:"
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? "
    r"(?:(?:\S+ )?(?P<unit>[^\s\[\]:]+)\[\d+\]: |\S+ (?P<daemon>kernel|[\w.]*-[\w.\-]*|llama): )?)"
    r"|(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?"  # ISO clocks
    r"(?: \S+ (?P<service>[^\s\[\]:]+)\[\d+\]:|(?: std(?:out|err) [FP])?) ?)"  # ... journald, CRI
    r"|\d\d:\d\d:\d\d(?:[.,]\d+)? +"
    r"|(?P<compose>[A-Za-z0-9][\w.\-@]*) +\| "
    r"|\d+\|(?P<process>[\w.\-]+) +\| "  # pm2
    r"|\[(?P<router>\d+)\] "
    r"|\[(?P<pod>pod/[^\]\s]+)\] "  # kubectl logs --prefix
    r"|\[[^\]\n]{1,40}\] +"  # llama-swap, supervisors, clocks in brackets
    r"|std(?:err|out): "
    r"|(?P<clock>\d+\.\d\d\.\d{3}\.\d{3}) (?P<level>[A-Z]) "
    r"|(?P<bare>[IWEDT]) (?=\S)"
    r")+"
)


class Stripped(NamedTuple):
    """A line without its prefixes, which server it came from, and whether it was timed."""

    text: str
    source: str
    stamped: bool


def strip_prefixes(line: str) -> Stripped:
    """Return the message of `line`; `source` names the router child, compose service or unit."""
    if line[0].islower() and "| " not in line and line[:3] != "std":
        return Stripped(line, "", False)  # noqa: FBT003 - by place: a tenth of the time
    found = _CLOCK.match(line)
    if found is not None:
        return Stripped(line[found.end() :], "", True)  # noqa: FBT003
    found = _STACK.match(line)
    if found is None:
        return Stripped(line, "", False)  # noqa: FBT003
    stamped = bool(found["level"] or found["bare"])
    return Stripped(line[found.end() :], line[_named(found)], stamped)


def source_place(line: str) -> slice:
    """Return where the server's name stands that another program puts in front."""
    found = _STACK.match(line)
    return _named(found) if found else NOWHERE


def _named(found: re.Match[str]) -> slice:
    name = next((name for name in NAMES if found[name]), None)
    return slice(*found.span(name)) if name else NOWHERE


NAMES = ("router", "pod", "compose", "process", "unit", "daemon", "service")
NOWHERE = slice(0, 0)


_CLOCK = re.compile(r"(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) [A-Z] ")


def clock_place(line: str) -> slice | None:
    """Return where an `M.SS.mmm.uuu` stamp since the start stands, with its level behind."""
    found = _CLOCK.match(line) or _CLOCK.search(line)
    return slice(found.start(), found.end() - 3) if found else None


def microseconds(clock: str) -> int:
    """Return what an `M.SS.mmm.uuu` stamp says."""
    minutes, _, rest = clock.partition(".")
    return int(minutes) * 60_000_000 + int(rest.replace(".", ""))
