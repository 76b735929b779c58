"""What breaks a shared prefix: the place where two requests part, and what stands there."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleet.diagnose.prompts.requests import Request

AROUND = 80
MOST = 8  # breaks of one pair; what follows says nothing new
FINAL = ("per-user data before shared data", "the request itself", "edited history")
SHARED_LATER = 200  # characters alike after the place: data of the user came too early


@dataclass(frozen=True, kw_only=True, slots=True)
class Break:
    """The first difference of two requests: part, offset in it, what kind it is."""

    where: str
    offset: int
    kind: str


PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("billing header", re.compile(r"x-anthropic-billing-header[^\n]*|cch=[0-9a-f]+")),
    (
        "uuid",
        re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE),
    ),
    (
        "timestamp",
        re.compile(
            r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?Z?)?|\b\d{1,2}:\d\d(?::\d\d)?\b"
            r"|\b(?:1[5-9]|2\d)\d{8}(?:\d{3})?\b"
            r"|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b[^\n]{0,30}"
            r"|\b(?:January|February|March|April|May|June|July|August|September|October|November"
            r"|December) \d{1,2}[^\n]{0,20}"
        ),
    ),
    ("counter", re.compile(r"\d+")),
)
THINK = re.compile(r"</?think(?:ing)?>")


def find_breaks(a: Request, b: Request) -> list[Break]:
    """Return where `b` differs from `a`, in order; empty when they are equal or one continues.

    Behind a value that changes (a time, a counter) the search goes on as if it were equal.
    """
    left, right = a.texts, b.texts
    found: list[Break] = []
    for number, ((name, mine), (other, theirs)) in enumerate(zip(left, right, strict=False)):
        if name != other:
            return [*found, Break(where=other, offset=0, kind=_structure(a, b))]
        found += _in_part(left, right, number)
        if len(found) >= MOST or (found and found[-1].kind in FINAL and mine != theirs):
            break
    return found


def _in_part(
    left: tuple[tuple[str, str], ...], right: tuple[tuple[str, str], ...], number: int
) -> list[Break]:
    name, mine = left[number]
    theirs, passed = right[number][1], 0
    found: list[Break] = []
    while mine != theirs and len(found) < MOST:
        at = _same_length(mine, theirs)
        kind = _kind(name, mine, theirs, at)
        if kind == "other":
            last = number == len(right) - 1
            kind = _other(left, right, number, passed + at, last=last)
        found.append(Break(where=name, offset=passed + at, kind=kind))
        ends = _after_value(kind, mine, theirs, at)
        if ends is None:
            break
        mine, theirs, passed = mine[ends[0] :], theirs[ends[1] :], passed + ends[0]
    return found


def _after_value(kind: str, a: str, b: str, at: int) -> tuple[int, int] | None:
    """Return where the changing value ends in each text, None for what is no value."""
    pattern = dict(PATTERNS).get(kind)
    if pattern is None:
        return None
    ends = [_covering(pattern, text, at) for text in (a, b)]
    return (ends[0], ends[1]) if None not in ends else None  # type: ignore[return-value]


def _same_length(a: str, b: str) -> int:
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[:middle] == b[:middle] else (low, middle - 1)
    return low


def _structure(a: Request, b: Request) -> str:
    if bool(a.tools) != bool(b.tools):
        return "tools present or not"
    return "edited history"


def _kind(name: str, a: str, b: str, at: int) -> str:
    """Name the difference by what stands at it, the most telling first."""
    if bool(THINK.search(a)) != bool(THINK.search(b)):
        return "think tags"
    if a.split() == b.split():
        return "whitespace"
    if name == "tools" and _tool_names(a) and sorted(_tool_names(a)) == sorted(_tool_names(b)):
        return "tool order" if _tool_names(a) != _tool_names(b) else "json key order"
    if _same_json(a, b, at):
        return "json key order"
    for kind, pattern in PATTERNS:
        if _covers(pattern, a, at) and _covers(pattern, b, at):
            return kind
    return "other"


def _covers(pattern: re.Pattern[str], text: str, at: int) -> bool:
    return _covering(pattern, text, at) is not None


def _covering(pattern: re.Pattern[str], text: str, at: int) -> int | None:
    """Return where the match around `at` ends."""
    begin = max(0, at - AROUND)
    for found in pattern.finditer(text[begin : at + AROUND]):
        if found.start() + begin <= at <= found.end() + begin:
            return max(at, found.end() + begin)
    return None


def _tool_names(text: str) -> list[str]:
    try:
        tools = json.loads(text)
    except ValueError:
        return []
    return [str((tool.get("function") or tool).get("name")) for tool in tools if _is_dict(tool)]


def _is_dict(value: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(value, dict)


def _same_json(a: str, b: str, at: int) -> bool:
    """Whether the JSON around the place holds the same in another order."""
    found = [_json_around(text, at) for text in (a, b)]
    return found[0] is not None and found[0] == found[1]


def _json_around(text: str, at: int) -> Any:  # noqa: ANN401 - JSON
    begin = text.rfind("{", 0, at + 1)
    while begin >= 0:
        try:
            return json.JSONDecoder().raw_decode(text[begin:])[0]
        except ValueError:
            begin = text.rfind("{", 0, begin) if begin else -1
    return None


def _other(
    left: tuple[tuple[str, str], ...],
    right: tuple[tuple[str, str], ...],
    number: int,
    at: int,
    *,
    last: bool,
) -> str:
    """Tell data of one user before shared data from a request's own last words."""
    rest = ["\n".join([part[number][1][at:], *(t for _, t in part[number + 1 :])])
            for part in (left, right)]  # fmt: skip
    # by words: letters take minutes
    mine, theirs = (text[:20000].split() for text in rest)
    longest = SequenceMatcher(None, mine, theirs, autojunk=False).find_longest_match()
    if len(" ".join(mine[longest.a : longest.a + longest.size])) >= SHARED_LATER:
        return "per-user data before shared data"
    if last or all("(user)" in name for name, _ in right[number:]):
        return "the request itself"
    return "edited history" if number else "different instructions"
