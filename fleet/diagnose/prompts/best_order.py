"""The order of blocks that lets requests share most: what all have first, what one has last."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.diagnose.prompts.requests import Message, Request

SPLIT = "\n\n"
SHARED = 0.9  # of the requests have a block word for word


def reordered(requests: Sequence[Request]) -> tuple[Request, ...]:
    """Return the requests with the blocks that most share moved to the front.

    Blocks are paragraphs, or lines where a text has no paragraphs; they stay within their
    message, and within each of the two halves they keep their order.
    """
    counts = block_counts(requests)
    enough = SHARED * len(requests)
    return tuple(_reorder(request, counts, enough) for request in requests)


def block_counts(requests: Sequence[Request]) -> Counter[tuple[int, str]]:
    """Count in how many places each block of a message stands."""
    counts: Counter[tuple[int, str]] = Counter()
    for request in requests:
        for place, text in texts_of(request):
            counts.update({(place, block) for block in blocks(text)})
    return counts


def texts_of(request: Request) -> list[tuple[int, str]]:
    """Return the texts of a request with the numbers of their messages."""
    if request.prompt is not None:
        return [(0, request.prompt)]
    return [(number, message.content) for number, message in enumerate(request.messages)]


def blocks(text: str) -> list[str]:
    """Return the paragraphs of `text`, or its lines where it has no paragraphs."""
    separator = separator_of(text)
    return text.split(separator)


def separator_of(text: str) -> str:
    """Return what parts the blocks of `text`."""
    return SPLIT if SPLIT in text else "\n"


def _reorder(request: Request, counts: Counter[tuple[int, str]], enough: float) -> Request:
    if request.prompt is not None:
        return replace(request, prompt=_sorted(request.prompt, 0, counts, enough))
    messages: list[Message] = [
        replace(message, content=_sorted(message.content, number, counts, enough))
        for number, message in enumerate(request.messages)
    ]
    return replace(request, messages=tuple(messages))


def _sorted(text: str, place: int, counts: Counter[tuple[int, str]], enough: float) -> str:
    parts = blocks(text)
    shared = [block for block in parts if counts[place, block] >= enough]
    own = [block for block in parts if counts[place, block] < enough]
    return separator_of(text).join([*shared, *own])
