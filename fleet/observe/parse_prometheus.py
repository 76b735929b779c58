"""The text of `/metrics` as values: counters, gauges and histograms of one engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from prometheus_client.parser import text_string_to_metric_families

from fleet.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Mapping

MetricsEngine = Literal["llama.cpp", "vllm"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Histogram:
    """Cumulative counts by upper bound (`inf` last), the sum and the count of observations."""

    buckets: tuple[tuple[float, float], ...]
    sum: float
    count: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Metrics:
    """One scrape. Samples that differ in labels only are added up.

    `started` is the server's start in seconds on its own clock, where it says so: another
    value is another process.
    """

    engine: MetricsEngine
    values: Mapping[str, float]
    histograms: Mapping[str, Histogram]
    started: float | None = None


def parse_metrics(text: str, *, started: float | None = None) -> Metrics:
    """Read an exposition; `started` is what the answer's header says of the server's start.

    Raises `OutsideError` for text of another kind.
    """
    values: dict[str, float] = {}
    buckets: dict[str, dict[float, float]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                bound = sample.labels.get("le")
                if bound is not None and sample.name.endswith("_bucket"):
                    counts = buckets.setdefault(sample.name.removesuffix("_bucket"), {})
                    counts[float(bound)] = counts.get(float(bound), 0.0) + sample.value
                elif not math.isnan(sample.value):
                    values[sample.name] = values.get(sample.name, 0.0) + sample.value
    except (ValueError, KeyError, IndexError):
        raise OutsideError("`/metrics` is not in Prometheus' text format") from None
    engine = _engine(values)
    histograms = {
        name: Histogram(
            buckets=tuple(sorted(counts.items())),
            sum=values.pop(f"{name}_sum", 0.0),
            count=values.pop(f"{name}_count", 0.0),
        )
        for name, counts in buckets.items()
    }
    return Metrics(
        engine=engine,
        values=values,
        histograms=histograms,
        started=values.get("process_start_time_seconds", started),
    )


def _engine(values: Mapping[str, float]) -> MetricsEngine:
    if any(name.startswith("vllm:") for name in values):
        return "vllm"
    if any(name.startswith("llamacpp:") for name in values):
        return "llama.cpp"
    raise OutsideError(
        "`/metrics` is of neither llama-server nor vLLM",
        fix="name the server itself, not a gateway before it; llama-server needs `metrics: true`",
    )


def quantile(histogram: Histogram, share: float) -> float | None:
    """Return the value below which `share` of the observations lie, straight within a bucket.

    None for no observations, or when it lies above the last finite bound.
    """
    if histogram.count <= 0:
        return None
    wanted, low, below = share * histogram.count, 0.0, 0.0
    for bound, count in histogram.buckets:
        if count >= wanted:
            if math.isinf(bound):
                return None
            inside = count - below
            return low + (bound - low) * ((wanted - below) / inside if inside > 0 else 1.0)
        low, below = bound, count
    return None
