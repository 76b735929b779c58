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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from fleet.deploy.shared_prompt import (
    cached_tokens,
    not_in_front,
    shared_messages,
    shared_tokens,
    tail_text,
    tail_tokens,
    with_tail,
)
from fleet.diagnose.prompts.variants import CLOSE, SLACK_SHARE, SLACK_TOKENS
from fleet.errors import OutsideError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fleet.deploy.shared_prompt import PromptServer
    from fleet.diagnose.prompts.placement import Memory
    from fleet.profiles.kinds import SharedPrefix
    from fleet.profiles.settings_table import SettingScalar

Outcome = Literal["primed", "held", "restored", "not-needed", "cannot-help"]
ANY_SLOT = -1
SHORT_TAIL = 8  # tokens; what a request adds that only asks how much is reused
JOIN = 16  # tokens that a text may lose where it meets the prefix
CHOSEN: Mapping[Outcome, str] = {
    "primed": "primed", "held": "primed", "restored": "slot file", "not-needed": "default",
    "cannot-help": "none",
}  # fmt: skip
INSTEAD: Mapping[str, str] = {
    "kv_unified": "split", "swa_full": "swa_full",
    "checkpoint_interval": f"primed+interval={CLOSE}",
}  # fmt: skip


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
    if wrong := not_in_front(messages, tokens, server):
        return PrimeReport(
            outcome="cannot-help", prefix_tokens=len(tokens), slots=(), why=wrong
        )  # fmt: skip
    asked = _slots_to_ask(server, memory)
    length = proof_tail(memory)
    names = [_slot_file(tokens, slot) for slot in asked]
    slot_files = slot_files and ANY_SLOT not in asked
    if slot_files and _restore(server, names):
        held = _proof(server, asked, tokens, length)
        if all(slot.enough for slot in held):
            return _enough("restored", held)
    before = 0
    if look_before:
        first, second = _look(server, messages, prefix, tokens, length + JOIN)
        if second.enough:
            primed = first.enough and not _by_itself(prefix, memory)
            return _enough("held" if primed else "not-needed", (second,))
        before = second.reused
    for slot in asked:
        _ask(server, slot, tokens)
    after = _proof(server, asked, tokens, length)
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


def _look(
    server: PromptServer,
    messages: Sequence[Mapping[str, str]],
    prefix: SharedPrefix,
    tokens: Sequence[int],
    length: int,
) -> tuple[SlotReuse, SlotReuse]:
    """Send two requests as clients do, each with an ending of its own."""
    found = []
    for seed in (1, 2):
        tail = tail_text(server, seed, length)
        if prefix.file is not None:
            body: dict[str, Any] = {"prompt": messages[0]["content"] + tail, "n_predict": 1}
            answer = server.completion(body)
        else:
            answer = server.chat({"messages": with_tail(messages, tail), "max_tokens": 1})
        found.append(_reuse(0, cached_tokens(answer), tokens))
    return found[0], found[1]


def _proof(
    server: PromptServer, slots: Sequence[int], tokens: Sequence[int], length: int
) -> tuple[SlotReuse, ...]:
    """Push the prefix out of the first slot's window and come back; look at the others."""
    _ask(server, slots[0], [*tokens, *tail_tokens(server, 3, length)])
    return tuple(_held(server, slot, tokens, seed=4) for slot in slots)


def _reuse(slot: int, cached: int, tokens: Sequence[int]) -> SlotReuse:
    return SlotReuse(slot=slot, reused=min(cached, len(tokens)), possible=len(tokens))


def _held(server: PromptServer, slot: int, tokens: Sequence[int], *, seed: int) -> SlotReuse:
    """Ask with a short ending of its own what `slot` holds of the prefix."""
    return _reuse(
        slot, _ask(server, slot, [*tokens, *tail_tokens(server, seed, SHORT_TAIL)]), tokens
    )


def _ask(server: PromptServer, slot: int, tokens: Sequence[int]) -> int:
    """Send `tokens` to `slot` (-1: any) and return how many of them were reused."""
    body = {"prompt": list(tokens), "n_predict": 1, "id_slot": slot}
    return cached_tokens(server.completion(body))


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
