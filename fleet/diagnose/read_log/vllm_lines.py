"""The grammar of vLLM: statistics lines of V0 and V1, start-up, and its metrics page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleet.diagnose.read_log.log_reading import LogReading, Vllm

    Reader = Callable[[LogReading, str], str | None]

_LABELLED = re.compile(r"([A-Z][A-Za-z ]*|prefix cache hit rate): (?:GPU: )?(\d+\.?\d*)")
_PREEMPTED = re.compile(r"(?:Preemptions: |cumulative_preemption=)(\d+)")
_RATE = re.compile(r"[Dd]raft acceptance rate: (\d+\.?\d*)(%?)")
_ACCEPTED = re.compile(r"(?:Accepted|accepted tokens): (\d+)")
_DRAFTED = re.compile(r"(?:Drafted|draft tokens): (\d+)")
_MEAN = re.compile(r"Mean acceptance length: (\d+\.?\d*)")
_BLOCK = re.compile(r"Setting attention block size to (\d+) tokens")
_AVAILABLE = re.compile(
    r"(?:Available KV cache memory|available KV cache memory)(?: \(|: )(\d+\.?\d*) GiB"
)
_NEEDED = re.compile(
    r"max seq len \((\d+)\)(?:, (?:\()?(\d+\.?\d*) GiB KV cache is needed)?.*?"
    r"available KV cache memory \((\d+\.?\d*) GiB\)"
)
_SUGGESTED = re.compile(r"estimated maximum model length is (\d+)")
_OLD_NEEDED = re.compile(r"max seq len \((\d+)\) is larger than the maximum number of tokens")
_VERSION = re.compile(r"(?:vLLM API server version|LLM engine \(v)\s*v?([\w.+]+)")
_METRIC = re.compile(
    r"^(vllm:[\w:]+?)(?:_total)?(?:\{(.*)\})?\s+([-+]?\d+\.?\d*(?:[eE][-+]?\d{1,3})?|NaN)\s*$"
)


_CALLER = re.compile(r"\b(metrics|loggers|llm_engine|scheduler|core|api_server|utils)\.py:\d+\]")
OWN = (
    "vllm", "EngineCore", "APIServer pid", "KV cache memory", "KV cache is needed",
    "the cache blocks", "attention block size", "Avg prompt throughput", "SpecDecoding metrics",
    "Speculative metrics",
    "max seq len", "PreemptionMode", "desired GPU memory utilization", "gpu_memory_utilization",
)  # fmt: skip


def is_vllm(line: str) -> bool:
    """Whether a line has the look of vLLM's own."""
    for word in OWN:
        if word in line:
            return True
    return ".py:" in line and _CALLER.search(line) is not None


def reader_of(reading: LogReading, line: str) -> Reader | None:
    """Return what reads a line of vLLM, None when it is none of vLLM's or says nothing."""
    if not is_vllm(line):
        return None
    reading.vllm.seen = True
    _era(reading, line)
    return next((read for literal, read in READERS if literal in line), None)


LARGEST_BLOCK = 256  # that a model without recurrent state is given
V0 = ("Swapped:", "Pending:", "llm_engine.py", "Sequence group")


def _era(reading: LogReading, line: str) -> None:
    if any(word in line for word in V0):
        reading.marks.add("v0")
    elif "Engine 0" in line or "EngineCore" in line or "APIServer" in line or "loggers.py" in line:
        reading.marks.add("v1")
    if found := _VERSION.search(line):
        reading.build = found[1]


def _stats(reading: LogReading, line: str) -> str | None:
    facts, told = reading.vllm, dict(_LABELLED.findall(line))
    try:
        interval = {
            "pp": float(told["Avg prompt throughput"]),
            "tg": float(told["Avg generation throughput"]),
        }
    except KeyError:
        return None
    facts.pp_tps, facts.tg_tps = interval["pp"], interval["tg"]
    reading.marks.add("started")
    if "Running" in told:
        facts.running = int(float(told["Running"]))
    if waiting := told.get("Waiting", told.get("Pending")):
        facts.waiting = int(float(waiting))
    usage = [told[name] for name in told if name.endswith("KV cache usage") and name[:3] != "CPU"]
    if usage:
        facts.kv_usage = interval["kv"] = round(float(usage[0]) / 100, 6)
        facts.peak_kv_usage = max(facts.peak_kv_usage, facts.kv_usage)
    facts.intervals.append(interval)
    _take_hit(facts, told)
    preempted = int(float(told.get("Preemptions", 0)))
    if "Preemptions" in told:
        facts.preemptions = max(facts.preemptions or 0, preempted)
    return "vllm-preemption" if facts.preemptions and preempted else "vllm-stats"


def _hit(reading: LogReading, line: str) -> str | None:
    return _take_hit(reading.vllm, dict(_LABELLED.findall(line)))


def _take_hit(facts: Vllm, told: Mapping[str, str]) -> str | None:
    rate = told.get("Prefix cache hit rate", told.get("prefix cache hit rate"))
    if rate is None:
        return None
    facts.prefix_hit_rate = round(float(rate) / 100, 6)
    if facts.intervals:
        facts.intervals[-1]["hit"] = facts.prefix_hit_rate
    return "vllm-hit"


def _spec(reading: LogReading, line: str) -> str | None:
    facts = reading.vllm
    found = _RATE.search(line)
    if found is None:
        return None
    rate = float(found[1]) / (100 if found[2] else 1)
    facts.draft_acceptance = round(rate, 6)
    worst = facts.lowest_acceptance
    facts.lowest_acceptance = rate if worst is None else min(worst, rate)
    if facts.intervals:
        facts.intervals[-1]["acc"] = facts.draft_acceptance
    accepted, drafted, mean = _ACCEPTED.search(line), _DRAFTED.search(line), _MEAN.search(line)
    if accepted and drafted:
        facts.draft_accepted, facts.draft_generated = int(accepted[1]), int(drafted[1])
        reading.draft_accepted += facts.draft_accepted
        reading.draft_generated += facts.draft_generated
    facts.mean_len = float(mean[1]) if mean else None
    return "vllm-spec"


def _block(reading: LogReading, line: str) -> str | None:
    facts = reading.vllm
    found = _BLOCK.search(line)
    if found is None:
        return None
    facts.attention_block_size = int(found[1])
    return "vllm-block"


def _memory(reading: LogReading, line: str) -> str | None:
    facts = reading.vllm
    if found := _NEEDED.search(line):
        facts.max_model_len = int(found[1])
        facts.kv_needed_gib = float(found[2]) if found[2] else facts.kv_needed_gib
        facts.kv_available_gib = float(found[3])
    if found := _OLD_NEEDED.search(line):
        facts.max_model_len = int(found[1])
    if found := _SUGGESTED.search(line):
        facts.suggested_max_model_len = int(found[1])
    return "vllm-kv-small"


def _available(reading: LogReading, line: str) -> str | None:
    facts = reading.vllm
    if found := _AVAILABLE.search(line):
        facts.kv_available_gib = float(found[1])
    return None


def _preempted(reading: LogReading, line: str) -> str | None:
    facts = reading.vllm
    found = _PREEMPTED.search(line)
    facts.preemptions = int(found[1]) if found else (facts.preemptions or 0) + 1
    return "vllm-preemption"


def _cache_off(_reading: LogReading, _line: str) -> str:
    return "cache-off"


def _event(name: str) -> Reader:
    return lambda _reading, _line: name


READERS: tuple[tuple[str, Reader], ...] = (
    ("Avg prompt throughput", _stats),
    ("SpecDecoding metrics", _spec),
    ("Speculative metrics", _spec),
    ("refix cache hit rate", _hit),
    ("Setting attention block size", _block),
    ("larger than the available KV cache memory", _memory),
    ("larger than the maximum number of tokens", _memory),
    ("No available memory for the cache blocks", _memory),
    ("vailable KV cache memory", _available),
    ("is preempted by", _preempted),
    ("Preempting request", _preempted),
    ("less than desired GPU memory utilization", _event("vllm-kv-small")),
    ("enable_prefix_caching=False", _cache_off),
    ("CUDA out of memory", _event("")),
)


def read_metric(reading: LogReading, line: str) -> str | None:
    """Take one sample of the metrics page; counters of several engines are added."""
    found = _METRIC.match(line)
    if found is None or found[3] == "NaN":
        return None
    reading.vllm.seen = True
    reading.marks.add("metrics")
    name, labels, value = found[1], found[2] or "", float(found[3])
    if name == "vllm:cache_config_info":
        return _config(reading.vllm, labels)
    reading.totals[name] = reading.totals.get(name, 0.0) + value
    return name


def _config(facts: Vllm, labels: str) -> str | None:
    pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
    size = pairs.get("effective_attention_block_size") or pairs.get("block_size", "")
    if size.isdigit():
        facts.attention_block_size = int(size)
    if pairs.get("enable_prefix_caching") == "False":
        return "cache-off"
    return "vllm-block" if (facts.attention_block_size or 0) > LARGEST_BLOCK else None


def finish_metrics(reading: LogReading) -> None:
    """Turn the counters of a metrics page into rates."""
    facts, totals = reading.vllm, reading.totals
    if "metrics" not in reading.marks:
        return
    queries = totals.get("vllm:prefix_cache_queries", totals.get("vllm:gpu_prefix_cache_queries"))
    hits = totals.get("vllm:prefix_cache_hits", totals.get("vllm:gpu_prefix_cache_hits"))
    if queries is not None and hits is not None:
        facts.prefix_queries, facts.prefix_hits = int(queries), int(hits)
        facts.prefix_hit_rate = round(hits / queries, 6) if queries else None
    for name, key in (("running", "running"), ("waiting", "waiting")):
        value = totals.get(f"vllm:num_requests_{key}")
        if value is not None:
            setattr(facts, name, int(value))
    usage = totals.get("vllm:kv_cache_usage_perc", totals.get("vllm:gpu_cache_usage_perc"))
    if usage is not None:
        facts.kv_usage = facts.peak_kv_usage = usage
    if "vllm:num_preemptions" in totals:
        facts.preemptions = int(totals["vllm:num_preemptions"])
    _speculation(facts, totals)


def _speculation(facts: Vllm, totals: dict[str, float]) -> None:
    drafted = totals.get("vllm:spec_decode_num_draft_tokens")
    accepted = totals.get("vllm:spec_decode_num_accepted_tokens")
    drafts = totals.get("vllm:spec_decode_num_drafts")
    if not drafted or accepted is None:
        return
    facts.draft_generated, facts.draft_accepted = int(drafted), int(accepted)
    facts.draft_acceptance = facts.lowest_acceptance = round(accepted / drafted, 6)
    if drafts:
        facts.mean_len = round(1 + accepted / drafts, 4)
