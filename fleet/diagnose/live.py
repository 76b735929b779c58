"""What a running server says of itself, added to what its log says."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fleet.diagnose.read_log import vllm_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.diagnose.read_log.log_reading import LogReading

_SAMPLE = re.compile(
    r"^([A-Za-z_:][\w:]*)(?:\{[^}]*\})?\s+([-+]?\d+\.?\d*(?:[eE][-+]?\d{1,3})?|NaN)\s*$"
)
COUNTERS = {
    "llamacpp:prompt_tokens_total": "processed_tokens",
    "llamacpp:prompt_tokens_cached_total": "cached_tokens",
    "llamacpp:prompt_seconds_total": "prompt_s",
    "llamacpp:tokens_predicted_total": "gen_tokens",
    "llamacpp:tokens_predicted_seconds_total": "gen_s",
    "llamacpp:spec_decode_num_draft_tokens_total": "draft_generated",
    "llamacpp:spec_decode_num_accepted_tokens_total": "draft_accepted",
}
ENOUGH_LIVE = 64
UNNUMBERED = {"b0", "b1"}  # what builds without a git history call themselves


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveScrape:
    """One look at a server; `missing` says what it did not answer, and why."""

    props: Mapping[str, Any] = field(default_factory=dict)
    slots: Sequence[Mapping[str, Any]] = ()
    metrics: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def read_metrics_page(text: str) -> tuple[str, ...]:
    """Return the samples of a metrics page, one line each."""
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def add_live(reading: LogReading, first: LiveScrape, second: LiveScrape | None) -> None:
    """Take the last scrape, counters as the difference over the window if there were two."""
    last = second or first
    reading.notes.extend(dict.fromkeys((*first.missing, *(second.missing if second else ()))))
    _props(reading, last.props)
    _slots(reading, last.slots)
    if any(line.startswith("vllm:") for line in last.metrics):
        _vllm(reading, first, last)
        return
    before = _counters(first.metrics) if second else {}
    after = _counters(last.metrics)
    reading.live = {
        word: round(after[name] - before.get(name, 0.0), 3)
        for name, word in COUNTERS.items()
        if name in after
    }
    _rates(reading)


def _counters(lines: Sequence[str]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for line in lines:
        if found := _SAMPLE.match(line):
            totals[found[1]] = totals.get(found[1], 0.0) + float(found[2])
    return totals


def _props(reading: LogReading, props: Mapping[str, Any]) -> None:
    if isinstance(props.get("build_info"), str):
        build = props["build_info"].partition("-")[0]
        if build not in UNNUMBERED:
            reading.build = reading.build or build
        reading.engine = reading.engine or "llama.cpp"
    context = (props.get("default_generation_settings") or {}).get("n_ctx")
    if isinstance(context, int):
        reading.n_ctx_slot = context
    if isinstance(props.get("total_slots"), int):
        reading.n_slots = props["total_slots"]


def _slots(reading: LogReading, slots: Sequence[Mapping[str, Any]]) -> None:
    """Say of each slot what its last request reused."""
    for slot in slots:
        cached, prompt = slot.get("n_prompt_tokens_cache"), slot.get("n_prompt_tokens")
        if isinstance(cached, int) and isinstance(prompt, int) and prompt:
            reading.live_slots.append(
                {"slot": slot.get("id"), "prompt_tokens": prompt, "cached_tokens": cached,
                 "speculative": bool(slot.get("speculative"))}
            )  # fmt: skip


def _rates(reading: LogReading) -> None:
    live = reading.live
    if live.get("prompt_s"):
        live["pp_tps"] = round(live["processed_tokens"] / live["prompt_s"], 3)
    if live.get("gen_s"):
        live["tg_tps"] = round(live["gen_tokens"] / live["gen_s"], 3)
    drafted = live.get("draft_generated", 0)
    if drafted >= ENOUGH_LIVE and not reading.draft_generated:
        reading.draft_generated = int(drafted)
        reading.draft_accepted = int(live.get("draft_accepted", 0))


def _vllm(reading: LogReading, first: LiveScrape, last: LiveScrape) -> None:
    """Read vLLM's page; its counters as the difference over the window."""
    for number, line in enumerate(last.metrics, start=1):
        event = vllm_lines.METRIC.read(line, reading)
        if event:
            reading.saw(event, number, line)
    if first is not last:
        for name, value in _counters(first.metrics).items():
            base = name.removesuffix("_total")
            if name.endswith("_total") and base in reading.totals:
                reading.totals[base] -= value
    vllm_lines.finish_metrics(reading)
    reading.engine = "vllm"
    reading.generation = reading.generation or "vllm-metrics"
