"""What requests share, what breaks it, and what each remedy would let them reuse."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from fleet.diagnose.interval_option import interval_option
from fleet.diagnose.prompts.best_order import reordered
from fleet.diagnose.prompts.breaks import Break, find_breaks
from fleet.diagnose.prompts.placement import Memory, after_first, reused
from fleet.diagnose.prompts.said_twice import said_twice
from fleet.diagnose.prompts.tokens import Prompt, Tokenizer, common_length, make_prompt
from fleet.diagnose.prompts.values_last import values_last
from fleet.diagnose.prompts.variants import (
    Choice,
    Variant,
    choose,
    fitting_interval,
    order_helps,
    variants_of,
)
from fleet.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.diagnose.prompts.requests import Request
    from fleet.facts.build_facts import BuildFacts

OF_THE_REQUEST = ("the request itself", "edited history")
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
    choice: Choice
    advice: tuple[Advice, ...]  # the choice first
    interval: tuple[str, int] | None


def analyze(
    requests: Sequence[Request],
    tokenizer: Tokenizer,
    memory: Memory,
    *,
    build: BuildFacts | None = None,
    pp_tps: float | None = None,
) -> Analysis:
    """Analyze requests in the order in which they were sent.

    `build` is the engine's, whose names settings get; `pp_tps` turns tokens into seconds.
    Raises `UserError` without requests.
    """
    if not requests:
        fix = "capture some: `fleet prompts capture NAME on`"
        raise UserError("there are no requests", fix=fix)
    prompts = [make_prompt(request, tokenizer) for request in requests]
    shared = shared_length(prompts)
    better = [make_prompt(request, tokenizer) for request in reordered(requests)]
    groups = _groups(prompts)
    tail = max(len(prompt.tokens) for prompt in prompts) - shared
    breaks = _breaks(prompts)
    moved = [make_prompt(request, tokenizer) for request in values_last(requests) or ()]
    variants = variants_of(
        memory, shared=shared, tail=tail, groups=len(groups),
        breaker=_breaker(breaks) if moved else None,
    )  # fmt: skip
    reusable = _reusable(prompts, better, moved, variants)
    choice = choose(variants, reusable, build)
    mean = sum(len(prompt.tokens) for prompt in prompts) / len(prompts)
    return Analysis(
        requests=len(requests),
        tokenizer=tokenizer.name,
        prompt_tokens=round(mean, 2),
        common_prefix_tokens=shared,
        groups=groups,
        reusable=reusable,
        breaks=breaks,
        repeated=_repeated(requests, tokenizer),
        choice=choice,
        advice=_advice(variants, reusable, choice, pp_tps),
        interval=_interval(memory, shared, build),
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


def _reusable(
    prompts: Sequence[Prompt],
    better: Sequence[Prompt],
    moved: Sequence[Prompt],
    variants: Sequence[Variant],
) -> dict[str, float]:
    """Return the reusable tokens of each variant; one rule decides them all."""
    found = {}
    for variant in variants:
        asked = moved if variant.values_last else better if variant.reordered else prompts
        primed = shared_length(asked) if variant.primed else 0
        found[variant.name] = after_first(reused(asked, variant.memory, primed=primed))
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


def _breaker(breaks: Sequence[BreakSeen]) -> str:
    """Name the first of them in a few words."""
    first = next((row for row in breaks if row.kind not in OF_THE_REQUEST), None)
    return f"{first.kind} in {first.where}, token {first.at_token}" if first else "single words"


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


def _advice(
    variants: Sequence[Variant],
    reusable: Mapping[str, float],
    choice: Choice,
    pp_tps: float | None,
) -> tuple[Advice, ...]:
    """Return the changes that bring more than nothing: the choice, then the best first."""
    now, other = reusable["default"], order_helps(variants, reusable)
    rows = [
        (variant.name == choice.variant, reusable[variant.name], variant)
        for variant in variants
        if variant.possible
        and (other or not variant.reordered)
        and reusable[variant.name] > max(now * WORTH, now + 1)
    ]
    return tuple(
        Advice(
            change=variant.change,
            reusable_tokens_after=tokens,
            saved_s=round((tokens - now) / pp_tps, 3) if pp_tps else None,
        )
        for _, tokens, variant in sorted(rows, key=lambda row: row[:2], reverse=True)
    )


def _interval(memory: Memory, shared: int, build: BuildFacts | None) -> tuple[str, int] | None:
    """Return the option and value that fit the shared prefix: half of it, a power of two."""
    if not (memory.window or memory.recurrent) or memory.rewinds or shared < 2:  # noqa: PLR2004
        return None
    option = interval_option(memory.engine, build)
    return (option, fitting_interval(shared)) if option else None


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
        "choice": {
            "variant": found.choice.variant,
            "change": found.choice.change,
            "settings": dict(found.choice.settings),
            "options": list(found.choice.options),
            "restart": found.choice.restart,
            "reusable_tokens": found.choice.reusable_tokens,
            "slot_files": found.choice.slot_files,
        },
        "advice": [
            {
                "change": row.change,
                "reusable_tokens_after": row.reusable_tokens_after,
                "saved_s": row.saved_s,
            }
            for row in found.advice
        ],
    }
