"""The requests that one run sends: real text, another beginning each time, equal for all.

Two candidates are compared on the same requests; two requests of a run share no more than
the workload says, because a replayed prompt lets a server copy its own earlier answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.profiles.kinds import WorkloadProfile

SHORT = (256, 48)  # tokens read and generated that show a rate
TEMPERATURE = 0.7  # greedy answers of small models run in circles, which flatters n-grams


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestShape:
    """Tokens of one request: `shared` at its beginning, `fresh` after, then `generated`."""

    shared: int
    fresh: int
    generated: int
    users: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRequest:
    """One request as token ids, and how many tokens to generate."""

    prompt: tuple[int, ...]
    generated: int
    seed: int

    def body(self) -> dict[str, object]:
        """Return the body for `/completion`; the answer's length is fixed."""
        return {
            "prompt": list(self.prompt),
            "n_predict": self.generated,
            "ignore_eos": True,
            "cache_prompt": True,
            "temperature": TEMPERATURE,
            "seed": self.seed,
        }


def shape_for(metric: str, workload: WorkloadProfile | None, context: int) -> RequestShape:
    """Return the request that shows `metric` soonest, within `context` tokens of a slot.

    TG and PP of a chat are shown by short requests; who waits (TTFT, whole requests) and who
    reads at depth is measured on the workload's own lengths.
    """
    whole = metric in {"ttft", "e2e", "throughput"}
    prompt = workload.prompt_tokens if workload else 512
    shared = workload.shared_prefix_tokens if workload and whole else 0
    generated = workload.generated_tokens if workload else 128
    users = workload.users if workload and metric == "throughput" else 1
    depth = workload.depth_tokens if workload else 0
    if not whole:
        prompt, generated = min(prompt, max(SHORT[0], depth)), min(generated, SHORT[1])
    if metric == "ttft":
        generated = 1
    room = max(context - 8, 16)
    generated = min(generated, room // 2)
    prompt = min(prompt, room - generated)
    shared = min(shared, prompt * 3 // 4)
    return RequestShape(shared=shared, fresh=prompt - shared, generated=generated, users=users)


def plan_requests(
    text: Sequence[int], shape: RequestShape, *, count: int, turn: int
) -> tuple[PlannedRequest, ...]:
    """Cut `count` requests out of the tokens of a text; `turn` shifts where they begin.

    The shared part is the text's beginning; each fresh part starts at another token.
    """
    long = list(text)
    while len(long) < 2 * (shape.shared + shape.fresh) + 1:
        long += text
    shared = tuple(long[: shape.shared])
    step = 389  # a prime: beginnings do not repeat for as many requests as the text has tokens
    return tuple(
        PlannedRequest(
            prompt=shared + _from(long, shape.shared + (turn * count + at) * step, shape.fresh),
            generated=shape.generated,
            seed=1000 + turn * count + at,
        )
        for at in range(count)
    )


def _from(tokens: Sequence[int], start: int, length: int) -> tuple[int, ...]:
    return tuple(tokens[(start + at) % len(tokens)] for at in range(length))
