"""What a server did in a window of time, from scrapes of its `/metrics`.

Another start time, or where the server tells none a counter that fell, means that it was
started again: what it counts since then is added, what it counted between the last scrape
and its end is lost, and that is said. Each time is a mean over its own observations; times
of different populations are never added.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from fleet.observe.parse_prometheus import Histogram, Metrics, quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fleet.observe.parse_prometheus import MetricsEngine

BLOCKS = 10
_ENOUGH_BLOCKS = 2
_SHARES = (0.5, 0.9, 0.99)

# what is measured, by its name in the report: the histogram of vLLM that holds it
VLLM_TIMES = {
    "prefill": "vllm:request_prefill_time_seconds",
    "queue": "vllm:request_queue_time_seconds",
    "decode": "vllm:request_decode_time_seconds",
    "time to first token": "vllm:time_to_first_token_seconds",
    "inter-token": "vllm:inter_token_latency_seconds",
    "end to end": "vllm:e2e_request_latency_seconds",
}
_COMPUTED = "vllm:request_prefill_kv_computed_tokens"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scrape:
    """One look: seconds on a clock that never jumps, and the metrics, None when down."""

    at_s: float
    metrics: Metrics | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stat:
    """One figure of the window: its mean over `count` observations of its own.

    `quantiles` are the 50th, 90th and 99th percentile where a histogram allows; `blocks`
    the means of equal parts of the window, from which intervals come.
    """

    name: str
    unit: Literal["s", "tok/s", "share", "tokens"]
    mean: float
    count: float
    quantiles: tuple[float | None, ...] = ()
    blocks: tuple[float, ...] = ()

    @property
    def three(self) -> tuple[float | None, ...]:
        """The percentiles as cells of a row, None where there are none."""
        return self.quantiles or (None,) * len(_SHARES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """The window as a whole; None means that the engine does not tell."""

    engine: MetricsEngine
    seconds: float
    scrapes: int
    down: int
    restarts: int
    requests: float | None
    unknown_reuse: float | None
    prompt_tokens: float
    cached_tokens: float | None
    generated_tokens: float
    stats: tuple[Stat, ...]
    notes: tuple[str, ...]


def window_figures(scrapes: Sequence[Scrape]) -> Window | None:
    """Return the figures between the first and the last answer; None with fewer than two."""
    seen = [(scrape.at_s, scrape.metrics) for scrape in scrapes if scrape.metrics is not None]
    if len(seen) < _ENOUGH_BLOCKS:
        return None
    engine = seen[0][1].engine
    delta = _Increase([metrics for _, metrics in seen], blocks=_blocks(seen))
    told = {"vllm": _vllm_told, "llama.cpp": _llama_told}[engine](delta)
    notes = []
    if delta.restarts:
        lost = "what was counted after the last look before is lost"
        notes.append(f"restarts: {delta.restarts}; {lost}")
    if any(metrics.started is None for _, metrics in seen):
        notes.append("the server tells no start time: a restart is seen only where a counter fell")
    return Window(
        engine=engine,
        seconds=seen[-1][0] - seen[0][0],
        scrapes=len(seen),
        down=len(scrapes) - len(seen),
        restarts=delta.restarts,
        requests=told.requests,
        unknown_reuse=told.unknown_reuse,
        prompt_tokens=told.prompt_tokens,
        cached_tokens=told.cached_tokens,
        generated_tokens=told.generated_tokens,
        stats=told.stats,
        notes=(*notes, *told.notes),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Told:
    """What differs between engines."""

    prompt_tokens: float
    cached_tokens: float | None
    generated_tokens: float
    stats: tuple[Stat, ...]
    requests: float | None = None
    unknown_reuse: float | None = None
    notes: tuple[str, ...] = ()


class _Increase:
    """How much counters and histograms grew over a row of scrapes, restarts included."""

    def __init__(self, metrics: Sequence[Metrics], blocks: Sequence[_Increase] = ()) -> None:
        self._metrics = metrics
        self.blocks = blocks

    @property
    def restarts(self) -> int:
        return sum(_restarted(before, after) for before, after in pairwise(self._metrics))

    def has(self, name: str) -> bool:
        return any(name in m.values or name in m.histograms for m in self._metrics)

    def of(self, name: str) -> float:
        """Return the growth of a counter."""
        return sum(
            _grown(before.values.get(name, 0.0), after.values.get(name, 0.0),
                   again=_restarted(before, after))
            for before, after in pairwise(self._metrics)
        )  # fmt: skip

    def histogram(self, name: str) -> Histogram | None:
        """Return the histogram of what was observed in between, None when there is none."""
        total: Histogram | None = None
        for before, after in pairwise(self._metrics):
            new = after.histograms.get(name)
            if new is None:
                continue
            old = None if _restarted(before, after) else before.histograms.get(name)
            total = _add(total, new if old is None else _minus(new, old))
        return total


def _grown(before: float, after: float, *, again: bool) -> float:
    return after if again or after < before else after - before


def _restarted(before: Metrics, after: Metrics) -> bool:
    """Whether the server started anew: another start time, or a counter that fell."""
    if before.started is not None and after.started is not None:
        return abs(after.started - before.started) > 1  # an uptime falls with the machine
    counters = [name for name in before.values if name.endswith("_total")]
    fell = any(after.values.get(name, 0.0) < before.values[name] for name in counters)
    return fell or any(
        after.histograms[name].count < old.count
        for name, old in before.histograms.items()
        if name in after.histograms
    )


def _minus(new: Histogram, old: Histogram) -> Histogram:
    counts = dict(old.buckets)
    return Histogram(
        buckets=tuple((bound, count - counts.get(bound, 0.0)) for bound, count in new.buckets),
        sum=new.sum - old.sum,
        count=new.count - old.count,
    )


def _add(total: Histogram | None, more: Histogram) -> Histogram:
    if total is None:
        return more
    counts = dict(total.buckets)
    return Histogram(
        buckets=tuple((bound, count + counts.get(bound, 0.0)) for bound, count in more.buckets),
        sum=total.sum + more.sum,
        count=total.count + more.count,
    )


def _blocks(seen: Sequence[tuple[float, Metrics]]) -> tuple[_Increase, ...]:
    """Cut the scrapes into up to ten rows that share their end points."""
    steps = len(seen) - 1
    count = min(BLOCKS, steps)
    edges = [round(k * steps / count) for k in range(count + 1)]
    return tuple(
        _Increase([metrics for _, metrics in seen[low : high + 1]]) for low, high in pairwise(edges)
    )


def _quotient(
    delta: _Increase,
    name: str,
    unit: Literal["tok/s", "share", "tokens"],
    of: Callable[[_Increase], tuple[float, float]],
) -> tuple[Stat, ...]:
    """Return a quotient of two increases, for the window and for its blocks."""
    above, below = of(delta)
    if below <= 0:
        return ()
    parts = (of(block) for block in delta.blocks)
    blocks = tuple(x / y for x, y in parts if y > 0)
    return (Stat(name=name, unit=unit, mean=above / below, count=below, blocks=blocks),)


def _time(delta: _Increase, name: str, metric: str) -> tuple[Stat, ...]:
    whole = delta.histogram(metric)
    if whole is None or whole.count <= 0:
        return ()
    parts = (block.histogram(metric) for block in delta.blocks)
    return (
        Stat(
            name=name,
            unit="s",
            mean=whole.sum / whole.count,
            count=whole.count,
            quantiles=tuple(quantile(whole, share) for share in _SHARES),
            blocks=tuple(part.sum / part.count for part in parts if part and part.count > 0),
        ),
    )


def _vllm_told(delta: _Increase) -> _Told:
    requests = delta.of("vllm:request_success_total")
    known = delta.histogram(_COMPUTED)
    queried, hit = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"
    prompt, generated = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
    accepted = "vllm:spec_decode_num_accepted_tokens_total"
    has_reuse = delta.has(queried)
    unknown = requests - known.count if known else (None if has_reuse else requests)
    stats = (
        *_quotient(delta, "reuse", "share", lambda d: (d.of(hit), d.of(queried))),
        *_quotient(
            delta, "prompt tokens a request", "tokens",
            lambda d: (d.of(prompt), d.of("vllm:request_success_total")),
        ),
        *(s for name, metric in VLLM_TIMES.items() for s in _time(delta, name, metric)),
        *_quotient(delta, "prompt rate (computed)", "tok/s", _vllm_prompt_rate),
        *_quotient(
            delta, "generation rate, one stream", "tok/s",
            lambda d: (d.of(generated), _sum_of(d, VLLM_TIMES["decode"])),
        ),
        *_quotient(
            delta, "draft acceptance", "share",
            lambda d: (d.of(accepted), d.of("vllm:spec_decode_num_draft_tokens_total")),
        ),
    )  # fmt: skip
    return _Told(
        requests=requests,
        unknown_reuse=max(0.0, unknown) if unknown is not None else None,
        prompt_tokens=delta.of(prompt),
        cached_tokens=delta.of(hit) if has_reuse else None,
        generated_tokens=delta.of(generated),
        stats=stats,
    )


def _sum_of(delta: _Increase, metric: str) -> float:
    found = delta.histogram(metric)
    return found.sum if found else 0.0


def _vllm_prompt_rate(delta: _Increase) -> tuple[float, float]:
    return _sum_of(delta, _COMPUTED), _sum_of(delta, VLLM_TIMES["prefill"])


def _llama_told(delta: _Increase) -> _Told:
    processed, cached = "llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"
    prompt_s, made = "llamacpp:prompt_seconds_total", "llamacpp:tokens_predicted_total"
    made_s = "llamacpp:tokens_predicted_seconds_total"
    accepted = "llamacpp:spec_decode_num_accepted_tokens_total"
    has_reuse = delta.has(cached)
    notes = ["llama-server's metrics count no requests and hold no histograms"]
    if not has_reuse:
        notes.append("this build does not count cached tokens: reuse is unknown")
    reuse = _quotient(
        delta, "reuse", "share", lambda d: (d.of(cached), d.of(cached) + d.of(processed))
    )
    stats = (
        *(reuse if has_reuse else ()),
        *_quotient(
            delta, "prompt rate (computed)", "tok/s", lambda d: (d.of(processed), d.of(prompt_s))
        ),
        *_quotient(
            delta, "generation rate, one stream", "tok/s", lambda d: (d.of(made), d.of(made_s))
        ),
        *_quotient(
            delta, "draft acceptance", "share",
            lambda d: (d.of(accepted), d.of("llamacpp:spec_decode_num_draft_tokens_total")),
        ),
    )  # fmt: skip
    return _Told(
        prompt_tokens=delta.of(processed) + delta.of(cached),
        cached_tokens=delta.of(cached) if has_reuse else None,
        generated_tokens=delta.of(made),
        stats=stats,
        notes=tuple(notes),
    )
