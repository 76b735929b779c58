"""Make the shared prefix of a deployment's requests reusable on every slot.

| found                                     | then                                             |
|-------------------------------------------|--------------------------------------------------|
| slot files were restored and are reused   | nothing more: `restored`                         |
| a second request reuses the prefix anyway | nothing: `not-needed` (only with `look_before`)  |
| ... because it was primed before          | nothing: `held`                                  |
| else                                      | send the prefix to each slot and probe: `primed` |
| less is reused afterwards                 | `cannot-help` (`primed` from a half on): why,    |
|                                           | and which setting would help                     |

The prefix is sent alone because a request that *is* the prefix leaves a context checkpoint
at its very end, and that one survives requests that differ after it.

The proof is as short as it can be: a tail just longer than a ubatch pushes the prefix out of
the window, then a request of another ending has to come back to the prefix's end. That is
shown on one slot; the others are asked whether they hold the prefix. Slots of one unified
pool are not asked by number: an idle one is moved to the prompt cache in RAM when another
works, and the server finds it there.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fleet.diagnose.prompts.placement import Memory, memory_of
from fleet.diagnose.prompts.tokens import common
from fleet.diagnose.prompts.variants import CLOSE, SLACK_SHARE, SLACK_TOKENS
from fleet.errors import OutsideError, UserError
from fleet.facts.known_builds import build_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.prepare import Prepared
    from fleet.facts.build_facts import BuildFacts
    from fleet.facts.model_facts import ModelFacts
    from fleet.profiles.kinds import SharedPrefix
    from fleet.profiles.settings_table import SettingScalar

Outcome = Literal["primed", "held", "restored", "not-needed", "cannot-help"]
ANY_SLOT = -1
SAMPLE = 64  # words, to see how many tokens a word has
SHORT_TAIL = 8  # tokens; what a request adds that only asks how much is reused
CHOSEN: Mapping[Outcome, str] = {
    "primed": "primed", "held": "primed", "restored": "slot file", "not-needed": "default",
    "cannot-help": "none",
}  # fmt: skip
WORDS = ("north", "river", "amber", "seven", "window", "quiet", "stone", "market")
INSTEAD: Mapping[str, str] = {
    "kv_unified": "split", "swa_full": "swa_full",
    "checkpoint_interval": f"primed+interval={CLOSE}",
}  # fmt: skip


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
        return self.reused > 0 and lost <= max(SLACK_TOKENS, SLACK_SHARE * self.possible)


@dataclass(frozen=True, kw_only=True, slots=True)
class PrimeReport:
    """What was done, what it brought, and why; `settings` are what would help instead."""

    outcome: Outcome
    prefix_tokens: int
    slots: tuple[SlotReuse, ...]
    why: str
    before: int = 0  # tokens that the second request reused before anything was done
    saved: bool = False  # slot files were written
    settings: Mapping[str, SettingScalar] = field(default_factory=dict)

    @property
    def choice(self) -> str:
        """The remedy that was chosen, in the words of `fleet prompts analyze`."""
        for name, variant in INSTEAD.items():
            if name in self.settings:
                return variant
        return CHOSEN[self.outcome]

    @property
    def reused(self) -> int:
        """The worst slot's reused tokens."""
        return min((slot.reused for slot in self.slots), default=0)


def prime(
    prefix: SharedPrefix,
    server: PromptServer,
    *,
    read_text: Callable[[str], str],
    memory: Memory,
    slot_files: bool = False,
    look_before: bool = True,
) -> PrimeReport:
    """Prime `server` with `prefix` where that helps, and prove it by differing requests.

    `read_text` reads `prefix.file`; `memory` is how the launch resumes. `slot_files` says
    that the server has a folder for slot files (`--slot-save-path`): they are tried first
    and written afterwards. `look_before` measures what is reused without priming, which
    reads two whole prompts; without it a fresh server is primed at once.
    Raises `OutsideError` when the server stops answering, `UserError` for an empty prefix.
    """
    if memory.engine == "vllm":
        return PrimeReport(outcome="cannot-help", prefix_tokens=0, slots=(), why=_WHY_VLLM)
    messages = shared_messages(prefix, read_text)
    tokens = shared_tokens(messages, prefix.file is not None, server)
    if not tokens:
        raise UserError("the shared prefix is empty", where="shared_prefix", fix="give it text")
    if wrong := _not_in_front(messages, tokens, server):
        return PrimeReport(
            outcome="cannot-help", prefix_tokens=len(tokens), slots=(), why=wrong
        )  # fmt: skip
    asked = _slots_to_ask(server, memory)
    tail_tokens = proof_tail(memory)
    names = [_slot_file(tokens, slot) for slot in asked]
    slot_files = slot_files and ANY_SLOT not in asked
    if slot_files and _restore(server, names):
        held = _proof(server, asked, tokens, tail_tokens)
        if all(slot.enough for slot in held):
            return _enough("restored", held)
    before = 0
    if look_before:
        first, second = _look(server, messages, prefix, tokens, tail_tokens)
        if second.enough:
            primed = first.enough and not _by_itself(prefix, memory)
            return _enough("held" if primed else "not-needed", (second,))
        before = second.reused
    for slot in asked:
        _ask(server, slot, tokens)
    after = _proof(server, asked, tokens, tail_tokens)
    good = all(slot.enough for slot in after)
    done = PrimeReport(
        outcome="primed", prefix_tokens=len(tokens), slots=after, why=_WHY_PRIMED, before=before,
        saved=good and slot_files and _save(server, names),
    )  # fmt: skip
    return done if good else _cannot_help(done, server, tokens, memory)


def keep_primed(
    prefix: SharedPrefix,
    server: PromptServer,
    *,
    read_text: Callable[[str], str],
    memory: Memory,
    slot_files: bool = False,
) -> PrimeReport:
    """Look with one short request what is reused of the prefix; prime again when that fell.

    Raises as `prime` does.
    """
    if memory.engine == "vllm":
        return PrimeReport(outcome="not-needed", prefix_tokens=0, slots=(), why=_WHY_VLLM)
    tokens = shared_tokens(shared_messages(prefix, read_text), prefix.file is not None, server)
    now = _held(server, ANY_SLOT, tokens, seed=5)
    if now.enough:
        return _enough("not-needed", (now,))
    again = prime(
        prefix, server, read_text=read_text, memory=memory, slot_files=slot_files,
        look_before=False,
    )  # fmt: skip
    return replace(again, before=now.reused)


def proof_tail(memory: Memory) -> int:
    """Return how long a tail must be to prove priming, in tokens: beyond the live window."""
    if memory.rewinds:
        return SHORT_TAIL
    return SHORT_TAIL + max(memory.ubatch, memory.live_cells - memory.window)


def _by_itself(prefix: SharedPrefix, memory: Memory) -> bool:
    """Whether the shared part is found unprimed: where a message begins, or anywhere."""
    at_message = prefix.system is not None or (
        bool(prefix.messages) and prefix.messages[-1].get("role") != "user"
    )
    return at_message or memory.rewinds or memory.cuts_back


def careful_memory(
    settings: Mapping[str, SettingScalar], facts: ModelFacts | None, build: BuildFacts | None
) -> Memory:
    """Return how a launch resumes; an unknown model as if it could not go back by itself."""
    memory = memory_of(settings, facts, build)
    return memory if facts else replace(memory, recurrent=True)


def memory_of_launch(prepared: Prepared) -> Memory:
    """Return how the first server of a compiled deployment resumes."""
    facts = prepared.model.facts if prepared.model else None
    return careful_memory(dict(prepared.launches[0].settings), facts, prepared.build)


def memory_of_remote(launch: LaunchConfig) -> Memory:
    """Return how a launch resumes whose model lies on another host."""
    try:
        build = build_facts(launch.engine, launch.build)
    except UserError:
        build = None
    return careful_memory(dict(launch.settings), None, build)


def has_slot_files(prepared: Prepared) -> bool:
    """Whether the server keeps slots in a folder (`--slot-save-path`)."""
    return bool(dict(prepared.launches[0].settings).get("slot_save_path"))


def _enough(outcome: Outcome, slots: tuple[SlotReuse, ...]) -> PrimeReport:
    worst = min(slot.reused for slot in slots)
    return PrimeReport(
        outcome=outcome, prefix_tokens=slots[0].possible, slots=slots, why=_WHY_ENOUGH[outcome],
        before=worst,
    )  # fmt: skip


def _slots_to_ask(server: PromptServer, memory: Memory) -> tuple[int, ...]:
    """Return the slots to prime by number; the server chooses where they share one pool."""
    if memory.unified and memory.slots > 1:
        return (ANY_SLOT,)
    try:
        return tuple(range(max(1, len(server.slots()))))
    except OutsideError:
        return (0,)


_WHY_ENOUGH: Mapping[Outcome, str] = {
    "not-needed": "priming is not needed here: a second request reuses the shared part by itself "
    "(it ends where this build makes a checkpoint, or the cache goes back to any token)",
    "held": "it was primed before, and requests reuse it",
    "restored": "the saved slots were restored and reuse the shared part",
}
_WHY_VLLM = (
    "vLLM has no slots to prime: it keeps the place where two prompts part, and states at "
    "multiples of `prefix_retention_interval`; `fleet prompts analyze` names the one that fits"
)
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
    return tuple(common(first, second))


def _not_in_front(
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


def _look(
    server: PromptServer,
    messages: Sequence[Mapping[str, str]],
    prefix: SharedPrefix,
    tokens: Sequence[int],
    tail_tokens: int,
) -> tuple[SlotReuse, SlotReuse]:
    """Send two requests as clients do, each with an ending of its own."""
    found = []
    words = math.ceil(tail_tokens * SAMPLE / len(server.tokenize(_tail(1, SAMPLE))))
    for seed in (1, 2):
        tail = f"{seed} {_tail(seed, words)}"
        if prefix.file is not None:
            body: dict[str, Any] = {"prompt": messages[0]["content"] + tail, "n_predict": 1}
            answer = server.completion(body)
        else:
            answer = server.chat({"messages": _with_tail(messages, tail), "max_tokens": 1})
        found.append(_reuse(0, _cached(answer), tokens))
    return found[0], found[1]


def _proof(
    server: PromptServer, slots: Sequence[int], tokens: Sequence[int], tail_tokens: int
) -> tuple[SlotReuse, ...]:
    """Push the prefix out of the first slot's window and come back; look at the others."""
    _ask(server, slots[0], [*tokens, *_tail_tokens(server, 3, tail_tokens)])
    return tuple(_held(server, slot, tokens, seed=4) for slot in slots)


def _reuse(slot: int, cached: int, tokens: Sequence[int]) -> SlotReuse:
    return SlotReuse(slot=slot, reused=min(cached, len(tokens)), possible=len(tokens))


def _held(server: PromptServer, slot: int, tokens: Sequence[int], *, seed: int) -> SlotReuse:
    """Ask with a short ending of its own what `slot` holds of the prefix."""
    return _reuse(
        slot, _ask(server, slot, [*tokens, *_tail_tokens(server, seed, SHORT_TAIL)]), tokens
    )


def _tail_tokens(server: PromptServer, seed: int, count: int) -> list[int]:
    return list(server.tokenize(_tail(seed, count)))[1 : count + 1]


def _ask(server: PromptServer, slot: int, tokens: Sequence[int]) -> int:
    """Send `tokens` to `slot` (-1: any) and return how many of them were reused."""
    body = {"prompt": list(tokens), "n_predict": 1, "id_slot": slot}
    return _cached(server.completion(body))


def _cannot_help(
    report: PrimeReport, server: PromptServer, tokens: Sequence[int], memory: Memory
) -> PrimeReport:
    """Say why priming did not help, or not enough, and which setting would."""
    _ask(server, report.slots[0].slot, tokens)
    if _ask(server, report.slots[0].slot, tokens) == 0:
        why = "the server reuses nothing, not even of the same prompt: its prompt cache is off"
        settings: dict[str, SettingScalar] = {"cache_prompt": True}
    elif any(slot.enough for slot in report.slots):
        why = "some slots lost the prefix again: their idle cache was moved or cleared"
        settings = {"kv_unified": False}
    elif memory.spaced and memory.spacing > memory.ubatch:
        why = "this build keeps no checkpoint at the end of the prefix so near to another"
        settings = {"checkpoint_interval": CLOSE}
    elif memory.window and not memory.full_window:
        why = "this build keeps no checkpoint at the end of the prefix"
        settings = {"swa_full": True}
    else:
        why = "this model's state cannot go back to the end of the prefix on this build; update it"
        settings = {}
    said = ", ".join(f"`{name}: {str(value).lower()}`" for name, value in settings.items())
    why += f"; {said} would help" if said else ""
    partly = report.reused >= max(report.prefix_tokens / 2, report.before + SLACK_TOKENS)
    outcome: Outcome = "primed" if partly else "cannot-help"
    return replace(report, outcome=outcome, why=why, settings=settings)


def _cached(answer: Mapping[str, Any]) -> int:
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
