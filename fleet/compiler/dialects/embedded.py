"""The embedded engine: the same settings as attributes of xllamacpp's `CommonParams`.

Dots lead into parts; words such as `q8_0` or `on` stand for members of the binding's enums.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from fleet.compiler.dialects.llama_cpp_speculation import SPECULATION_SETTINGS
from fleet.errors import CannotExpress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.compiler.dialects.spelling import Settings, Wish

Attributes = tuple[tuple[str, "str | int | float | bool | None"], ...]
_ALL_LAYERS = 999

_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "threads": "cpuparams.n_threads",
        "threads_batch": "cpuparams_batch.n_threads",
        "threads_http": "n_threads_http",
        "cpu_strict": "cpuparams.strict_cpu",
        "poll": "cpuparams.poll",
        "poll_batch": "cpuparams_batch.poll",
        "ctx_size": "n_ctx",
        "parallel": "n_parallel",
        "kv_unified": "kv_unified",
        "kv_unified_per_slot": "kv_unified_per_slot",
        "batch_size": "n_batch",
        "ubatch_size": "n_ubatch",
        "cache_type_k": "cache_type_k",
        "cache_type_v": "cache_type_v",
        "swa_full": "swa_full",
        "context_shift": "ctx_shift",
        "cont_batching": "cont_batching",
        "rope_scaling": "rope_scaling_type",
        "rope_freq_base": "rope_freq_base",
        "rope_freq_scale": "rope_freq_scale",
        "yarn_orig_ctx": "yarn_orig_ctx",
        "yarn_ext_factor": "yarn_ext_factor",
        "yarn_attn_factor": "yarn_attn_factor",
        "yarn_beta_slow": "yarn_beta_slow",
        "yarn_beta_fast": "yarn_beta_fast",
        "swa_checkpoints": "n_ctx_checkpoints",
        "checkpoint_interval": "checkpoint_min_step",
        "cache_ram": "cache_ram_mib",
        "cache_idle_slots": "cache_idle_slots",
        "cache_prompt": "cache_prompt",
        "cache_reuse": "n_cache_reuse",
        "slot_prompt_similarity": "slot_prompt_similarity",
        "slot_save_path": "slot_save_path",
        "split_mode": "split_mode",
        "main_gpu": "main_gpu",
        "fit": "fit_params",
        "fit_ctx": "fit_params_min_ctx",
        "lazy_mode": "lazy_mode",
        "no_host": "no_host",
        "check_tensors": "check_tensors",
        "warmup": "warmup",
        "mmproj": "mmproj.path",
        "mmproj_offload": "mmproj_use_gpu",
        "image_min_tokens": "image_min_tokens",
        "image_max_tokens": "image_max_tokens",
        "speculation": "speculative.types",
        "draft_model": "speculative.draft.mparams.path",
        "draft_max": "speculative.draft.n_max",
        "draft_min": "speculative.draft.n_min",
        "draft_p_min": "speculative.draft.p_min",
        "draft_p_split": "speculative.draft.p_split",
        "draft_cache_type_k": "speculative.draft.cache_type_k",
        "draft_cache_type_v": "speculative.draft.cache_type_v",
        "draft_threads": "speculative.draft.cpuparams.n_threads",
        "draft_threads_batch": "speculative.draft.cpuparams_batch.n_threads",
        "ngram_mod_match": "speculative.ngram_mod.n_match",
        "ngram_mod_min": "speculative.ngram_mod.n_min",
        "ngram_mod_max": "speculative.ngram_mod.n_max",
        "lookup_cache_static": "speculative.ngram_cache.lookup_cache_static",
        "lookup_cache_dynamic": "speculative.ngram_cache.lookup_cache_dynamic",
        "jinja": "use_jinja",
        "chat_template": "chat_template",
        "reasoning_format": "reasoning_format",
        "prefill_assistant": "prefill_assistant",
        "temperature": "sampling.temp",
        "top_k": "sampling.top_k",
        "top_p": "sampling.top_p",
        "min_p": "sampling.min_p",
        "typical_p": "sampling.typ_p",
        "repeat_penalty": "sampling.penalty_repeat",
        "repeat_last_n": "sampling.penalty_last_n",
        "presence_penalty": "sampling.penalty_present",
        "frequency_penalty": "sampling.penalty_freq",
        "n_predict": "n_predict",
        "alias": "model_alias",
        "metrics": "endpoint_metrics",
        "slots": "endpoint_slots",
        "props": "endpoint_props",
        "log_verbosity": "verbosity",
        "ui": "ui",
        "cors_origins": "cors_origins",
        "api_prefix": "api_prefix",
        "sse_ping_interval": "sse_ping_interval",
        "sleep_idle_seconds": "sleep_idle_seconds",
        "embeddings": "embedding",
        "pooling": "pooling_type",
        "media_path": "media_path",
        "static_path": "public_path",
    }
)
_DENIED: Mapping[str, str] = MappingProxyType(
    {
        "kv_offload": "no_kv_offload",
        "op_offload": "no_op_offload",
        "repack": "no_extra_bufts",
    }
)
_WORDS: Mapping[str, tuple[str, Mapping[object, str | int]]] = MappingProxyType(
    {
        "flash_attention": (
            "flash_attn_type", {"on": "enabled", "off": "disabled", "auto": "auto"},
        ),
        "numa": ("numa", {"off": "disabled"}),
        "load_mode": ("load_mode", {"dio": "direct_io"}),
        "prio": ("cpuparams.priority", {-1: "low", 0: "normal", 1: "medium", 2: "high",
                                        3: "realtime"}),
        "prio_batch": ("cpuparams_batch.priority", {0: "normal", 1: "medium", 2: "high",
                                                    3: "realtime"}),
        "gpu_layers": ("n_gpu_layers", {"all": _ALL_LAYERS, "auto": -1}),
        "draft_gpu_layers": (
            "speculative.draft.n_gpu_layers", {"all": _ALL_LAYERS, "auto": -1},
        ),
        "reasoning": ("enable_reasoning", {"on": 1, "off": 0, "auto": -1}),
        "draft_sampling": (
            "speculative.draft.probabilistic", {"greedy": 0, "probabilistic": 1},
        ),
        "seed": ("sampling.seed", {-1: 2**32 - 1}),
    }
)  # fmt: skip
_NGRAM_PARTS = {"ngram_size_n": "size_n", "ngram_size_m": "size_m", "ngram_min_hits": "min_hits"}
_NGRAM_KINDS = {
    "ngram-simple": "ngram_simple", "ngram-map-k": "ngram_map_k",
    "ngram-map-k4v": "ngram_map_k4v",
}  # fmt: skip
_ELSEWHERE = frozenset({"cpuset", "cpuset_mems", "shm_size", "network", "log_timestamps"})


def attributes(wish: Wish) -> Attributes:
    """Return the attributes that make the embedded engine do what `wish` says.

    Raises `CannotExpress` for a setting that its binding has no attribute for.
    """
    found: dict[str, str | int | float | bool | None] = {"model.path": wish.model_path}
    settings = _without_unused(wish.settings)
    for name, value in settings.items():
        found.update(_attribute(name, value, settings))
    if "cors_origins" not in wish.settings:
        found["cors_origins"] = "localhost"
        found["cors_credentials"] = False
    if wish.tls_files:
        found["ssl_file_cert"], found["ssl_file_key"] = wish.tls_files
    if wish.extra_args:
        fix = "use settings, or another engine"
        raise CannotExpress("the embedded engine has no arguments", where="extra_args", fix=fix)
    return tuple(found.items())


def _without_unused(settings: Settings) -> Settings:
    if str(settings.get("speculation", "none")) != "none":
        return settings
    return {name: value for name, value in settings.items() if name not in SPECULATION_SETTINGS}


def _attribute(
    name: str, value: str | float, settings: Settings
) -> dict[str, str | int | float | bool]:
    if name in _ELSEWHERE:
        return {}
    if name in _NAMES:
        return {_NAMES[name]: value}
    if name in _DENIED:
        return {_DENIED[name]: not value}
    if name in _WORDS:
        path, words = _WORDS[name]
        return {path: words.get(value, value)}
    special = _special(name, value, settings)
    if special is None:
        fix = f"leave `{name}` out, or use the runtime `podman`"
        raise CannotExpress("the embedded engine cannot set it", where=name, fix=fix)
    return special


def _special(
    name: str, value: str | float, settings: Settings
) -> dict[str, str | int | float | bool] | None:
    if name in _NGRAM_PARTS:
        kinds = str(settings.get("speculation", "")).split(",")
        parts = [part for kind, part in _NGRAM_KINDS.items() if kind in kinds]
        return {f"speculative.{part}.{_NGRAM_PARTS[name]}": value for part in parts}
    if name == "timeout":
        return {"timeout_read": value, "timeout_write": value}
    if name == "rope_scale":
        return {"rope_freq_scale": 1 / float(value)}
    if name == "moe_cache":
        return {"moe_cache_size": int(value) * 2**20}
    return None
