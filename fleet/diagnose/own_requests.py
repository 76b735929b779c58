"""The requests in a deployment's log that fleet sent itself: they are no traffic to judge.

`up` sends the first request of a start, of a few tokens and without the cache, `check` the
same again; priming asks for one token. What the next request found in the slot is fleet's
then too, so its lines about the past are left out with them. Known are the slot lines of
llama.cpp (`id  0 | task 11 |`); of other logs nothing is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_SLOT = re.compile(r"\bid +(\d+) \| task +(-?\d+) \|")
_CACHE = re.compile(r"\bsrv +(?:get_availabl|prompt_save|load|update): ")
_PROMPT = re.compile(r"prompt eval time = .*? ms / +(\d+) tokens")
_EVAL = re.compile(r"^(?!.*prompt).*eval time = .*? ms / +(\d+) (?:tokens|runs)")
_PAST = re.compile(r"checking checkpoint|forcing full prompt|erased invalidated")
_RELEASED = re.compile(r"slot +release: ")


@dataclass(slots=True)
class _Request:
    """One request's lines so far; `past` are those about what the slot held."""

    number: int
    past: list[int]
    lines: list[int] = field(default_factory=list)
    processed: int = 0
    generated: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnRequests:
    """How many they are, and the numbers (from 1) of the lines that tell of them."""

    count: int
    lines: frozenset[int]


def own_requests(  # noqa: C901 - one line a kind of line
    lines: Iterable[str], *, first_tokens: int, primed: bool
) -> OwnRequests:
    """Find fleet's requests: `first_tokens` a first one generates, `primed` with a prefix."""
    slots: dict[int, _Request] = {}
    chosen: dict[int, list[int]] = {}
    after_own: set[int] = set()
    found: set[int] = set()
    count = first_prompt = last = 0
    for at, line in enumerate(lines, start=1):
        if named := _SLOT.search(line):
            last, number = int(named[1]), int(named[2])
            if number < 0:
                chosen.setdefault(last, []).append(at)
                continue
            if last in chosen or last not in slots or slots[last].number != number:
                slots[last] = _Request(number=number, past=chosen.pop(last, []))
        elif last in chosen and _CACHE.search(line):
            chosen[last].append(at)
            continue
        if (request := slots.get(last)) is None:
            continue
        if named:
            (request.past if _PAST.search(line) else request.lines).append(at)
        _figures(request, line)
        if not (named and _RELEASED.search(line)):
            continue
        first = 0 < request.generated <= first_tokens
        if first and request.number == 0:
            first_prompt = request.processed
        own = first and request.processed == first_prompt
        if own or (primed and request.generated == 1):
            count += 1
            found.update(request.lines, request.past)
            after_own.add(last)
        elif last in after_own:
            found.update(request.past)
            after_own.remove(last)
    return OwnRequests(count=count, lines=frozenset(found))


def _figures(request: _Request, line: str) -> None:
    if read := _PROMPT.search(line):
        request.processed = int(read[1])
    elif made := _EVAL.search(line):
        request.generated = int(made[1])
