"""From a request to tokens, and where its user messages begin."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.diagnose.prompts.requests import Request

# where a message begins in the templates that engines ship
_OPENINGS = re.compile(
    r"<\|im_start\|>|<start_of_turn>|<\|start_header_id\|>|\[INST\]|<\|(?:user|User|start)\|>"
    "|<[|\uff5c]User[|\uff5c]>"
    r"|<\|turn>|<\|message_user\|>"
)
_USER_OPENINGS = re.compile(
    r"<\|im_start\|>user|<start_of_turn>user|<\|start_header_id\|>user|\[INST\]"
    r"|<\|(?:user|User)\|>|<[|\uff5c]User[|\uff5c]>|<\|start\|>user|<\|turn>user|<\|message_user\|>"
)
_PIECES = re.compile(r"\s?\w{1,5}|[^\w\s]|\s")


class Tokenizer(Protocol):
    """What turns a request into the engine's prompt and that into tokens."""

    @property
    def name(self) -> str:
        """`engine`, `xllamacpp` or `estimate`."""
        ...

    def render(self, request: Request) -> str:
        """Return the prompt text that the model's template makes."""
        ...

    def tokenize(self, text: str) -> Sequence[int]:
        """Return the tokens of `text`."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """No engine at hand: ChatML around messages, about one token for five letters."""

    name: str = "estimate"

    def render(self, request: Request) -> str:
        """Return a ChatML prompt; tools come first, as most templates put them."""
        if request.prompt is not None:
            return request.prompt
        tools = f"<|im_start|>tools\n{request.tools}<|im_end|>\n" if request.tools else ""
        turns = (f"<|im_start|>{m.role}\n{m.content}<|im_end|>\n" for m in request.messages)
        return tools + "".join(turns) + "<|im_start|>assistant\n"

    def tokenize(self, text: str) -> Sequence[int]:
        """Return a number for each piece; equal pieces, equal numbers."""
        return [hash(piece) for piece in _PIECES.findall(text)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """A request as the engine reads it; `user_starts` are token positions."""

    request: Request
    text: str
    tokens: tuple[int, ...]
    user_starts: tuple[int, ...] = ()


def make_prompt(request: Request, tokenizer: Tokenizer) -> Prompt:
    """Return the prompt of `request` with the token positions of its user messages."""
    text = tokenizer.render(request)
    tokens = tuple(tokenizer.tokenize(text))
    openings = _USER_OPENINGS.finditer(text) if request.rendered else ()
    starts = [
        len(common(tokens, tuple(tokenizer.tokenize(text[: opened.start()]))))
        for opened in openings
    ]
    at = 0
    for message in request.messages:
        found = text.find(message.content, at) if message.content else -1
        if found < 0:
            continue
        opening = list(_OPENINGS.finditer(text, at, found))
        begin = opening[-1].start() if opening else found
        at = found + len(message.content)
        if message.role == "user":
            starts.append(len(common(tokens, tuple(tokenizer.tokenize(text[:begin])))))
    return Prompt(request=request, text=text, tokens=tokens, user_starts=tuple(starts))


def common(a: Sequence[int], b: Sequence[int]) -> Sequence[int]:
    """Return what two token sequences begin with alike."""
    return a[: common_length(a, b)]


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many tokens two sequences begin with alike; by halving, not one by one."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
