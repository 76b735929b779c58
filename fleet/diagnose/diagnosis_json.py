"""A diagnosis as the JSON of the contract."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fleet.diagnose.read_log.log_reading import KEPT_WHOLE

if TYPE_CHECKING:
    from fleet.diagnose.compare_runs import Comparison
    from fleet.diagnose.diagnosis import Diagnosis
    from fleet.diagnose.finding import Finding
    from fleet.diagnose.read_log.log_reading import LogReading, Task

TASK_WORDS = {
    "task": "task", "slot": "slot", "prompt_tokens": "prompt", "processed_tokens": "processed",
    "cached_tokens": "cached", "gen_tokens": "gen", "pp_tps": "pp_tps", "tg_tps": "tg_tps",
    "draft_acceptance": "draft_rate", "draft_accepted": "draft_accepted",
    "draft_generated": "draft_generated", "mean_len": "mean_len", "lcp_tokens": "lcp",
    "acc_per_pos": "acc_per_pos", "tg_live_tps": "tg_live", "pp_ms": "pp_ms", "tg_ms": "tg_ms",
}  # fmt: skip
VLLM_WORDS = (
    "prefix_hit_rate", "kv_usage", "running", "waiting", "preemptions", "attention_block_size",
    "kv_available_gib", "kv_needed_gib", "max_model_len", "suggested_max_model_len",
    "prefix_queries", "prefix_hits", "draft_acceptance", "draft_accepted", "draft_generated",
    "mean_len",
)  # fmt: skip


def diagnosis_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the whole answer; figures that the log does not give are null."""
    reading = diagnosis.reading
    answer: dict[str, Any] = {
        "engine": reading.engine,
        "generation": reading.generation,
        "build": reading.build,
        **_last(reading),
        "tasks": [_task(task) for task in reading.tasks()],
        "task_count": reading.task_count,
        "tasks_left_out": max(0, reading.task_count - len(list(reading.tasks()))),
        "starts": reading.starts,
        "lines": reading.lines,
        "totals": {key: round(value, 3) for key, value in reading.totals.items()},
        **_memory(reading),
        "checkpoints": _checkpoints(reading),
        "slot_select": reading.slot_select,
        "prompt_cache": reading.prompt_cache,
        "lookup": reading.lookup,
        "oom": _oom(reading),
        "crash": _crash(reading),
        **_vllm(reading),
        "spec_type": reading.spec_type,
        "is_hybrid": reading.hybrid,
        "notes": list(reading.notes),
        "live": {**reading.live, "slots": reading.live_slots} if reading.live else None,
        "bandwidth": _wall(diagnosis),
        "findings": [_finding(finding) for finding in diagnosis.findings],
        "verdict": diagnosis.verdict,
    }
    if reading.task_count > KEPT_WHOLE:
        answer["notes"].append(
            f"{reading.task_count} tasks: totals, and the first and last thousand"
        )
    return answer


def _last(reading: LogReading) -> dict[str, Any]:
    """Return the last known figure of each kind, as the log would be summed up in one row."""
    words = (
        "pp_tps", "tg_tps", "prompt_tokens", "processed_tokens", "cached_tokens", "gen_tokens",
        "draft_acceptance",
    )  # fmt: skip
    return {word: reading.last.get(word) for word in words}


def _task(task: Task) -> dict[str, Any]:
    words = {word: getattr(task, name) for word, name in TASK_WORDS.items()}
    return {**words, "acc_per_pos": list(task.acc_per_pos) if task.acc_per_pos else None}


def _memory(reading: LogReading) -> dict[str, Any]:
    kv = reading.kv
    options = reading.options
    kinds: dict[str, Any] | None = None
    if kv and kv.k:
        kinds = {"k": kv.k, "v": kv.v, **({"mla": True} if kv.mla else {})}
    elif "ctk" in options or "ctv" in options:
        kinds = {"k": options.get("ctk", "f16"), "v": options.get("ctv", "f16")}
    single = reading.n_slots in {None, 1} or reading.kv_unified
    return {
        "kv_type": kinds,
        "kv_mib": round(kv.mib, 2) if kv and kv.mib else None,
        "rs_mib": reading.rs_mib,
        "gpu_layers": reading.gpu_layers,
        "n_ctx": reading.n_ctx or (reading.n_ctx_slot if single else None),
        "n_ctx_slot": reading.n_ctx_slot,
        "n_slots": reading.n_slots,
        "devices": sorted(reading.gpus),
    }


def _checkpoints(reading: LogReading) -> dict[str, Any]:
    points = reading.checkpoints
    limit = points.max
    if limit is None and reading.options.get("ctxcp", "").isdigit():
        limit = int(reading.options["ctxcp"])
    return {
        "created": points.created,
        "restored": points.restored,
        "erased_invalidated": points.erased_invalidated,
        "erased_old": points.erased_old,
        "forced_full": points.forced_full,
        "max": limit,
        "oldest_n_tokens": points.oldest,
    }


def _oom(reading: LogReading) -> dict[str, Any] | None:
    oom = reading.oom
    return {"mib": oom.mib, "device": oom.device, "stage": oom.stage} if oom else None


def _crash(reading: LogReading) -> dict[str, Any] | None:
    crash = reading.crash
    if crash is None:
        return None
    return {key: value for key, value in asdict(crash).items() if value is not None}


def _vllm(reading: LogReading) -> dict[str, Any]:
    facts = reading.vllm
    if not facts.seen:
        return {"vllm": None}
    words = {name: getattr(facts, name) for name in VLLM_WORDS}
    known = {name: value for name, value in words.items() if value is not None}
    rates = {"pp_tps": facts.pp_tps, "tg_tps": facts.tg_tps} if facts.intervals else {}
    vllm = {
        name: words[name]
        for name in (
            "prefix_hit_rate", "kv_usage", "running", "waiting", "preemptions",
            "attention_block_size",
        )
    }  # fmt: skip
    return {"vllm": vllm, **known, **rates, "intervals": list(facts.intervals)}


def _wall(diagnosis: Diagnosis) -> dict[str, Any] | None:
    wall = diagnosis.wall
    if wall is None:
        return None
    return {
        "tg_tps": round(wall.tg_tps, 2),
        "limit_tps": round(wall.limit_tps, 2),
        "share": round(wall.share, 4),
        "message": wall.text,
    }


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return whether two logs can be compared, what differs, and the rates if they can."""
    return {
        "comparable": comparison.comparable,
        "differences": [asdict(one) for one in comparison.differences],
        "unknown": list(comparison.unknown),
        "rates": {name: {"a": a, "b": b} for name, a, b in comparison.rates},
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "priority": finding.priority,
        "level": finding.level,
        "cost_s": finding.cost_s,
        "message": finding.message,
        "fix": finding.fix,
        "reference": finding.reference,
        "count": finding.count,
        "evidence": [{"line": line.line, "text": line.text} for line in finding.evidence],
    }
