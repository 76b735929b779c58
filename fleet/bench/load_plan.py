"""When and what a load run asks: prompts and arrival times, the same for the same seed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleet.profiles.kinds import WorkloadProfile

_WORDS = (
    "harbour", "lantern", "quiet", "seven", "market", "copper", "window", "under", "slowly",
    "bread", "northern", "river", "letter", "often", "garden", "silver", "walk", "between",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """How many requests, and how they come.

    With `rate` they arrive as a Poisson process of that many a second; without, `users`
    (None: the workload's) are under way at once until all are answered.
    """

    requests: int
    users: int | None = None
    rate: float | None = None
    seed: int = 42


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """One request: when it is sent (seconds after the start), what is shared, what is its own."""

    number: int
    at_s: float
    shared: str
    own: str


def plan_load(
    workload: WorkloadProfile, load: Load, *, words_per_token: float
) -> tuple[Planned, ...]:
    """Return the requests of `load`, each of the workload's shape.

    `words_per_token` comes from the model's own tokenizer. All requests share the first
    `shared_prefix_tokens`, nothing else.
    """
    dice = random.Random(load.seed)  # noqa: S311 - reproducible, not secret
    shared_tokens = min(workload.shared_prefix_tokens, workload.prompt_tokens - 1)
    shared = _text(dice, shared_tokens, words_per_token)
    at, plan = 0.0, []
    for number in range(1, load.requests + 1):
        own = _text(dice, workload.prompt_tokens - shared_tokens, words_per_token)
        plan.append(Planned(number=number, at_s=at, shared=shared, own=f"{number}: {own}"))
        at += -math.log(1 - dice.random()) / load.rate if load.rate else 0.0
    return tuple(plan)


def _text(dice: random.Random, tokens: int, words_per_token: float) -> str:
    return " ".join(dice.choice(_WORDS) for _ in range(max(round(tokens * words_per_token), 0)))
