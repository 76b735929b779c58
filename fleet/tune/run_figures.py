"""The figures of one run out of its answers: rates, waiting, reuse, acceptance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.observe.observation import Timings

LENGTH = "tg@"  # and the power of two that a prompt of its requests has at least, in tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """One answer: what the server says it took, and what its user waited in milliseconds."""

    timings: Timings
    wall_ms: float

    @property
    def first_ms(self) -> float:
        """Milliseconds to the first token, the wait for a slot included."""
        decode = self.timings.predicted_ms
        return max(self.wall_ms - decode, 0.0) + decode / max(self.timings.predicted_n, 1)


def figures_of(
    answers: Sequence[Answered], wall_s: float, memory: int, *, mixed: bool = False
) -> dict[str, float]:
    """Return medians over the run's requests, totals for throughput; rates are larger-better.

    Where requests differ in kind (`mixed`), or drafts fit some answers and not others, PP and
    TG are those of all tokens together: a median would be one request's. `tg` counts tokens
    that were kept, so that a rejected draft is time lost.
    """
    told = [each.timings for each in answers]
    whole = sum(one.prompt_n + one.cache_n for one in told)
    drafted = sum(one.draft_n for one in told)
    pp = _usual([(one.prompt_n, one.prompt_ms) for one in told], together=mixed)
    tg = _usual(
        [(one.predicted_n, one.predicted_ms) for one in told], together=mixed or drafted > 0
    )
    figures = {
        "pp": pp,
        "tg": tg,
        "first_per_s": 1000 / median(max(each.first_ms, 1e-3) for each in answers),
        "requests_per_s": 1000 / median(max(each.wall_ms, 1e-3) for each in answers),
        "throughput": sum(one.predicted_n for one in told) / max(wall_s, 1e-6),
        "balance": math.sqrt(pp * tg),
        "prefill_s": sum(one.prompt_ms for one in told) / 1000 / len(told),
        "reuse": sum(one.cache_n for one in told) / max(whole, 1),
        "memory_bytes": float(memory),
    }
    if drafted:
        figures["accepted"] = sum(one.draft_n_accepted for one in told) / drafted
    return figures | _by_length(told)


def _by_length(told: Sequence[Timings]) -> dict[str, float]:
    rates: dict[str, list[float]] = {}
    for one in told:
        least = 1 << max((one.prompt_n + one.cache_n).bit_length() - 1, 0)
        rates.setdefault(f"{LENGTH}{least}", []).append(_rate(one.predicted_n, one.predicted_ms))
    return {name: median(some) for name, some in rates.items()}


def _usual(took: Sequence[tuple[int, float]], *, together: bool) -> float:
    """Return tokens a second out of tokens and milliseconds of each request."""
    if together:
        return _rate(sum(tokens for tokens, _ in took), sum(ms for _, ms in took))
    return median(_rate(tokens, ms) for tokens, ms in took)


def _rate(tokens: int, milliseconds: float) -> float:
    return 1000 * tokens / max(milliseconds, 1e-3)
