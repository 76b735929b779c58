"""Rules over the whole log: each returns what it found, or None."""

# ruff: noqa: D401 - the first words say which line, event or state is meant
from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.diagnose.finding import Hit, hit_of
from fleet.diagnose.read_log.log_reading import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleet.diagnose.read_log.log_reading import LogReading
    from fleet.diagnose.task_rules import TaskTally

    Rule = Callable[[LogReading, TaskTally], Hit | None]

FLOATS = frozenset({"f16", "bf16", "f32"})
NEAR_LIMIT = 0.9
BIG_STATE = 0.1
UNEQUAL = 4
GOOD_RATE, LOW_RATE, GOOD_LENGTH = 0.6, 0.4, 2.0
LOW_HITS = 0.3
KV_PRESSURE = 0.9
MANY_SPLITS = 50
SLOT_TOKENS = 4096
AUTOMATIC_SLOTS = 4  # without `--parallel`, and then one cache for all of them
DEEPSEEK_HEADS = 192 / 128  # K to V without the latent, 576 to 512 with it
BITS: Mapping[str, float] = {
    "f32": 32, "f16": 16, "bf16": 16, "q8_0": 8.5, "q5_1": 6, "q5_0": 5.5, "q4_1": 5, "q4_0": 4.5,
    "iq4_nl": 4.5, "q6_0": 6.5,
}  # fmt: skip


def event(kind: str) -> Rule:
    """Return the rule that reports an event as it was seen."""

    def rule(reading: LogReading, _tally: TaskTally) -> Hit | None:
        seen = reading.events.get(kind)
        return hit_of(seen.evidence, count=seen.count) if seen else None

    return rule


def task(code: str) -> Rule:
    """Return the rule that reports what the tasks were tallied under."""
    return lambda _reading, tally: tally.hits.get(code)


def _events(reading: LogReading, *kinds: str, detail: str = "") -> Hit:
    seen = [reading.events[kind] for kind in kinds if kind in reading.events]
    lines = sorted((line for one in seen for line in one.evidence), key=lambda line: line.line)
    return hit_of(lines, count=max(1, sum(one.count for one in seen)), detail=detail)


def cache_off_server(reading: LogReading, tally: TaskTally) -> Hit | None:
    """Caching is off for the server: said so, or similar prompts that reuse nothing."""
    if reading.count("cache-off"):
        return _events(reading, "cache-off")
    if "no_cache_prompt" in reading.options:
        return hit_of((), detail="the command line says so")
    hit = tally.hits.get("CACHE_OFF_SERVER")
    return hit if hit and not tally.cached_tasks and not reading.checkpoints.restored else None


def diverges_early(reading: LogReading, tally: TaskTally) -> Hit | None:
    """The prompt's beginning changes: tasks, prompt-cache look-ups, mismatch dumps."""
    hit = tally.hits.get("PREFIX_DIVERGES_EARLY")
    kinds = [kind for kind in ("lookup-diverges", "volatile-differs") if reading.count(kind)]
    if reading.lookup and "lookup-diverges" in kinds and _only_new_chats(reading, tally):
        kinds.remove("lookup-diverges")
    if hit is None and not kinds:
        return None
    if not kinds:
        return hit
    told = _events(reading, *kinds)
    return hit or told


def _only_new_chats(_reading: LogReading, tally: TaskTally) -> bool:
    return "SLOT_SIM_THRESHOLD_TOO_LOW" in tally.hits


def different_conversation(reading: LogReading, tally: TaskTally) -> Hit | None:
    """Another chat or a side request took the slot."""
    hit = tally.hits.get("DIFFERENT_CONVERSATION")
    return hit or _choice_hit(reading, tally)


def threshold_too_low(reading: LogReading, tally: TaskTally) -> Hit | None:
    """A slot was taken by similarity and lost nearly all it held."""
    return tally.hits.get("SLOT_SIM_THRESHOLD_TOO_LOW") or _choice_hit(reading, tally)


def _choice_hit(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """Judge a last slot choice whose task is not in the log any more."""
    choice = reading.slot_select or {}
    keep, sim = choice.get("f_keep"), choice.get("sim")
    if choice.get("by") not in {"LCP", "LCS"} or keep is None or sim is None:
        return None
    if float(keep) < 0.1 and float(sim) <= 0.5:  # noqa: PLR2004 - as in task_rules
        return hit_of((), detail=f"similarity {sim}, kept {keep}")
    return None


def prefix_stable(_reading: LogReading, tally: TaskTally) -> Hit | None:
    """Most tasks reuse nine tenths of their prompt."""
    hit = tally.hits.get("PREFIX_STABLE")
    return hit if hit and tally.stable * 2 >= tally.known else None


def interval_too_large(reading: LogReading, tally: TaskTally) -> Hit | None:
    """No checkpoint can lie inside the common prefix."""
    points = reading.checkpoints
    hit = tally.hits.get("CHECKPOINT_INTERVAL_GT_PREFIX")
    if points.spacing is not None and points.spacing < SLOT_TOKENS // 8:
        return None
    return hit if not points.created and not points.erased_invalidated else None


def invalidated(reading: LogReading, tally: TaskTally) -> Hit | None:
    """Checkpoints were thrown away, and something that the slot held was read again."""
    hit = tally.hits.get("CHECKPOINTS_INVALIDATED")
    if hit is None:
        return None
    told = _events(reading, "erased-invalidated")
    if told.count > EVIDENCE:  # the first lines can be of requests that lost nothing
        told.evidence = hit.evidence
    told.cost_s = hit.cost_s
    return told


def clustered(_reading: LogReading, tally: TaskTally) -> Hit | None:
    """All checkpoints that were thrown away lay in the last few percent."""
    hit = tally.hits.get("CHECKPOINTS_CLUSTERED_AT_TAIL")
    return hit if tally.at_tail >= 3 else None  # noqa: PLR2004


def thrash(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """The RAM cache throws prompts out, or is nearly full of very large ones."""
    if reading.count("cache-evicted"):
        return _events(reading, "cache-evicted", "state-saved")
    cache = reading.prompt_cache
    if not cache or cache["limit_mib"] <= 0:
        return None
    full = cache["mib"] >= NEAR_LIMIT * cache["limit_mib"]
    big = reading.saved_state_mib >= BIG_STATE * cache["limit_mib"]
    return _events(reading, "state-saved") if full and big else None


def over_limit(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """One state is larger than the whole RAM cache may be."""
    if reading.count("state-over-limit"):
        return _events(reading, "state-over-limit")
    cache = reading.prompt_cache or {"prompts": 0, "mib": 0.0, "limit_mib": _told_limit(reading)}
    if cache["limit_mib"] <= 0:
        return None
    alone = cache["prompts"] <= 1 and cache["mib"] > cache["limit_mib"]
    if alone or reading.saved_state_mib > cache["limit_mib"]:
        return _events(reading, "state-saved", detail=f"limit {cache['limit_mib']:g} MiB")
    return None


def _told_limit(reading: LogReading) -> int:
    """MiB that the command line allows the RAM cache, 0 where it does not say."""
    told = reading.options.get("cram", "")
    return int(told) if told.isdigit() else 0


def unbounded(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """The RAM cache has no limit."""
    cache = reading.prompt_cache
    zero = cache is not None and cache["limit_mib"] <= 0 < cache["prompts"]
    if zero or reading.count("cache-unbounded") or reading.options.get("cram") == "-1":
        return _events(reading, "cache-unbounded", "state-saved")
    return None


def no_checkpoints(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """Saved prompts carry no checkpoints, on a model that may need them to rewind."""
    dense = reading.plain_kv and not (reading.hybrid or reading.swa)
    if dense or reading.engine == "ik_llama.cpp" or reading.cached_prompts_with_checkpoints:
        return None
    return event("cached-without-checkpoints")(reading, _tally)


def spec_off(reading: LogReading, tally: TaskTally) -> Hit | None:
    """Nothing drafts: said so, or a whole start and finished tasks without a word of it."""
    if reading.draft_generated or reading.count("draft") or reading.count("spec-on"):
        return None
    if reading.count("spec-none"):
        hit = _events(reading, "spec-none")
    elif reading.gpu_layers and reading.build and tally.timed:
        hit = hit_of((), detail="no drafting line in a log with start and answers")
    else:
        return None
    return hit


def _acceptance(reading: LogReading) -> tuple[float | None, float | None]:
    if reading.vllm.draft_acceptance is not None:
        return reading.vllm.draft_acceptance, reading.vllm.mean_len
    if reading.draft_generated:
        rate = reading.draft_accepted / reading.draft_generated
        lengths = [one.mean_len for one in reading.tasks() if one.mean_len]
        return rate, (sum(lengths) / len(lengths) if lengths else None)
    return None, None


def spec_good(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """Drafts are accepted."""
    rate, length = _acceptance(reading)
    if rate is None or rate < LOW_RATE:
        return None
    if rate >= GOOD_RATE or (length or 0) >= GOOD_LENGTH:
        return _events(reading, "draft", "vllm-spec", detail=f"{rate:.0%} accepted")
    return None


def spec_low(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """Drafts are mostly thrown away."""
    rate, _ = _acceptance(reading)
    if rate is None or rate >= LOW_RATE:
        return None
    return _events(reading, "draft", "vllm-spec", detail=f"{rate:.1%} accepted")


def spec_no_gain(reading: LogReading, tally: TaskTally) -> Hit | None:
    """Tasks with drafts generate no faster than tasks without."""
    (spec, spec_s), (plain, plain_s) = tally.spec_tg, tally.plain_tg
    if not spec_s or not plain_s or min(spec, plain) < 64:  # noqa: PLR2004 - too short to compare
        return None
    if spec / spec_s > plain / plain_s:
        return None
    return _events(reading, "draft", detail=f"{spec / spec_s:.1f} against {plain / plain_s:.1f}")


def kv_f16(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """The cache is kept in 16 bits."""
    kv = reading.kv
    if kv and kv.k == "f16" and kv.v == "f16":
        return _events(reading, "kv-size", detail=f"{kv.mib:g} MiB")
    return None


def kv_on_cpu(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """An accelerator is there and the whole cache is not on it."""
    kv = reading.kv
    if "nkvo" in reading.options:
        return _events(reading, "kv-buffer", detail="`--no-kv-offload`")
    if not kv or not kv.buffers or not reading.gpus:
        return None
    on_host = all(name.startswith("CPU") for name in kv.buffers)
    return _events(reading, "kv-buffer") if on_host else None


def kv_no_mla(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """A DeepSeek model whose cache is not latent: full heads hold 192 for K and 128 for V."""
    kv = reading.kv
    bits = [BITS.get(kind or "") for kind in (kv.k, kv.v)] if kv else []
    if kv is None or kv.mla or not kv.v_mib or None in bits:
        return None
    heads = kv.k_mib / (bits[0] or 1) / (kv.v_mib / (bits[1] or 1))
    deepseek = (reading.arch or "deepseek2").startswith("deepseek")
    full = deepseek and abs(heads - DEEPSEEK_HEADS) < 0.02  # noqa: PLR2004 - printed digits
    return _events(reading, "kv-size", detail=f"{kv.mib:g} MiB") if full else None


def fa_off(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """Flash attention is off in the end."""
    if reading.flash_attn is True or not reading.count("fa-off"):
        return None
    return _events(reading, "fa-off")


def unequal(_reading: LogReading, tally: TaskTally) -> Hit | None:
    """Tasks of very different length: their rates must not be averaged or compared."""
    if tally.timed < 3 or len(tally.generated) < 2:  # noqa: PLR2004
        return None
    if not tally.shortest or tally.longest < UNEQUAL * tally.shortest:
        return None
    lengths = sorted(tally.generated)
    detail = (
        f"prompts of {tally.shortest} to {tally.longest} tokens, "
        f"answers of {lengths[0]} to {lengths[-1]}"
    )
    return hit_of((), count=tally.timed, detail=detail)


def verbosity(reading: LogReading, tally: TaskTally) -> Hit | None:
    """Requests were served and no line says what was reused, or none names them at all."""
    if reading.live.get("gen_tokens") and not reading.task_count:
        return hit_of((), detail="the server counts requests that its log does not hold")
    if reading.generation != "gen3-ts" or reading.kv is not None:
        return None
    traced = "reuse" in reading.marks or reading.checkpoints.created or reading.checkpoints.restored
    if traced or reading.checkpoints.forced_full or not tally.without_reuse_line:
        return None
    return hit_of((), count=tally.without_reuse_line)


def gpu_not_used(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """No layer is on the accelerator."""
    if reading.count("no-gpu"):
        return _events(reading, "no-gpu")
    if not reading.count("no-layers"):
        return None
    return _events(reading, "no-layers", "kv-buffer")


def partial_offload(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """Some layers are not on the accelerator."""
    if reading.gpu_layers and reading.count("some-layers"):
        return _events(reading, "some-layers")
    return None


def cpu_experts(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """Experts are computed on the CPU."""
    if reading.count("experts-on-cpu") or {"ncmoe", "cmoe"} & reading.options.keys():
        return _events(reading, "experts-on-cpu")
    if (reading.graph_splits or 0) >= MANY_SPLITS and not reading.count("some-layers"):
        return _events(reading, "splits", detail=f"{reading.graph_splits} graph splits")
    return None


def slow_pp(reading: LogReading, tally: TaskTally) -> Hit | None:
    """Prompts of a batch or more are read slowly although an accelerator is there."""
    return tally.hits.get("SLOW_PP") if reading.gpus else None


def overcommit(reading: LogReading, tally: TaskTally) -> Hit | None:
    """Several slots share a context too small for them."""
    if reading.count("slot-purged"):
        return _events(reading, "slot-purged")
    slots, context = reading.n_slots or 0, reading.n_ctx or reading.n_ctx_slot
    automatic = reading.kv_unified is None and slots == AUTOMATIC_SLOTS
    if not (reading.kv_unified or automatic) or slots < 2 or not context:  # noqa: PLR2004
        return None
    crowded = tally.largest > context / slots or reading.count("kv-full", "ctx-exceeded")
    silent = not tally.released and context < SLOT_TOKENS * slots
    return hit_of((), detail=f"{slots} slots share {context} tokens") if crowded or silent else None


def oom(stage: str) -> Rule:
    """Return the rule for a failed allocation on the device at that stage."""

    def rule(reading: LogReading, _tally: TaskTally) -> Hit | None:
        failed = reading.oom
        if failed is None or failed.retried or not reading.count("oom"):
            return None
        return _events(reading, "oom") if (failed.stage or _likely(reading)) == stage else None

    return rule


def _likely(reading: LogReading) -> str:
    if reading.kv is not None or reading.task_count:
        return "compute"
    return "model"


def crash(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """The engine died."""
    if reading.count("crash"):
        return _events(reading, "crash")
    known = any(reading.count(kind) for kind in ("oom", "oom-host", "model-missing", "port-in-use"))
    return _events(reading, "aborted") if reading.count("aborted") and not known else None


def vllm_hits(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """Few prompt tokens are found in vLLM's prefix cache."""
    facts = reading.vllm
    if facts.prefix_hit_rate is None or facts.prefix_hit_rate >= LOW_HITS:
        return None
    busy = (
        facts.prefix_queries
        or (facts.running or 0)
        or any(interval["pp"] for interval in facts.intervals)
    )
    kinds = ("vllm-stats", "vllm-hit", "vllm:prefix_cache_queries", "vllm:prefix_cache_hits")
    return _events(reading, *kinds, detail=f"{facts.prefix_hit_rate:.1%}") if busy else None


def vllm_pressure(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """The cache of vLLM is nearly full."""
    peak = reading.vllm.peak_kv_usage
    return _events(reading, "vllm-stats", detail=f"{peak:.1%}") if peak > KV_PRESSURE else None


def vllm_preempted(reading: LogReading, _tally: TaskTally) -> Hit | None:
    """Requests were thrown out and computed again."""
    if not reading.vllm.preemptions:
        return None
    return _events(reading, "vllm-preemption", "vllm:num_preemptions")


RULES: Mapping[str, Rule] = {
    "CACHE_OFF_SERVER": cache_off_server,
    "CACHE_OFF_REQUEST": task("CACHE_OFF_REQUEST"),
    "FULL_REPROCESS_SWA_HYBRID": lambda reading, tally: (
        tally.hits.get("FULL_REPROCESS_SWA_HYBRID")
        or event("forced-full")(reading, tally)
        or event("none-usable")(reading, tally)
    ),
    "CHECKPOINT_NONE_USABLE": lambda reading, tally: (
        tally.hits.get("CHECKPOINT_NONE_USABLE") or event("none-usable")(reading, tally)
    ),
    "CHECKPOINT_INTERVAL_GT_PREFIX": interval_too_large,
    "CHECKPOINTS_INVALIDATED": invalidated,
    "CHECKPOINTS_CLUSTERED_AT_TAIL": clustered,
    "CHECKPOINT_RING_FULL": event("ring-full"),
    "CHECKPOINT_RESTORED": event("restored"),
    "CHECKPOINT_RESTORE_FAILED": event("restore-failed"),
    "PREFIX_DIVERGES_EARLY": diverges_early,
    "PREFIX_DIVERGES_LATE": task("PREFIX_DIVERGES_LATE"),
    "PREFIX_STABLE": prefix_stable,
    "PARTIAL_REUSE": task("PARTIAL_REUSE"),
    "COLD_START": task("COLD_START"),
    "DIFFERENT_CONVERSATION": different_conversation,
    "SLOT_LRU_MISS": event("lru-miss"),
    "SLOT_SIM_THRESHOLD_TOO_LOW": threshold_too_low,
    "PROMPT_CACHE_THRASH": thrash,
    "PROMPT_CACHE_NO_CHECKPOINTS": no_checkpoints,
    "PROMPT_CACHE_UNBOUNDED": unbounded,
    "CACHE_RAM_OVER_LIMIT": over_limit,
    "CACHE_REUSE_DISABLED_MULTIMODAL": event("reuse-off-mmproj"),
    "CONTEXT_SHIFT": event("context-shift"),
    "TRUNCATED_CONTEXT_FULL": event("truncated"),
    "TOOL_ORDER_CHANGED": event("tools-differ"),
    "THINK_STRIPPED": lambda reading, tally: (
        tally.hits.get("THINK_STRIPPED") or event("think-differs")(reading, tally)
    ),
    "EOS_DUPLICATED_IN_CACHE": event("eos-differs"),
    "VLLM_PREFIX_HIT_LOW": vllm_hits,
    "VLLM_HYBRID_BLOCK_LARGE": event("vllm-block"),
    "VLLM_KV_PRESSURE": vllm_pressure,
    "SPEC_OFF": spec_off,
    "SPEC_ACTIVE_GOOD": spec_good,
    "SPEC_LOW_ACCEPTANCE": spec_low,
    "SPEC_NO_GAIN": spec_no_gain,
    "KV_F16": kv_f16,
    "KV_QUANT_NEEDS_FA": event("kv-needs-fa"),
    "KV_ON_CPU": kv_on_cpu,
    "KV_NO_MLA": kv_no_mla,
    "FA_OFF": fa_off,
    "UNEQUAL_CONDITIONS": unequal,
    "VERBOSITY_TOO_LOW": verbosity,
    "TG_HIT_BY_CONCURRENCY": task("TG_HIT_BY_CONCURRENCY"),
    "GPU_NOT_USED": gpu_not_used,
    "PARTIAL_OFFLOAD": partial_offload,
    "CPU_EXPERTS": cpu_experts,
    "SLOW_PP": slow_pp,
    "NUMA_BALANCING_ON": event("numa-balancing"),
    "PINNED_ALLOC_FAILED": event("pinned-failed"),
    "CUDA_INIT_FAILED": event("cuda-init-failed"),
    "OOM_RETRY_NO_PIPELINE": event("oom-retry"),
    "UNIFIED_KV_OVERCOMMIT": overcommit,
    "MODEL_IS_HYBRID": event("recurrent"),
    "OOM_GPU_MODEL": oom("model"),
    "OOM_GPU_KV": oom("kv"),
    "OOM_GPU_COMPUTE": oom("compute"),
    "OOM_HOST": event("oom-host"),
    "PORT_IN_USE": event("port-in-use"),
    "MODEL_FILE_MISSING": event("model-missing"),
    "UNKNOWN_ARGUMENT": event("unknown-argument"),
    "REMOVED_ARGUMENT": event("removed-argument"),
    "CRASH": crash,
    "CTX_EXCEEDED": event("ctx-exceeded"),
    "KV_FULL": event("kv-full"),
    "VLLM_KV_TOO_SMALL": event("vllm-kv-small"),
    "VLLM_PREEMPTION": vllm_preempted,
}
