"""Send one chat request and time what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fleet.errors import OutsideError
from fleet.observe.observation import Timings
from fleet.observe.server_client import timings as timings_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.effects.clock import Clock
    from fleet.observe.server_client import ServerClient

Message = dict[str, str]
SEED = 42


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """An answer with its times; milliseconds since the request was sent.

    `arrivals_ms` are the times at which text came. `timed_by` says whose clock the
    `timings` are from: without the server's own, prefill is the time to the first token
    (queue included) and decode the rest, and tokens come from `usage`.
    """

    text: str
    content: str
    timings: Timings
    timed_by: Literal["server", "client"]
    ttft_ms: float
    wall_ms: float
    arrivals_ms: tuple[float, ...]
    finish: str | None


def chat_body(
    messages: Sequence[Message], *, generate: int, fixed: bool, cache_prompt: bool = True
) -> dict[str, Any]:
    """Return the request: greedy, seeded; `fixed` makes exactly `generate` tokens."""
    body: dict[str, Any] = {
        "messages": list(messages),
        "temperature": 0,
        "seed": SEED,
        "max_tokens": generate,
        "cache_prompt": cache_prompt,
        "stream_options": {"include_usage": True},
    }
    return body | ({"ignore_eos": True, "min_tokens": generate} if fixed else {})


def ask(client: ServerClient, body: Mapping[str, Any], *, clock: Clock) -> Reply:
    """Stream the answer to `body`. Raises `OutsideError`, also for one without any counts."""
    start = clock.monotonic()
    arrivals: list[float] = []
    parts: list[tuple[str, str]] = []
    last: dict[str, Any] = {}
    for event in client.stream_chat(body):
        if event.get("error"):
            raise OutsideError(f"the server broke off: {event['error']}", where=client.url)
        if piece := _piece(event):
            arrivals.append((clock.monotonic() - start) * 1000)
            parts.append(piece)
        last |= {key: event[key] for key in ("timings", "usage") if event.get(key)}
        last |= {"finish": reason} if (reason := _finish(event)) else {}
    wall = (clock.monotonic() - start) * 1000
    ttft = arrivals[0] if arrivals else wall
    found = timings_of(last)
    return Reply(
        text="".join(thought + said for thought, said in parts),
        content="".join(said for _, said in parts),
        timings=found or _from_usage(last.get("usage"), ttft, wall, client.url),
        timed_by="server" if found else "client",
        ttft_ms=ttft,
        wall_ms=wall,
        arrivals_ms=tuple(arrivals),
        finish=last.get("finish"),
    )


def _choice(event: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = event.get("choices")
    return choices[0] if isinstance(choices, list) and choices else {}


def _piece(event: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return (thought, said) of one event, None when it carries no text."""
    delta = _choice(event).get("delta") or {}
    thought, said = delta.get("reasoning_content") or "", delta.get("content") or ""
    return (thought, said) if thought or said else None


def _finish(event: Mapping[str, Any]) -> str | None:
    return _choice(event).get("finish_reason")


def _from_usage(usage: object, ttft_ms: float, wall_ms: float, where: str) -> Timings:
    if not isinstance(usage, dict) or "prompt_tokens" not in usage:
        raise OutsideError(
            "the server answers with neither `timings` nor `usage`: nothing can be measured",
            where=where,
            fix="use llama-server, or a server that honours `stream_options.include_usage`",
        )
    cached = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
    return Timings(
        cache_n=cached,
        prompt_n=int(usage["prompt_tokens"]) - cached,
        prompt_ms=ttft_ms,
        predicted_n=int(usage.get("completion_tokens", 0)),
        predicted_ms=wall_ms - ttft_ms,
    )
