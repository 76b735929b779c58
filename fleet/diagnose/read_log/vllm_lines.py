"""The grammar of vLLM: statistics lines of V0 and V1, start-up, and its metrics page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleet.diagnose.read_log.rows import row

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.diagnose.read_log.log_reading import LogReading, Vllm


def _told(*words: str) -> str:
    """Return the pattern of figures behind `words:` anywhere in the line, each or none."""
    return "".join(rf"(?=(?:.*?(?:{word}): (?:GPU: )?(\d+\.?\d*))?)" for word in words)


_STATS = r"(?=.*Avg prompt throughput: \d)(?=.*Avg generation throughput: \d)" + _told(
    "Avg prompt throughput", "Avg generation throughput", "Running", "Waiting|Pending",
    "(?<!CPU )KV cache usage", "[Pp]refix cache hit rate", "Preemptions",
)  # fmt: skip
_SPEC = r"(?=.*?[Dd]raft acceptance rate: (\d+\.?\d*)(%?))" + _told(
    "Accepted|accepted tokens", "Drafted|draft tokens", "Mean acceptance length"
)
_NEEDED = (
    r"max seq len \((\d+)\)(?:, (?:\()?(\d+\.?\d*) GiB KV cache is needed)?.*?"
    r"available KV cache memory \((\d+\.?\d*) GiB\)"
    r"(?=(?:.*?estimated maximum model length is (\d+))?)"
)
_VERSION = re.compile(r"(?:vLLM API server version|LLM engine \(v)\s*v?([\w.+]+)")
_METRIC = r"(vllm:[\w:]+?)(?:_total)?(?:\{(.*)\})?\s+([-+]?\d+\.?\d*(?:[eE][-+]?\d{1,3})?|NaN)\s*$"


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


def seen(reading: LogReading, line: str) -> bool:
    """Note a line of vLLM's own; False for any other."""
    if not is_vllm(line):
        return False
    reading.vllm.seen = True
    _era(reading, line)
    return True


LARGEST_BLOCK = 256  # that a model without recurrent state is given
V0 = ("Swapped:", "Pending:", "llm_engine.py", "Sequence group")


def _era(reading: LogReading, line: str) -> None:
    if any(word in line for word in V0):
        reading.marks.add("v0")
    elif "Engine 0" in line or "EngineCore" in line or "APIServer" in line or "loggers.py" in line:
        reading.marks.add("v1")
    if found := _VERSION.search(line):
        reading.build = found[1]


def _stats(  # noqa: PLR0913, PLR0917 - as they are printed
    reading: LogReading,
    prompt: str,
    generation: str,
    running: str,
    waiting: str,
    usage: str,
    hits: str,
    preempted: str,
) -> str:
    facts = reading.vllm
    facts.pp_tps, facts.tg_tps = float(prompt), float(generation)
    interval = {"pp": facts.pp_tps, "tg": facts.tg_tps}
    reading.marks.add("started")
    if running:
        facts.running = int(float(running))
    if waiting:
        facts.waiting = int(float(waiting))
    if usage:
        facts.kv_usage = interval["kv"] = round(float(usage) / 100, 6)
        facts.peak_kv_usage = max(facts.peak_kv_usage, facts.kv_usage)
    facts.intervals.append(interval)
    if hits:
        _hit(reading, hits)
    if preempted:
        facts.preemptions = max(facts.preemptions or 0, int(float(preempted)))
    return "vllm-preemption" if preempted and float(preempted) else "vllm-stats"


def _hit(reading: LogReading, rate: str) -> str:
    facts = reading.vllm
    facts.prefix_hit_rate = round(float(rate) / 100, 6)
    if facts.intervals:
        facts.intervals[-1]["hit"] = facts.prefix_hit_rate
    return "vllm-hit"


def _spec(
    reading: LogReading, told: str, percent: str, accepted: str, drafted: str, mean: str
) -> str:
    facts = reading.vllm
    rate = float(told) / (100 if percent else 1)
    facts.draft_acceptance = round(rate, 6)
    worst = facts.lowest_acceptance
    facts.lowest_acceptance = rate if worst is None else min(worst, rate)
    if facts.intervals:
        facts.intervals[-1]["acc"] = facts.draft_acceptance
    if accepted and drafted:
        facts.draft_accepted, facts.draft_generated = int(accepted), int(drafted)
        reading.draft_accepted += facts.draft_accepted
        reading.draft_generated += facts.draft_generated
    facts.mean_len = float(mean) if mean else None
    return "vllm-spec"


def _block(reading: LogReading, tokens: str) -> str:
    reading.vllm.attention_block_size = int(tokens)
    return "vllm-block"


def _needed(reading: LogReading, length: str, needed: str, available: str, suggested: str) -> str:
    facts = reading.vllm
    facts.max_model_len = int(length)
    facts.kv_needed_gib = float(needed) if needed else facts.kv_needed_gib
    facts.kv_available_gib = float(available)
    if suggested:
        facts.suggested_max_model_len = int(suggested)
    return "vllm-kv-small"


def _too_long(reading: LogReading, length: str) -> str:
    reading.vllm.max_model_len = int(length)
    return "vllm-kv-small"


def _suggested(reading: LogReading, length: str) -> str:
    reading.vllm.suggested_max_model_len = int(length)
    return "vllm-kv-small"


def _available(reading: LogReading, gib: str) -> None:
    reading.vllm.kv_available_gib = float(gib)


def _preempted(reading: LogReading, so_often: str = "") -> str:
    facts = reading.vllm
    facts.preemptions = int(so_often) if so_often else (facts.preemptions or 0) + 1
    return "vllm-preemption"


def _event(name: str) -> Callable[..., str]:
    return lambda *_: name


_SMALL = _event("vllm-kv-small")
ROW = row(
    (_STATS, _stats),
    (_SPEC, _spec),
    (r"refix cache hit rate: (?:GPU: )?(\d+\.?\d*)", _hit),
    (r"Setting attention block size to (\d+) tokens", _block),
    (_NEEDED, _needed),
    (r"max seq len \((\d+)\) is larger than the maximum number of tokens", _too_long),
    (r"estimated maximum model length is (\d+)", _suggested),
    ("larger than the available KV cache memory|larger than the maximum number of tokens", _SMALL),
    ("No available memory for the cache blocks", _SMALL),
    (r"[Aa]vailable KV cache memory(?: \(|: )(\d+\.?\d*) GiB", _available),
    (r"(?:is preempted by|Preempting request)(?=(?:.*cumulative_preemption=(\d+))?)", _preempted),
    ("less than desired GPU memory utilization", _SMALL),
    ("enable_prefix_caching=False", _event("cache-off")),
)


def _metric(reading: LogReading, name: str, labels: str, value: str) -> str | None:
    """Take one sample of the metrics page; counters of several engines are added."""
    if value == "NaN":
        return None
    reading.vllm.seen = True
    reading.marks.add("metrics")
    if name == "vllm:cache_config_info":
        return _config(reading.vllm, labels)
    reading.totals[name] = reading.totals.get(name, 0.0) + float(value)
    return name


METRIC = row((_METRIC, _metric))


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
