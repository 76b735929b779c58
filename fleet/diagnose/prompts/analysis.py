"""What requests share, what breaks it, and what each remedy would let them reuse."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from fleet.diagnose.prompts.best_order import reordered
from fleet.diagnose.prompts.breaks import Break, find_breaks
from fleet.diagnose.prompts.placement import Memory, after_first, reused
from fleet.diagnose.prompts.said_twice import said_twice
from fleet.diagnose.prompts.tokens import Prompt, Tokenizer, common_length, make_prompt
from fleet.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.diagnose.prompts.requests import Request

INTERVALS: Mapping[str, tuple[int, ...]] = {
    "llama.cpp": (256, 1024, 2048), "ik_llama.cpp": (256, 512, 1024, 2048),
    "vllm": (512, 1024, 2048, 4096),
}  # fmt: skip
INTERVAL_NAMES: Mapping[str, str] = {
    "llama.cpp": "--checkpoint-min-step", "ik_llama.cpp": "--ctx-checkpoints-interval",
    "vllm": "--prefix-cache-retention-interval",
}  # fmt: skip
WORTH = 1.02  # a change that brings less is not advised


@dataclass(frozen=True, kw_only=True, slots=True)
class BreakSeen:
    """A kind of break at one place: token position (median) and share of the requests."""

    at_token: int
    where: str
    kind: str
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """One change and the tokens a request would reuse after it."""

    change: str
    reusable_tokens_after: float
    saved_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Analysis:
    """The answer of `fleet prompts analyze`; tokens are per request, after the first."""

    requests: int
    tokenizer: str
    prompt_tokens: float
    common_prefix_tokens: int
    groups: Mapping[str, int]
    reusable: Mapping[str, float]
    breaks: tuple[BreakSeen, ...]
    repeated: tuple[tuple[str, str, int, str], ...]  # kind, where, tokens, text
    advice: tuple[Advice, ...]
    interval: tuple[str, int] | None


def analyze(
    requests: Sequence[Request],
    tokenizer: Tokenizer,
    memory: Memory,
    *,
    pp_tps: float | None = None,
) -> Analysis:
    """Analyze requests in the order in which they were sent.

    `pp_tps` turns tokens into seconds. Raises `UserError` without requests.
    """
    if not requests:
        fix = "capture some: `fleet prompts capture NAME on`"
        raise UserError("there are no requests", fix=fix)
    prompts = [make_prompt(request, tokenizer) for request in requests]
    shared = shared_length(prompts)
    better = [make_prompt(request, tokenizer) for request in reordered(requests)]
    reusable = _variants(prompts, better, memory, shared)
    mean = sum(len(prompt.tokens) for prompt in prompts) / len(prompts)
    return Analysis(
        requests=len(requests),
        tokenizer=tokenizer.name,
        prompt_tokens=round(mean, 2),
        common_prefix_tokens=shared,
        groups=_groups(prompts),
        reusable=reusable,
        breaks=_breaks(prompts),
        repeated=_repeated(requests, tokenizer),
        advice=_advice(reusable, memory, pp_tps),
        interval=_interval(memory, shared),
    )


def shared_length(prompts: Sequence[Prompt]) -> int:
    """Return how many tokens all prompts begin with alike."""
    first = prompts[0].tokens
    return min(common_length(first, prompt.tokens) for prompt in prompts)


def _groups(prompts: Sequence[Prompt]) -> dict[str, int]:
    """Return the common prefix of each named group of more than one request."""
    members: dict[str, list[Prompt]] = defaultdict(list)
    for prompt in prompts:
        members[prompt.request.group].append(prompt)
    return {name: shared_length(some) for name, some in members.items() if name and len(some) > 1}


def _variants(
    prompts: Sequence[Prompt], better: Sequence[Prompt], memory: Memory, shared: int
) -> dict[str, float]:
    """Return the reusable tokens of each launch and order; one rule decides them all."""
    found = {"default": after_first(reused(prompts, memory))}
    found["primed"] = after_first(reused(prompts, memory, primed=shared))
    if memory.engine != "vllm" and memory.window:
        found["swa_full"] = after_first(reused(prompts, replace(memory, full_window=True)))
        unified = replace(memory, slots=max(4, memory.slots), unified=True)
        found["unified"] = after_first(reused(prompts, unified))
    if memory.window or memory.recurrent:
        for step in INTERVALS[memory.engine]:
            stepped = replace(memory, spacing=step, interval=step)
            found[f"interval={step}"] = after_first(reused(prompts, stepped))
    again = shared_length(better)
    found["reordered"] = after_first(reused(better, memory))
    found["reordered+primed"] = after_first(reused(better, memory, primed=again))
    return found


def _breaks(prompts: Sequence[Prompt]) -> tuple[BreakSeen, ...]:
    """Return the kinds of break between requests that follow each other."""
    seen: dict[tuple[str, str], list[int]] = defaultdict(list)
    for before, after in pairwise(prompts):
        first = common_length(before.tokens, after.tokens)
        for number, found in enumerate(find_breaks(before.request, after.request)):
            at = max(first, _token_of(after, found)) if number else first
            seen[found.where, found.kind].append(at)
    pairs = max(1, len(prompts) - 1)
    rows = [
        BreakSeen(
            at_token=int(median(places)), where=where, kind=kind,
            share=round(min(1.0, len(places) / pairs), 4),
        )
        for (where, kind), places in seen.items()
    ]  # fmt: skip
    return tuple(sorted(rows, key=lambda row: (row.at_token, -row.share)))


def _token_of(prompt: Prompt, found: Break) -> int:
    """Return about which token of `prompt` the break lies at: by its share of the text."""
    part = dict(prompt.request.texts).get(found.where, "")
    at = max(0, prompt.text.find(part[:200])) + found.offset
    return round(len(prompt.tokens) * at / max(1, len(prompt.text)))


def _repeated(
    requests: Sequence[Request], tokenizer: Tokenizer
) -> tuple[tuple[str, str, int, str], ...]:
    found = said_twice(requests[0])
    return tuple(
        (one.kind, one.where, len(tokenizer.tokenize(one.text)), one.text) for one in found
    )


CHANGES: Mapping[str, str] = {
    "primed": "prime the shared prefix (`fleet prompts prime NAME`, `shared_prefix:`)",
    "swa_full": "keep the full window (`swa_full: true`), for memory and some speed",
    "unified": "four slots with one unified cache (`parallel: 4`, `kv_unified: true`)",
    "reordered": "put what all requests share first and what one has last",
    "reordered+primed": "put what all share first, and prime it",
}


def _advice(
    reusable: Mapping[str, float], memory: Memory, pp_tps: float | None
) -> tuple[Advice, ...]:
    """Return the changes that bring more than nothing, the best first."""
    now = reusable["default"]
    rows = [
        Advice(
            change=CHANGES.get(name) or _interval_change(name, memory),
            reusable_tokens_after=tokens,
            saved_s=round((tokens - now) / pp_tps, 3) if pp_tps else None,
        )
        for name, tokens in reusable.items()
        if name != "default" and tokens > max(now * WORTH, now + 1)
    ]
    return tuple(sorted(rows, key=lambda row: -row.reusable_tokens_after))


def _interval_change(name: str, memory: Memory) -> str:
    return f"{INTERVAL_NAMES[memory.engine]} {name.partition('=')[2]} (`checkpoint_interval`)"


def _interval(memory: Memory, shared: int) -> tuple[str, int] | None:
    """Return the option and value that fit the shared prefix: half of it, a power of two."""
    if not (memory.window or memory.recurrent) or memory.rewinds or shared < 2:  # noqa: PLR2004
        return None
    value = 1 << ((shared // 2).bit_length() - 1)
    return INTERVAL_NAMES[memory.engine], max(64, value)


def analysis_json(found: Analysis, *, show_text: bool) -> dict[str, Any]:
    """Return the contract's object; prompt text only when asked for."""
    return {
        "requests": found.requests,
        "tokenizer": found.tokenizer,
        "estimated": found.tokenizer == "estimate",
        "prompt_tokens": found.prompt_tokens,
        "common_prefix_tokens": found.common_prefix_tokens,
        "groups": dict(found.groups),
        "reusable_tokens": dict(found.reusable),
        "breaks": [
            {"at_token": row.at_token, "where": row.where, "kind": row.kind, "share": row.share}
            for row in found.breaks
        ],
        "said_twice": [
            {"kind": kind, "where": where, "tokens": tokens} | ({"text": text} if show_text else {})
            for kind, where, tokens, text in found.repeated
        ],
        "interval": {"option": found.interval[0], "value": found.interval[1]}
        if found.interval
        else None,
        "advice": [
            {
                "change": row.change,
                "reusable_tokens_after": row.reusable_tokens_after,
                "saved_s": row.saved_s,
            }
            for row in found.advice
        ],
    }
