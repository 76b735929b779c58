"""The one table of settings: every word a profile may use, one row each.

A row says what the value may be, when it is fixed, and whether it can change what the
model answers. How an engine build spells it is the dialects' business
(`compiler/dialects/`). `None` or the word `default` leaves a setting to the engine.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from fleet.errors import UserError
from fleet.sizes import MIB, ByteSize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SettingScalar = str | int | float | bool | None
SettingKind = Literal["int", "float", "bool", "choice", "choices", "text", "path", "layers", "mib"]
Fixed = Literal["load", "context", "request", "container"]

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
IK_KV_TYPES = ("q6_0", "q8_KV")  # ik_llama.cpp only
SPECULATION_TYPES = (
    "none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark",
    "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache",
)  # fmt: skip
LOAD_MODES = ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingRow:
    """One setting.

    `fixed` says what a change costs: a new load of the model, a new context (the engines
    restart for both), nothing (sent with each request), or a new container. `lossless` is
    False where the value can change the answers. `dangerous` ones need `allow_dangerous`.
    `engine` names the only engine that knows it.
    """

    name: str
    kind: SettingKind
    fixed: Fixed
    meaning: str
    lossless: bool = True
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""
    dangerous: bool = False
    engine: Literal["ik_llama.cpp", "vllm"] | None = None


def _rows() -> Iterable[SettingRow]:
    yield from _processor()
    yield from _context()
    yield from _prompt_cache()
    yield from _placement()
    yield from _speculation()
    yield from _template()
    yield from _sampling()
    yield from _server()
    yield from _container()
    yield from (replace(row, engine="ik_llama.cpp") for row in _ik())
    yield from (replace(row, engine="vllm") for row in _vllm())


def _int(
    name: str,
    fixed: Fixed,
    low: int,
    high: int,
    meaning: str,
    unit: str = "",
    *,
    lossless: bool = True,
) -> SettingRow:
    return SettingRow(
        name=name, kind="int", fixed=fixed, meaning=meaning, minimum=low, maximum=high,
        unit=unit, lossless=lossless,
    )  # fmt: skip


def _float(
    name: str, fixed: Fixed, low: float, high: float, meaning: str, *, lossless: bool = True
) -> SettingRow:
    return SettingRow(
        name=name, kind="float", fixed=fixed, meaning=meaning, minimum=low, maximum=high,
        lossless=lossless,
    )  # fmt: skip


def _bool(
    name: str, fixed: Fixed, meaning: str, *, lossless: bool = True, dangerous: bool = False
) -> SettingRow:
    return SettingRow(
        name=name, kind="bool", fixed=fixed, meaning=meaning, lossless=lossless,
        dangerous=dangerous,
    )  # fmt: skip


def _choice(
    name: str, fixed: Fixed, choices: tuple[str, ...], meaning: str, *, lossless: bool = True
) -> SettingRow:
    return SettingRow(
        name=name, kind="choice", fixed=fixed, meaning=meaning, choices=choices, lossless=lossless
    )


def _text(
    name: str, fixed: Fixed, meaning: str, *, lossless: bool = True, dangerous: bool = False
) -> SettingRow:
    return SettingRow(
        name=name, kind="text", fixed=fixed, meaning=meaning, lossless=lossless,
        dangerous=dangerous,
    )  # fmt: skip


def _path(name: str, fixed: Fixed, meaning: str, *, lossless: bool = True) -> SettingRow:
    return SettingRow(name=name, kind="path", fixed=fixed, meaning=meaning, lossless=lossless)


def _mib(name: str, fixed: Fixed, low: int, high: int, meaning: str) -> SettingRow:
    return SettingRow(
        name=name, kind="mib", fixed=fixed, meaning=meaning, minimum=low, maximum=high, unit="MiB"
    )


def _processor() -> Iterable[SettingRow]:
    yield _int("threads", "context", 1, 512, "CPU threads that generate")
    yield _int("threads_batch", "context", 1, 512, "CPU threads that read prompts")
    yield _int("threads_http", "context", 1, 512, "threads that answer HTTP")
    yield _text("cpu_mask", "context", "hex mask of the CPUs of the generating threads")
    yield _text("cpu_range", "context", "CPUs of the generating threads, for instance `0-12`")
    yield _text("cpu_mask_batch", "context", "hex mask of the CPUs of the prompt threads")
    yield _text("cpu_range_batch", "context", "CPUs of the prompt threads, for instance `0-15`")
    yield _bool("cpu_strict", "context", "pin each thread to one CPU of its mask")
    yield _int("prio", "context", -1, 3, "priority of the generating threads, 3 is real time")
    yield _int("prio_batch", "context", 0, 3, "priority of the prompt threads")
    yield _int("poll", "context", 0, 100, "how hard idle threads poll, 0 sleeps", "%")
    yield _int("poll_batch", "context", 0, 1, "whether idle prompt threads poll")
    yield _choice(
        "numa", "load", ("off", "distribute", "isolate", "numactl"), "how threads spread over nodes"
    )


def _context() -> Iterable[SettingRow]:
    yield _int(
        "ctx_size", "context", 1, 2**31 - 1,
        "context of all slots together (vLLM: of one request)", "tokens",
    )  # fmt: skip
    yield _int("parallel", "context", 1, 1024, "slots: requests answered at once")
    yield _bool("kv_unified", "context", "one pool of KV cells that every slot may use")
    yield _int(
        "kv_unified_per_slot", "context", 1, 2**31 - 1,
        "cells that one slot may take of the pool", "tokens",
    )  # fmt: skip
    yield _int("batch_size", "context", 1, 2**20, "tokens read in one logical batch", "tokens")
    yield _int("ubatch_size", "context", 1, 2**20, "tokens computed at once", "tokens")
    yield _choice("flash_attention", "context", ("on", "off", "auto"), "fused attention kernel")
    for half in ("k", "v"):
        yield _choice(
            f"cache_type_{half}", "context", (*KV_TYPES, *IK_KV_TYPES),
            f"number format of the {half.upper()} cache", lossless=False,
        )  # fmt: skip
    yield _bool("kv_rotation", "context", "rotate a quantized KV cache", lossless=False)
    yield _bool("swa_full", "context", "full-size cache for sliding-window layers")
    yield _bool(
        "context_shift", "context", "drop the oldest half when the context is full", lossless=False
    )
    yield _bool("cont_batching", "context", "take new requests into a running batch")
    yield _bool("kv_offload", "context", "KV cache on the accelerator")
    yield _bool("op_offload", "context", "large host operations on the accelerator")
    yield _choice(
        "rope_scaling", "context", ("none", "linear", "yarn"), "how positions are stretched",
        lossless=False,
    )  # fmt: skip
    yield _float("rope_scale", "context", 0.01, 1024, "stretch of the context", lossless=False)
    yield _float("rope_freq_base", "context", 0, 1e12, "base of the rotation", lossless=False)
    yield _float("rope_freq_scale", "context", 0, 1024, "scale of the rotation", lossless=False)
    yield _int(
        "yarn_orig_ctx", "context", 0, 2**31 - 1, "context that the model was trained with",
        "tokens", lossless=False,
    )  # fmt: skip
    for name in ("ext_factor", "attn_factor", "beta_slow", "beta_fast"):
        yield _float(
            f"yarn_{name}", "context", -1, 1024, f"YaRN's {name.replace('_', ' ')}", lossless=False
        )


def _prompt_cache() -> Iterable[SettingRow]:
    yield _int("swa_checkpoints", "context", 0, 4096, "context checkpoints kept for each slot")
    yield _int(
        "checkpoint_interval", "context", 0, 2**31 - 1, "least distance of two checkpoints",
        "tokens",
    )  # fmt: skip
    yield _mib("cache_ram", "context", -1, 2**24, "host memory for past prompts; -1 no limit")
    yield _bool("cache_idle_slots", "context", "put idle slots' prompts into that memory")
    yield _bool("cache_prompt", "request", "reuse what a slot has already read")
    yield _int(
        "cache_reuse", "context", 0, 2**20, "least chunk reused by shifting, 0 off", "tokens",
        lossless=False,
    )  # fmt: skip
    yield _float(
        "slot_prompt_similarity", "context", 0, 1, "likeness that makes a request take a slot"
    )
    yield _path("slot_save_path", "context", "folder for saved slots")


def _placement() -> Iterable[SettingRow]:
    yield SettingRow(
        name="gpu_layers", kind="layers", fixed="load", minimum=0, maximum=9999,
        meaning="layers on accelerators: a number, `all`, `auto`",
    )  # fmt: skip
    yield _bool("cpu_moe", "load", "all experts' weights in host memory")
    yield _int("cpu_moe_layers", "load", 0, 9999, "layers whose experts stay in host memory")
    yield _int("cpu_ffn_layers", "load", 0, 9999, "layers whose FFN stays in host memory")
    yield _mib("moe_cache", "load", 0, 2**24, "accelerator cache of experts in host memory")
    yield _choice(
        "split_mode", "load", ("none", "layer", "row", "tensor", "graph", "attn"),
        "how a model lies on several devices",
    )  # fmt: skip
    yield _text("tensor_split", "load", "shares of the devices, for instance `3,1`")
    yield _int("main_gpu", "load", 0, 63, "device of small tensors")
    yield _text("devices", "load", "devices by the engine's names, in order")
    yield _text("override_tensor", "load", "pattern=buffer pairs for tensors by name")
    yield _bool("fit", "load", "let the engine change unset settings to fit memory")
    yield _text("fit_target", "load", "memory to leave free for each device, MiB")
    yield _int("fit_ctx", "load", 256, 2**31 - 1, "least context that fit may leave", "tokens")
    yield _choice("load_mode", "load", LOAD_MODES, "how weights come into memory")
    yield _choice("lazy_mode", "load", ("auto", "on", "off"), "read huge tensors when needed")
    yield _bool("repack", "load", "repack weights for this CPU")
    yield _bool("no_host", "load", "bypass the pinned host buffer")
    yield _bool("check_tensors", "load", "look for invalid weights while loading")
    yield _bool("warmup", "load", "run the model once before the first request")
    yield _path("lora", "load", "LoRA adapters, comma-separated", lossless=False)
    yield _path("mmproj", "load", "projector for images and sound")
    yield _bool("mmproj_offload", "load", "projector on the accelerator")
    yield _int("image_min_tokens", "load", 1, 2**20, "least tokens of an image", lossless=False)
    yield _int("image_max_tokens", "load", 1, 2**20, "most tokens of an image", lossless=False)


def _speculation() -> Iterable[SettingRow]:
    yield SettingRow(
        name="speculation", kind="choices", fixed="context", choices=SPECULATION_TYPES,
        meaning="kinds of speculative decoding, comma-separated",
    )  # fmt: skip
    yield _path("draft_model", "load", "draft model for speculation")
    yield _int("draft_max", "context", 1, 1024, "most tokens drafted at once", "tokens")
    yield _int("draft_min", "context", 0, 1024, "least tokens worth drafting", "tokens")
    yield _float("draft_p_min", "context", 0, 1, "least probability of a drafted token")
    yield _float("draft_p_split", "context", 0, 1, "probability that splits a draft")
    yield _choice("draft_sampling", "context", ("greedy", "probabilistic"), "how drafts are drawn")
    yield SettingRow(
        name="draft_gpu_layers", kind="layers", fixed="load", minimum=0, maximum=9999,
        meaning="draft layers on accelerators: a number, `all`, `auto`",
    )  # fmt: skip
    yield _text("draft_devices", "load", "devices of the draft model")
    for half in ("k", "v"):
        yield _choice(
            f"draft_cache_type_{half}", "context", KV_TYPES,
            f"number format of the draft's {half.upper()} cache",
        )  # fmt: skip
    yield _int("draft_threads", "context", 1, 512, "CPU threads of the draft model")
    yield _int("draft_threads_batch", "context", 1, 512, "its CPU threads for prompts")
    yield _bool("draft_cpu_moe", "load", "the draft's experts in host memory")
    yield _int("draft_cpu_moe_layers", "load", 0, 9999, "draft layers with experts in host memory")
    yield _int("ngram_size_n", "context", 1, 1024, "length of the n-gram looked up", "tokens")
    yield _int("ngram_size_m", "context", 1, 1024, "length of the n-gram drafted", "tokens")
    yield _int("ngram_min_hits", "context", 1, 1024, "hits before an n-gram is drafted")
    yield _int("ngram_mod_match", "context", 1, 1024, "ngram-mod: length looked up", "tokens")
    yield _int("ngram_mod_min", "context", 0, 1024, "ngram-mod: least drafted", "tokens")
    yield _int("ngram_mod_max", "context", 1, 1024, "ngram-mod: most drafted", "tokens")
    yield _path("lookup_cache_static", "load", "n-gram file that is only read")
    yield _path("lookup_cache_dynamic", "load", "n-gram file that generation updates")


def _template() -> Iterable[SettingRow]:
    yield _bool("jinja", "load", "use the model's own chat template", lossless=False)
    yield _text("chat_template", "load", "name or text of a chat template", lossless=False)
    yield _path("chat_template_file", "load", "file of a chat template", lossless=False)
    yield _text("chat_template_kwargs", "load", "JSON handed to the template", lossless=False)
    yield _choice(
        "reasoning", "load", ("on", "off", "auto"), "thinking, the same for every request",
        lossless=False,
    )  # fmt: skip
    yield _choice(
        "reasoning_format", "load", ("auto", "none", "deepseek", "deepseek-legacy"),
        "where thoughts are put in the answer",
    )  # fmt: skip
    yield _int(
        "reasoning_budget", "load", -1, 2**31 - 1, "tokens of thinking, -1 no limit", "tokens",
        lossless=False,
    )  # fmt: skip
    yield _text("reasoning_effort", "load", "effort word for the template", lossless=False)
    yield _bool("reasoning_preserve", "load", "keep past thoughts in the prompt", lossless=False)
    yield _bool("prefill_assistant", "load", "continue a last assistant message", lossless=False)


def _sampling() -> Iterable[SettingRow]:
    for name, low, high, meaning in (
        ("temperature", 0.0, 100.0, "default temperature"),
        ("top_p", 0.0, 1.0, "default nucleus"),
        ("min_p", 0.0, 1.0, "default least share of the likeliest"),
        ("typical_p", 0.0, 1.0, "default typical sampling"),
        ("repeat_penalty", 0.0, 100.0, "default penalty of repetition"),
        ("presence_penalty", -100.0, 100.0, "default penalty of presence"),
        ("frequency_penalty", -100.0, 100.0, "default penalty of frequency"),
    ):
        yield _float(name, "request", low, high, meaning, lossless=False)
    yield _int("top_k", "request", 0, 2**20, "default candidates", lossless=False)
    yield _int("repeat_last_n", "request", 0, 2**20, "tokens penalised", lossless=False)
    yield _int("seed", "request", -1, 2**32 - 1, "default seed, -1 random", lossless=False)
    yield _int("n_predict", "request", -1, 2**31 - 1, "most tokens generated", "tokens")
    yield _text("samplers", "request", "samplers in order, `;` between", lossless=False)


def _server() -> Iterable[SettingRow]:
    yield _text("alias", "load", "name of the model in the API")
    yield _bool("metrics", "load", "the /metrics endpoint")
    yield _bool("slots", "load", "the /slots endpoint")
    yield _int("timeout", "load", 1, 10**6, "read and write time-out", "s")
    yield _int("log_verbosity", "load", 0, 5, "level of the log, 4 shows cache and memory")
    yield _bool("log_timestamps", "load", "times in the log")
    yield _bool("ui", "load", "the web interface")
    yield _text("cors_origins", "load", "origins that browsers may call from")
    yield _text("api_prefix", "load", "path before every endpoint")
    yield _int("sse_ping_interval", "load", 0, 10**6, "pause between keep-alive events", "s")
    yield _int("sleep_idle_seconds", "load", -1, 10**7, "idle time before unloading", "s")
    yield _bool("embeddings", "context", "embeddings only")
    yield _bool("reranking", "context", "reranking endpoint")
    yield _choice("pooling", "context", ("none", "mean", "cls", "last", "rank"), "pooling")
    yield _text("override_kv", "load", "changed model metadata", lossless=False, dangerous=True)
    yield _text("tools", "load", "tools that the server runs itself", dangerous=True)
    yield _bool("agent", "load", "agent mode of the server", dangerous=True)
    yield _bool("props", "load", "settings changeable over HTTP", dangerous=True)
    yield _text("media_path", "load", "folder that requests may read", dangerous=True)
    yield _text("static_path", "load", "folder served over HTTP", dangerous=True)
    yield _bool("ui_mcp_proxy", "load", "proxy of the web interface", dangerous=True)


def _container() -> Iterable[SettingRow]:
    yield _text("cpuset", "container", "CPUs of the server, for instance `0-12`")
    yield _text("cpuset_mems", "container", "memory nodes of the server, for instance `0`")
    yield _mib("shm_size", "container", 1, 2**24, "size of /dev/shm")
    yield _choice("network", "container", ("bridge", "host"), "network of the container")


def _ik() -> Iterable[SettingRow]:
    yield _int(
        "checkpoint_tolerance", "context", 0, 2**20, "distance of a checkpoint from the end",
        "tokens",
    )  # fmt: skip
    yield _float("cache_ram_similarity", "context", 0, 1, "likeness that takes a past prompt")
    yield _int("mla_attention", "context", 0, 3, "kind of MLA attention")
    yield _mib("attention_max_batch", "context", 0, 2**20, "most memory of an attention batch")
    yield _bool("fused_moe", "context", "experts' products fused")
    yield _bool("graph_reuse", "context", "reuse of compute graphs")
    yield _bool("runtime_repack", "load", "repack weights to interleaved forms")
    yield _text("expert_reduction", "context", "fewer experts, `min,threshold`", lossless=False)
    yield _bool("grouped_experts", "context", "grouped expert routing", lossless=False)
    yield _bool("k_cache_hadamard", "context", "Hadamard transform of the K cache", lossless=False)
    yield _bool("v_cache_hadamard", "context", "Hadamard transform of the V cache", lossless=False)
    yield _bool("merge_qkv", "load", "merge Q, K and V")
    yield _bool("merge_up_gate", "load", "merge up and gate of the experts")
    yield _bool("swa_compress", "context", "small cache for sliding-window layers")
    yield _bool("huge_pages", "load", "transparent huge pages for weights")


def _vllm() -> Iterable[SettingRow]:
    yield _int("tensor_parallel", "load", 1, 1024, "devices that share each layer")
    yield _int("pipeline_parallel", "load", 1, 1024, "devices that share the layers")
    yield _float("gpu_memory_utilization", "load", 0.01, 1, "share of device memory taken")
    yield _int("max_num_seqs", "load", 1, 2**16, "requests computed at once")
    yield _int("max_num_batched_tokens", "load", 1, 2**24, "tokens of one step", "tokens")
    yield _bool("prefix_caching", "load", "reuse of shared prefixes")
    yield _int(
        "prefix_retention_interval", "load", 0, 2**24,
        "tokens between kept states of a prefix, 0 only the replay boundary", "tokens",
    )  # fmt: skip
    yield _int("prefix_match_unit", "load", 1, 2**20, "finest boundary of a hit", "tokens")
    yield _choice(
        "kv_cache_dtype", "load",
        ("auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla", "nvfp4"),
        "number format of vLLM's KV cache", lossless=False,
    )  # fmt: skip
    yield _int("block_size", "load", 1, 8192, "tokens of one KV block", "tokens")
    yield _choice(
        "dtype", "load", ("auto", "half", "float16", "bfloat16", "float", "float32"),
        "number format of the computation", lossless=False,
    )  # fmt: skip
    yield _text("quantization", "load", "quantization method of the weights", lossless=False)
    yield _bool("enforce_eager", "load", "no CUDA graphs")
    yield _bool("chunked_prefill", "load", "prompts in chunks between decodes")
    yield _bool("expert_parallel", "load", "experts spread over devices")
    yield _bool("async_scheduling", "load", "schedule the next step early")
    yield _bool("swa_bounded_replay", "load", "recompute the last window instead of storing it")
    yield _choice("mamba_cache_mode", "load", ("none", "align"), "where recurrent states are kept")
    yield _text("speculative_config", "load", "vLLM's speculation, as JSON")
    yield _text("reasoning_parser", "load", "parser of thoughts")
    yield _text("tool_call_parser", "load", "parser of tool calls")
    yield _text("tokenizer_mode", "load", "mode of the tokenizer")
    yield _bool("trust_remote_code", "load", "run code of the model repository", dangerous=True)
    yield _bool("prompt_tokens_details", "load", "cached tokens in each answer's usage")
    yield _float("kv_offload_gib", "load", 0, 2**16, "host memory for the KV cache, GiB")
    yield _int("master_port", "load", 1, 65535, "port on which the nodes meet")
    yield _text("nccl_ib_hca", "container", "InfiniBand devices of the fabric, comma-separated")
    yield _int("nccl_ib_gid_index", "container", 0, 255, "GID index of the fabric")


SETTINGS: Mapping[str, SettingRow] = MappingProxyType({row.name: row for row in _rows()})

_TRUE = frozenset({"true", "on", "yes", "1"})
_FALSE = frozenset({"false", "off", "no", "0"})


def parse_setting(name: str, value: object) -> SettingScalar:
    """Return `value` as the setting's own kind; text from `--set` and YAML values alike.

    Raises `UserError` for an unknown name (with the near one), a wrong kind, a value out
    of bounds or not among the choices.
    """
    row = SETTINGS.get(name)
    if row is None:
        near = difflib.get_close_matches(name, SETTINGS, n=1)
        fix = f"did you mean `{near[0]}`?" if near else "see `fleet schema deployment`"
        raise UserError("unknown setting", where=name, fix=fix)
    if value is None or value == "default":
        return None
    return _PARSERS[row.kind](row, value)


def _wrong(row: SettingRow, value: object, wanted: str) -> UserError:
    return UserError(f"`{value}` is not {wanted}", where=row.name, fix=row.meaning)


def _bounded(row: SettingRow, value: float, shown: object) -> None:
    low, high = row.minimum, row.maximum
    if (low is not None and value < low) or (high is not None and value > high):
        unit = f" {row.unit}" if row.unit else ""
        raise _wrong(row, shown, f"between {_shown(low)} and {_shown(high)}{unit}")


def _shown(bound: float | None) -> str:
    return f"{bound:,.0f}" if bound is not None and bound == int(bound) else f"{bound:g}"


_ENOUGH = 40  # digits of a number beyond every bound; Python reads no more than 4300


def _parse_int(row: SettingRow, value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d+\s*", value, re.ASCII):
        value = int(value.strip()[:_ENOUGH])
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(row, value, "a whole number")
    _bounded(row, value, value)
    return int(value)


def _parse_float(row: SettingRow, value: object) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise _wrong(row, value, "a number") from None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise _wrong(row, value, "a number")
    _bounded(row, value, value)
    return float(value)


def _parse_bool(row: SettingRow, value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise _wrong(row, value, "true or false")


def _parse_choice(row: SettingRow, value: object) -> str:
    if isinstance(value, bool):  # YAML reads a bare `on` and `off` as truth values
        value = "on" if value else "off"
    if value not in row.choices:
        raise _wrong(row, value, f"one of {', '.join(row.choices)}")
    return str(value)


def _parse_choices(row: SettingRow, value: object) -> str:
    words = [word.strip() for word in str(value).split(",")]
    for word in words:
        _parse_choice(row, word)
    return ",".join(words)


def _parse_text(row: SettingRow, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _wrong(row, value, "text")
    text = str(value)
    if not text.strip() or "\0" in text or "\n" in text.strip():
        raise _wrong(row, value, "one line of text")
    return text


def _parse_layers(row: SettingRow, value: object) -> int | str:
    if value in {"all", "auto"}:
        return str(value)
    try:
        return _parse_int(row, value)
    except UserError:
        raise _wrong(row, value, "a number of layers, `all` or `auto`") from None


def _parse_mib(row: SettingRow, value: object) -> int:
    """MiB as a whole number, or a size with its unit such as `8 GiB`."""
    if isinstance(value, str) and value.strip()[-1:].isalpha():
        value = int(ByteSize.parse(value)) // MIB
    return _parse_int(row, value)


_PARSERS: Mapping[SettingKind, Callable[[SettingRow, object], SettingScalar]] = {
    "int": _parse_int,
    "float": _parse_float,
    "bool": _parse_bool,
    "choice": _parse_choice,
    "choices": _parse_choices,
    "text": _parse_text,
    "path": _parse_text,
    "layers": _parse_layers,
    "mib": _parse_mib,
}
