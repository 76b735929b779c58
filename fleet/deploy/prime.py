"""Make the shared prefix of a deployment's requests reusable on every slot.

| found                                     | then                                             |
|-------------------------------------------|--------------------------------------------------|
| slot files were restored and are reused   | nothing more: `restored`                         |
| a second request reuses the prefix anyway | nothing: `not-needed` (only with `look_before`)  |
| else                                      | send the prefix to each slot and probe: `primed` |
| nothing is reused even of the same prompt | `cannot-help`: the cache is off or cannot rewind |

The prefix is sent alone because a request that *is* the prefix leaves a context checkpoint
at its very end, and that one survives requests that differ after it.

The proof is as short as it can be: a tail just longer than a ubatch pushes the prefix out of
the window, then a request of another ending has to come back to the prefix's end. That is
shown on one slot; the others are asked whether they hold the prefix.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fleet.errors import OutsideError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fleet.deploy.prepare import Prepared
    from fleet.profiles.kinds import SharedPrefix

Outcome = Literal["primed", "restored", "not-needed", "cannot-help"]
ENOUGH = 0.99  # of the shared tokens
# a checkpoint lies up to five tokens before the end, and a template's words lie between: of
# a short prefix that is more than one in a hundred
SLACK_TOKENS = 20  # what opens a message is shared by all and lies after the checkpoint
TAIL_TOKENS = 600  # longer than the default ubatch: a shorter tail reuses by luck
ANY_SLOT = -1
SHORT_TAIL = 8  # tokens; what a request adds that only asks how much is reused
DEFAULT_UBATCH = 512
WORDS = ("north", "river", "amber", "seven", "window", "quiet", "stone", "market")


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


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotReuse:
    """What the last probe of a slot found: tokens reused of those that could be."""

    slot: int
    reused: int
    possible: int

    @property
    def enough(self) -> bool:
        """Whether (almost) all of the shared part was reused."""
        lost = self.possible - self.reused
        return self.reused > 0 and lost <= max(SLACK_TOKENS, (1 - ENOUGH) * self.possible)


@dataclass(frozen=True, kw_only=True, slots=True)
class PrimeReport:
    """What was done, what it brought, and why."""

    outcome: Outcome
    prefix_tokens: int
    slots: tuple[SlotReuse, ...]
    why: str
    before: int = 0  # tokens that the second request reused before anything was done
    saved: bool = False  # slot files were written

    @property
    def reused(self) -> int:
        """The worst slot's reused tokens."""
        return min((slot.reused for slot in self.slots), default=0)


def prime(
    prefix: SharedPrefix,
    server: PromptServer,
    *,
    read_text: Callable[[str], str],
    slot_files: bool = False,
    tail_tokens: int = TAIL_TOKENS,
    look_before: bool = True,
) -> PrimeReport:
    """Prime `server` with `prefix` where that helps, and prove it by differing requests.

    `read_text` reads `prefix.file`. `slot_files` says that the server has a folder for
    slot files (`--slot-save-path`): they are tried first and written afterwards.
    `look_before` measures what is reused without priming, which reads two whole prompts;
    without it a fresh server is primed at once.
    Raises `OutsideError` when the server stops answering, `UserError` for an empty prefix.
    """
    messages = shared_messages(prefix, read_text)
    tokens = shared_tokens(messages, prefix.file is not None, server)
    if not tokens:
        raise UserError("the shared prefix is empty", where="shared_prefix", fix="give it text")
    count = _slot_count(server)
    names = [_slot_file(tokens, slot) for slot in range(count)]
    if slot_files and _restore(server, names):
        held = _proof(server, count, tokens, tail_tokens)
        if all(slot.enough for slot in held):
            return _enough("restored", held)
    before = 0
    if look_before:
        first = _first_probe(server, messages, prefix, tokens, tail_tokens)
        if first.enough:
            return _enough("not-needed", (first,))
        before = first.reused
    after = _prime_slots(server, count, tokens, tail_tokens)
    good = all(slot.enough for slot in after)
    saved = good and slot_files and _save(server, names)
    return PrimeReport(
        outcome="primed" if good else "cannot-help",
        prefix_tokens=len(tokens),
        slots=after,
        why=_WHY_PRIMED if good else _why_not(server, tokens, after, count),
        before=before,
        saved=saved,
    )


def keep_primed(
    prefix: SharedPrefix,
    server: PromptServer,
    *,
    read_text: Callable[[str], str],
    slot_files: bool = False,
    tail_tokens: int = TAIL_TOKENS,
) -> PrimeReport:
    """Look with one short request what is reused of the prefix; prime again when that fell.

    Raises as `prime` does.
    """
    tokens = shared_tokens(shared_messages(prefix, read_text), prefix.file is not None, server)
    now = _held(server, ANY_SLOT, tokens, seed=5)
    if now.enough:
        return _enough("not-needed", (now,))
    again = prime(
        prefix, server, read_text=read_text, slot_files=slot_files, tail_tokens=tail_tokens,
        look_before=False,
    )  # fmt: skip
    return replace(again, before=now.reused)


def proof_tail(settings: Mapping[str, object], *, window: int, recurrent: bool) -> int:
    """Return how long a tail must be to prove priming, in tokens.

    A cache without a window (`window` 0 or `swa_full`) goes back to any token.
    """
    if not recurrent and (not window or settings.get("swa_full") is True):
        return SHORT_TAIL
    return int(str(settings.get("ubatch_size") or DEFAULT_UBATCH)) + SHORT_TAIL


def tail_of(prepared: Prepared) -> int:
    """Return how long a tail proves priming on this model and launch, in tokens."""
    facts = prepared.model.facts if prepared.model else None
    settings = dict(prepared.launches[0].settings)
    recurrent = facts is None or facts.is_recurrent or facts.is_hybrid
    return proof_tail(settings, window=facts.n_swa if facts else 0, recurrent=recurrent)


def has_slot_files(prepared: Prepared) -> bool:
    """Whether the server keeps slots in a folder (`--slot-save-path`)."""
    return bool(dict(prepared.launches[0].settings).get("slot_save_path"))


def _enough(outcome: Outcome, slots: tuple[SlotReuse, ...]) -> PrimeReport:
    worst = min(slot.reused for slot in slots)
    return PrimeReport(
        outcome=outcome, prefix_tokens=slots[0].possible, slots=slots, why=_WHY_ENOUGH[outcome],
        before=worst,
    )  # fmt: skip


def _slot_count(server: PromptServer) -> int:
    """Return the number of slots; one where the server does not tell."""
    try:
        return max(1, len(server.slots()))
    except OutsideError:
        return 1


_WHY_ENOUGH: Mapping[Outcome, str] = {
    "not-needed": "a second request reuses the shared part by itself: it ends where this build "
    "makes a checkpoint, or the model can rewind to any token",
    "restored": "the saved slots were restored and reuse the shared part",
}
_WHY_PRIMED = "the prefix was sent to each slot; requests that differ after it now reuse it"


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
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return tuple(pair[0] for pair in same)


def _prompt(
    messages: Sequence[Mapping[str, str]], raw: bool, server: PromptServer, tail: str
) -> str:
    if raw:
        return messages[0]["content"] + tail
    return server.apply_template(_with_tail(messages, tail))


def _with_tail(messages: Sequence[Mapping[str, str]], tail: str) -> list[dict[str, str]]:
    """Return `messages` with what differs: in the last user message, or as the next one."""
    told = [dict(message) for message in messages]
    if told[-1].get("role") == "user":
        told[-1]["content"] += tail
        return told
    return [*told, {"role": "user", "content": tail}]


def _tail(seed: int, words: int) -> str:
    return " ".join(WORDS[(seed * 5 + k * (seed + 3)) % len(WORDS)] for k in range(words))


def _first_probe(
    server: PromptServer,
    messages: Sequence[Mapping[str, str]],
    prefix: SharedPrefix,
    tokens: Sequence[int],
    tail_tokens: int,
) -> SlotReuse:
    """Send two requests as clients do, each with an ending of its own; look at the second."""
    cached = 0
    for seed in (1, 2):
        tail = f"{seed} {_tail(seed, tail_tokens)}"
        if prefix.file is not None:
            body: dict[str, Any] = {"prompt": messages[0]["content"] + tail, "n_predict": 1}
            answer = server.completion(body | {"cache_prompt": True})
        else:
            answer = server.chat({"messages": _with_tail(messages, tail), "max_tokens": 1})
        cached = _cached(answer)
    return SlotReuse(slot=0, reused=min(cached, len(tokens)), possible=len(tokens))


def _prime_slots(
    server: PromptServer, count: int, tokens: Sequence[int], tail_tokens: int
) -> tuple[SlotReuse, ...]:
    """Send the prefix alone to each slot, and prove that it helps."""
    for slot in range(count):
        _ask(server, slot, tokens)
    return _proof(server, count, tokens, tail_tokens)


def _proof(
    server: PromptServer, count: int, tokens: Sequence[int], tail_tokens: int
) -> tuple[SlotReuse, ...]:
    """Push the prefix out of the first slot's window and come back; look at the others."""
    _ask(server, 0, [*tokens, *_tail_tokens(server, 3, tail_tokens)])
    return tuple(_held(server, slot, tokens, seed=4) for slot in range(count))


def _held(server: PromptServer, slot: int, tokens: Sequence[int], *, seed: int) -> SlotReuse:
    """Ask with a short ending of its own what `slot` holds of the prefix."""
    cached = _ask(server, slot, [*tokens, *_tail_tokens(server, seed, SHORT_TAIL)])
    return SlotReuse(slot=slot, reused=min(cached, len(tokens)), possible=len(tokens))


def _tail_tokens(server: PromptServer, seed: int, count: int) -> list[int]:
    return list(server.tokenize(_tail(seed, count)))[1 : count + 1]


def _ask(server: PromptServer, slot: int, tokens: Sequence[int]) -> int:
    """Send `tokens` to `slot` (-1: any) and return how many of them were reused."""
    body = {"prompt": list(tokens), "n_predict": 1, "cache_prompt": True, "id_slot": slot}
    return _cached(server.completion(body))


def _why_not(
    server: PromptServer, tokens: Sequence[int], after: Sequence[SlotReuse], count: int
) -> str:
    _ask(server, 0, tokens)
    if _ask(server, 0, tokens) == 0:
        return "the server reuses nothing, not even of the same prompt: its prompt cache is off"
    if count > 1 and any(slot.enough for slot in after):
        return "some slots lost the prefix again: their idle cache was moved or cleared"
    return (
        "this model or build cannot rewind to the end of the prefix (recurrent state without "
        "rollback, or no checkpoint kept there)"
    )


def _cached(answer: Mapping[str, Any]) -> int:
    """Return what was reused, as `timings` or `usage` tell; raises `OutsideError` else."""
    timings = answer.get("timings")
    details = (answer.get("usage") or {}).get("prompt_tokens_details") or {}
    if isinstance(details.get("cached_tokens"), int):
        return int(details["cached_tokens"])
    if not isinstance(timings, dict) or "cache_n" not in timings:
        raise OutsideError(
            "the answer has no `timings.cache_n`: this build does not say what it reused",
            fix="use a llama.cpp build of October 2025 or later",
        )
    return int(timings["cache_n"])


def _slot_file(tokens: Sequence[int], slot: int) -> str:
    digest = hashlib.sha256(json.dumps(list(tokens)).encode()).hexdigest()[:16]
    return f"fleet-prefix-{digest}-{slot}.bin"


def _restore(server: PromptServer, names: Sequence[str]) -> bool:
    """Restore each slot from its file; False when one is missing or of another geometry."""
    try:
        return all(
            server.slot_action(slot, "restore", name).get("n_restored", 0)
            for slot, name in enumerate(names)
        )
    except OutsideError:
        return False


def _save(server: PromptServer, names: Sequence[str]) -> bool:
    try:
        return all(
            server.slot_action(slot, "save", name).get("n_saved", 0)
            for slot, name in enumerate(names)
        )
    except OutsideError:
        return False
