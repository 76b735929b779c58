"""The prompt that requests share, as the server reads it, and endings that differ."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

from fleet.diagnose.prompts.tokens import common
from fleet.diagnose.prompts.variants import SLACK_SHARE, SLACK_TOKENS
from fleet.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fleet.profiles.kinds import SharedPrefix

WORDS = ("north", "river", "amber", "seven", "window", "quiet", "stone", "market")
SAMPLE = 64  # words, to see how many tokens a word has


class PromptServer(Protocol):
    """What priming asks of a running llama-server; raises `OutsideError`."""

    def slots(self) -> Sequence[Mapping[str, Any]]:
        """Return GET /slots."""
        ...

    def tokenize(self, text: str) -> Sequence[int]:
        """Return the token ids of `text` as a prompt: special tokens parsed, BOS added."""
        ...

    def apply_template(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the prompt that the model's own template makes of `messages`."""
        ...

    def completion(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer of POST /completion."""
        ...

    def chat(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer of POST /v1/chat/completions."""
        ...

    def slot_action(self, slot: int, action: str, filename: str) -> Mapping[str, Any]:
        """Return the answer of POST /slots/SLOT?action=save|restore."""
        ...


def shared_messages(
    prefix: SharedPrefix, read_text: Callable[[str], str]
) -> tuple[Mapping[str, str], ...]:
    """Return the shared part as messages whose last ends where requests begin to differ."""
    if prefix.messages:
        return prefix.messages
    if prefix.system is not None:
        return ({"role": "system", "content": prefix.system},)
    return ({"role": "text", "content": read_text(prefix.file or "")},)


def shared_tokens(
    messages: Sequence[Mapping[str, str]], raw: bool, server: PromptServer
) -> tuple[int, ...]:
    """Return the tokens that two requests with different endings have in common.

    Both endings are tokenized with the prefix, since a token can span the boundary.
    """
    prompts = (_prompt(messages, raw, server, tail) for tail in ("Alpha one", "72 zeta"))
    first, second = (server.tokenize(prompt) for prompt in prompts)
    return tuple(common(first, second))


def not_in_front(
    messages: Sequence[Mapping[str, str]], tokens: Sequence[int], server: PromptServer
) -> str:
    """Say so when the prompt that a template makes does not begin with the shared text."""
    text = "\n".join(message["content"] for message in messages)
    wanted = len(server.tokenize(text))
    if len(tokens) >= (1 - SLACK_SHARE) * wanted - SLACK_TOKENS:
        return ""
    return (
        f"only {len(tokens)} tokens stand in front of what differs, the shared text has {wanted}: "
        "the chat template leaves it out or puts something else first; correct `chat_template`, "
        "or move what changes behind the shared text"
    )


def _prompt(
    messages: Sequence[Mapping[str, str]], raw: bool, server: PromptServer, tail: str
) -> str:
    if raw:
        return messages[0]["content"] + tail
    return server.apply_template(with_tail(messages, tail))


def with_tail(messages: Sequence[Mapping[str, str]], tail: str) -> list[dict[str, str]]:
    """Return `messages` with what differs: in the last user message, or as the next one."""
    told = [dict(message) for message in messages]
    if told[-1].get("role") == "user":
        told[-1]["content"] += tail
        return told
    return [*told, {"role": "user", "content": tail}]


def tail_text(server: PromptServer, seed: int, tokens: int) -> str:
    """Return an ending of `seed`'s own of that many tokens or a few more."""
    words = math.ceil(tokens * SAMPLE / len(server.tokenize(_words(1, SAMPLE))))
    while len(server.tokenize(text := f"{seed} {_words(seed, words)}")) < tokens:
        words += SAMPLE
    return text


def _words(seed: int, words: int) -> str:
    return " ".join(WORDS[(seed * 5 + k * (seed + 3)) % len(WORDS)] for k in range(words))


def tail_tokens(server: PromptServer, seed: int, count: int) -> list[int]:
    """Return an ending of `seed`'s own of just so many tokens."""
    return list(server.tokenize(_words(seed, count)))[1 : count + 1]


def cached_tokens(answer: Mapping[str, Any]) -> int:
    """Return what was reused, as an answer tells it; raises `OutsideError` when none does.

    Builds before October 2025 and ik_llama.cpp tell only what they had to read.
    """
    timings, usage = answer.get("timings") or {}, answer.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    for told in (details.get("cached_tokens"), timings.get("cache_n")):
        if isinstance(told, int):
            return told
    whole, read = (
        answer.get("tokens_evaluated", usage.get("prompt_tokens")),
        timings.get("prompt_n"),
    )
    if isinstance(whole, int) and isinstance(read, int):
        return max(0, whole - read)
    raise OutsideError(
        "the answer does not say what was reused: no `timings.cache_n`",
        fix="use a llama.cpp build of October 2025 or later",
    )
