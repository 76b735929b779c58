"""Move what changes inside a block (a time, a counter, a name) behind what all have in common.

Whole blocks are `best_order`'s; here a block that is no request's own but for some words
becomes a shared one, and those words stand at the end of its message.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from fleet.diagnose.prompts.best_order import (
    SHARED,
    block_counts,
    blocks,
    reordered,
    separator_of,
    texts_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.diagnose.prompts.requests import Request

ASKED = 32  # requests that say which words are common
LONGEST = 2000  # words of a block that is looked into
LEAST = 5  # words in common, and as many as those that differ
_WORD = re.compile(r"\S+\s*|\s+")
Place = tuple[int, int]  # of the message, of the block among those that differ


def values_last(requests: Sequence[Request]) -> tuple[Request, ...] | None:
    """Return the requests with changing words last, in the best order; None without any.

    The last user message is the request itself and stays as it is.
    """
    counts = block_counts(requests)
    shared = {key for key, count in counts.items() if count >= SHARED * len(requests)}
    known = _templates(requests, shared)
    if not known:
        return None
    return reordered(tuple(_moved(request, shared, known) for request in requests))


def _own(request: Request, shared: set[tuple[int, str]]) -> dict[Place, str]:
    """Return the blocks that differ, by place."""
    found: dict[Place, str] = {}
    last = len(request.messages) - 1
    for number, text in texts_of(request):
        if number == last and number and request.messages[number].role == "user":
            continue
        own = (block for block in blocks(text) if (number, block) not in shared)
        found.update({(number, at): block for at, block in enumerate(own)})
    return found


def _templates(
    requests: Sequence[Request], shared: set[tuple[int, str]]
) -> Mapping[Place, list[str]]:
    """Return the words that the blocks of a place have in common where these are most."""
    seen: dict[Place, list[list[str]]] = defaultdict(list)
    for request in requests[:ASKED]:
        for place, block in _own(request, shared).items():
            seen[place].append(_WORD.findall(block)[:LONGEST])
    asked = min(ASKED, len(requests))
    found = {}
    for place, some in seen.items():
        common = some[0]
        for words in some[1:]:
            common = [common[at] for at, _ in _matches(common, words)]
        longest = max(map(len, some))
        if len(some) >= max(2, SHARED * asked) and len(common) >= max(LEAST, longest / 2):
            found[place] = common
    return found


def _matches(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Return the places of equal words, in order."""
    found = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    return [(one.a + step, one.b + step) for one in found for step in range(one.size)]


def _moved(
    request: Request, shared: set[tuple[int, str]], known: Mapping[Place, list[str]]
) -> Request:
    own = _own(request, shared)
    texts = dict(texts_of(request))
    for number, text in texts.items():
        parts, values, at = [], [], -1
        for block in blocks(text):
            at += (number, block) not in shared
            common = known.get((number, at)) if own.get((number, at)) == block else None
            words = _WORD.findall(block)
            same = _matches(common, words) if common else []
            if common is None or len(same) < len(common):
                parts.append(block)
                continue
            kept = {place for _, place in same}
            parts.append("".join(common))
            values.append("".join(word for place, word in enumerate(words) if place not in kept))
        texts[number] = separator_of(text).join([*parts, *values])
    if request.prompt is not None:
        return replace(request, prompt=texts[0])
    messages = (replace(one, content=texts[at]) for at, one in enumerate(request.messages))
    return replace(request, messages=tuple(messages))
