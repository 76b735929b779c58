"""What a server gave under load: throughput, and what each user waited for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """One request of a load run: seconds after the start, milliseconds, tokens.

    `due_s` is when it should have been sent, `sent_s` when it was: in between it waited
    for a free user. `error` is set when it failed; its other figures are then 0.
    """

    number: int
    due_s: float
    sent_s: float
    done_s: float
    ttft_ms: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    gaps_ms: tuple[float, ...] = ()
    error: str | None = None

    @property
    def queue_ms(self) -> float:
        """Time to the first token that was not prefill: waiting for a slot, mostly."""
        return max(0.0, self.ttft_ms - self.prefill_ms)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadSummary:
    """The figures of a load run; percentile tuples are 50th, 90th, 99th; None without data.

    `throughput` is generated tokens a second over the whole run, all users together.
    """

    requests: int
    failed: int
    seconds: float
    throughput: float
    requests_per_s: float
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    reuse: float | None
    ttft_ms: tuple[float, ...] | None
    inter_token_ms: tuple[float, ...] | None
    queue_ms: tuple[float, ...] | None
    end_to_end_ms: tuple[float, ...] | None
    late_ms: tuple[float, ...] | None

    @property
    def waits(self) -> tuple[tuple[str, tuple[float | None, ...]], ...]:
        """What users waited for, in milliseconds, by its name in a table."""
        named = (
            ("time to first token", self.ttft_ms),
            ("between tokens", self.inter_token_ms),
            ("queueing", self.queue_ms),
            ("end to end", self.end_to_end_ms),
            ("sent late", self.late_ms),
        )
        return tuple((name, values or (None,) * len(SHARES)) for name, values in named)


def summarise_load(asked: Sequence[Answered]) -> LoadSummary:
    """Return the figures of all requests; failed ones count as failed and as nothing else."""
    good = [each for each in asked if each.error is None]
    begin = min((each.sent_s for each in asked), default=0.0)
    seconds = max((each.done_s for each in asked), default=0.0) - begin
    prompt = sum(each.prompt_tokens for each in good)
    cached = sum(each.cached_tokens for each in good)
    made = sum(each.generated_tokens for each in good)
    return LoadSummary(
        requests=len(asked),
        failed=len(asked) - len(good),
        seconds=seconds,
        throughput=made / seconds if seconds > 0 else 0.0,
        requests_per_s=len(good) / seconds if seconds > 0 else 0.0,
        prompt_tokens=prompt,
        cached_tokens=cached,
        generated_tokens=made,
        reuse=cached / prompt if prompt else None,
        ttft_ms=percentiles([each.ttft_ms for each in good]),
        inter_token_ms=percentiles([gap for each in good for gap in each.gaps_ms]),
        queue_ms=percentiles([each.queue_ms for each in good]),
        end_to_end_ms=percentiles([(each.done_s - each.sent_s) * 1000 for each in good]),
        late_ms=percentiles([max(0.0, each.sent_s - each.due_s) * 1000 for each in good]),
    )


def percentiles(values: Sequence[float]) -> tuple[float, ...] | None:
    """Return the 50th, 90th and 99th percentile, straight between neighbours."""
    if not values:
        return None
    ranked = sorted(values)
    return tuple(_at(ranked, share * (len(ranked) - 1)) for share in SHARES)


def _at(ranked: Sequence[float], place: float) -> float:
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (place - low)


def gaps(arrivals_ms: Sequence[float]) -> tuple[float, ...]:
    """Return the times between arrivals of text."""
    return tuple(after - before for before, after in pairwise(arrivals_ms))
