"""A workload that is a file: the requests that an application really sent."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fleet.tune.request_plan import TEMPERATURE, PlannedRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.diagnose.prompts.requests import Request

GENERATED = 64  # tokens of each answer; as many from every candidate


@dataclass(frozen=True, kw_only=True, slots=True)
class CapturedWorkload:
    """Requests in the order in which they came, under the name of their file."""

    name: str
    requests: tuple[Request, ...]

    def runs(self, count: int) -> int:
        """Return how many runs of `count` requests there are before one would be repeated."""
        return max(len(self.requests) // count, 1)

    def plan(self, *, count: int, generated: int, turn: int) -> tuple[PlannedRequest, ...]:
        """Return the requests of a run; the file begins again when it is at its end."""
        numbers = range(turn * count, (turn + 1) * count)
        return tuple(
            _planned(self.requests[number % len(self.requests)], generated, number)
            for number in numbers
        )


def _planned(request: Request, generated: int, number: int) -> PlannedRequest:
    body: dict[str, Any] = {
        "ignore_eos": True, "cache_prompt": True, "temperature": TEMPERATURE,
        "seed": 1000 + number,
    }  # fmt: skip
    if request.prompt is not None:
        body |= {"prompt": request.prompt, "n_predict": generated}
        return PlannedRequest(path="completion", body=body, generated=generated)
    body |= {"messages": _messages(request), "max_tokens": generated}
    return PlannedRequest(path="chat", body=body, generated=generated)


def _messages(request: Request) -> Sequence[dict[str, str]]:
    return [asdict(message) for message in request.messages]
