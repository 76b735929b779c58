"""The requests that one run sends: real text, another beginning each time, equal for all.

Two candidates are compared on the same requests; two requests of a run share no more than
the workload says, because a replayed prompt lets a server copy its own earlier answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.profiles.kinds import WorkloadProfile

WHOLE = frozenset({"ttft", "e2e", "throughput"})  # metrics that take the workload as it is
# tokens read, tokens generated, requests of a run: the first that is short enough is taken
_TG = ((256, 48, 3), (128, 48, 3), (64, 48, 3), (64, 32, 3), (64, 24, 2), (64, 16, 2), (48, 12, 1))
_PP = ((512, 24, 3), (512, 12, 3), (256, 12, 3), (256, 8, 2), (128, 8, 2), (64, 6, 1))
_STEPS: Mapping[str, tuple[tuple[int, int, int], ...]] = {"tg": _TG, "pp": _PP, "pareto": _PP}
MOST_REQUESTS = 24
FIRST = 8  # tokens where the first one counts: enough to see that the others come no slower
WARM_UP = (48, 8)
DEEP = 64  # tokens that follow what the requests of a deep workload share
TEMPERATURE = 0.7  # greedy answers of small models run in circles, which flatters n-grams


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestShape:
    """Tokens of one request: `shared` at its beginning, `fresh` after, then `generated`.

    A run sends `count` of them, `users` at once.
    """

    shared: int
    fresh: int
    generated: int
    users: int = 1
    count: int = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """Tokens a second that the deployment as it is reads and generates."""

    pp: float
    tg: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRequest:
    """One request: token ids and how many to generate, or the body that was captured."""

    path: str
    body: Mapping[str, Any]
    generated: int


def shape_for(
    metric: str,
    workload: WorkloadProfile | None,
    context: int,
    *,
    speed: Speed | None = None,
    run_s: float = 4.0,
    at_depth: bool = False,
) -> RequestShape:
    """Return the requests that show `metric`, within `context` tokens of a slot.

    TG and PP are shown by short requests, the shorter the slower this machine is, so that a
    run takes about `run_s` seconds; `at_depth` puts them behind the workload's own prompt.
    Who waits (TTFT, whole requests, throughput) is measured on the workload as it is.
    """
    if metric in WHOLE:
        return _within(_whole(metric, workload, speed, run_s), context)
    steps = [_step(each, workload, at_depth=at_depth) for each in _STEPS[metric]]
    shapes = [_within(each, context) for each in steps]
    if speed is None:
        return shapes[0]
    shape = next((each for each in shapes if _seconds(each, speed) <= run_s), shapes[-1])
    return replace(shape, count=max(shape.count, _many(shape, speed, run_s)))


def _many(shape: RequestShape, speed: Speed, run_s: float) -> int:
    """Return how many requests fill a quarter of `run_s`: a longer run is a less noisy one."""
    one_s = _seconds(replace(shape, count=1), speed)
    return min(int(run_s / 4 / max(one_s, 1e-6)), MOST_REQUESTS)


def _whole(
    metric: str, workload: WorkloadProfile | None, speed: Speed | None, run_s: float
) -> RequestShape:
    users = workload.users if workload else 1
    prompt = workload.prompt_tokens if workload else 512
    shared = workload.shared_prefix_tokens if workload else 0
    generated = FIRST if metric == "ttft" else workload.generated_tokens if workload else 128
    shape = RequestShape(
        shared=shared, fresh=prompt - shared, generated=generated, users=users,
        count=max(3, 2 * users),
    )  # fmt: skip
    if speed is not None and _seconds(shape, speed) > run_s:
        return replace(shape, count=max(users, 1))
    return shape


def _step(
    step: tuple[int, int, int], workload: WorkloadProfile | None, *, at_depth: bool
) -> RequestShape:
    prompt, generated, count = step
    depth = workload.depth_tokens if workload else 0
    if workload and at_depth:
        depth = max(depth, workload.prompt_tokens)
    if depth > prompt:
        shared, fresh = depth - DEEP, DEEP
    else:
        shared, fresh = 0, prompt
    return RequestShape(shared=shared, fresh=fresh, generated=generated, count=count)


def _within(shape: RequestShape, context: int) -> RequestShape:
    """Return the shape cut to what a slot holds, with its shared part at most three quarters."""
    room = max(context - 8, 16)
    generated = min(shape.generated, room // 2)
    prompt = min(shape.shared + shape.fresh, room - generated)
    shared = min(shape.shared, max(prompt * 3 // 4, prompt - shape.fresh))
    return replace(shape, shared=shared, fresh=prompt - shared, generated=generated)


def _seconds(shape: RequestShape, speed: Speed) -> float:
    return shape.count * (shape.fresh / speed.pp + shape.generated / speed.tg)


def plan_requests(
    text: Sequence[int], shape: RequestShape, *, turn: int
) -> tuple[PlannedRequest, ...]:
    """Cut a run's requests out of the tokens of a text; `turn` shifts where they begin.

    The shared part is the text's beginning; each fresh part starts at another token.
    """
    long = list(text)
    while len(long) < 2 * (shape.shared + shape.fresh) + 1:
        long += text
    shared = tuple(long[: shape.shared])
    step = 389  # a prime: beginnings do not repeat for as many requests as the text has tokens
    return tuple(
        _planned(
            shared + _from(long, shape.shared + number * step, shape.fresh), shape.generated, number
        )
        for number in range(turn * shape.count, (turn + 1) * shape.count)
    )


def warm_up(text: Sequence[int], shape: RequestShape) -> tuple[PlannedRequest, ...]:
    """Return the requests after a load that do not count, one a user.

    They read what the others share, into as many slots.
    """
    prompt, generated = WARM_UP
    first = replace(
        shape, fresh=min(prompt, shape.fresh), generated=min(generated, shape.generated),
        count=shape.users,
    )  # fmt: skip
    return plan_requests(text, first, turn=100_003)


def first_token(text: Sequence[int], *, likely: int) -> dict[str, Any]:
    """Return the body that asks which `likely` tokens follow the beginning of a text."""
    return {
        "prompt": list(text[: WARM_UP[0]]), "n_predict": 1, "n_probs": likely, "temperature": 0,
        "cache_prompt": False,
    }  # fmt: skip


def _planned(prompt: Sequence[int], generated: int, number: int) -> PlannedRequest:
    body = {
        "prompt": list(prompt),
        "n_predict": generated,
        "ignore_eos": True,  # the answer's length is fixed
        "cache_prompt": True,
        "temperature": TEMPERATURE,
        "seed": 1000 + number,
    }
    return PlannedRequest(path="completion", body=body, generated=generated)


def _from(tokens: Sequence[int], start: int, length: int) -> tuple[int, ...]:
    return tuple(tokens[(start + at) % len(tokens)] for at in range(length))
