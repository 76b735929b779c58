"""ik_llama.cpp's server: llama.cpp's older words, options of its own, other defaults.

Its defaults that differ from llama.cpp's and matter here: port 8080, one slot, flash
attention on, MLA kind 3, templates by jinja off, context shift on. It has no build number
and reads no variables.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from fleet.compiler.dialects.llama_cpp import check_extra_args
from fleet.compiler.dialects.llama_cpp_speculation import kinds_of_speculation
from fleet.compiler.dialects.spelling import (
    Row,
    Spelled,
    Switch,
    Value,
    Wish,
    as_word,
    cannot_express,
    say,
)
from fleet.errors import CannotExpress

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAM = "llama-server"
_ALL_LAYERS = 999


def _values(**names: str) -> dict[str, Row]:
    return {setting: Value((name,)) for setting, name in names.items()}


WORDS: Mapping[str, Row] = MappingProxyType(
    {
        **_values(
            threads="--threads",
            threads_batch="--threads-batch",
            threads_http="--threads-http",
            numa="--numa",
            ctx_size="--ctx-size",
            parallel="--parallel",
            batch_size="--batch-size",
            ubatch_size="--ubatch-size",
            flash_attention="--flash-attn",
            cache_type_k="--cache-type-k",
            cache_type_v="--cache-type-v",
            rope_scaling="--rope-scaling",
            rope_scale="--rope-scale",
            rope_freq_base="--rope-freq-base",
            rope_freq_scale="--rope-freq-scale",
            yarn_orig_ctx="--yarn-orig-ctx",
            yarn_ext_factor="--yarn-ext-factor",
            yarn_attn_factor="--yarn-attn-factor",
            yarn_beta_slow="--yarn-beta-slow",
            yarn_beta_fast="--yarn-beta-fast",
            swa_checkpoints="--ctx-checkpoints",
            checkpoint_interval="--ctx-checkpoints-interval",
            checkpoint_tolerance="--ctx-checkpoints-tolerance",
            cache_ram="--cache-ram",
            cache_ram_similarity="--cache-ram-similarity",
            slot_prompt_similarity="--slot-prompt-similarity",
            slot_save_path="--slot-save-path",
            cpu_moe_layers="--n-cpu-moe",
            tensor_split="--tensor-split",
            main_gpu="--main-gpu",
            devices="--device",
            override_tensor="--override-tensor",
            lora="--lora",
            mmproj="--mmproj",
            image_min_tokens="--image-min-tokens",
            image_max_tokens="--image-max-tokens",
            split_mode="--split-mode",
            chat_template="--chat-template",
            chat_template_file="--chat-template-file",
            chat_template_kwargs="--chat-template-kwargs",
            reasoning="--reasoning",
            reasoning_format="--reasoning-format",
            reasoning_budget="--reasoning-budget",
            temperature="--temp",
            top_k="--top-k",
            top_p="--top-p",
            min_p="--min-p",
            typical_p="--typical",
            repeat_penalty="--repeat-penalty",
            repeat_last_n="--repeat-last-n",
            presence_penalty="--presence-penalty",
            frequency_penalty="--frequency-penalty",
            seed="--seed",
            n_predict="--predict",
            samplers="--samplers",
            alias="--alias",
            timeout="--timeout",
            log_verbosity="--verbosity",
            pooling="--pooling",
            override_kv="--override-kv",
            static_path="--path",
            mla_attention="--mla-use",
            attention_max_batch="--attention-max-batch",
            expert_reduction="--smart-expert-reduction",
            lookup_cache_static="--lookup-cache-static",
            lookup_cache_dynamic="--lookup-cache-dynamic",
        ),
        "cont_batching": Switch(("--cont-batching",), ("--no-cont-batching",), without=True),
        "kv_offload": Switch((), ("--no-kv-offload",), without=True),
        "cpu_moe": Switch(("--cpu-moe",)),
        "check_tensors": Switch(("--check-tensors",)),
        "warmup": Switch((), ("--no-warmup",), without=True),
        "jinja": Switch(("--jinja",)),
        "prefill_assistant": Switch((), ("--no-prefill-assistant",), without=True),
        "metrics": Switch(("--metrics",)),
        "slots": Switch((), ("--no-slots",), without=True),
        "embeddings": Switch(("--embedding",)),
        "ui_mcp_proxy": Switch(("--ui-mcp-proxy",)),
        "fit": Switch(("--fit",)),
        "fused_moe": Switch(("--fused-moe",), ("--no-fused-moe",), without=True),
        "graph_reuse": Switch(("--graph-reuse",), ("--no-graph-reuse",), without=True),
        "runtime_repack": Switch(("--run-time-repack",)),
        "grouped_experts": Switch(("--grouped-expert-routing",)),
        "k_cache_hadamard": Switch(("--k-cache-hadamard",)),
        "v_cache_hadamard": Switch(("--v-cache-hadamard",)),
        "merge_qkv": Switch(("--merge-qkv",)),
        "merge_up_gate": Switch(("--merge-up-gate-experts",)),
        "swa_compress": Switch(("--swa-compress",)),
        "huge_pages": Switch(("--transparent-huge-pages",)),
        # the same effect: what is not compressed keeps its full size
        "swa_full": Switch((), ("--swa-compress",), without=True),
        "kv_unified": Switch(()),
        "cache_prompt": Switch((), without=True),
    }
)

_LOAD_OPTIONS = {
    "auto": (),
    "mmap": (),
    "none": ("--no-mmap",),
    "mlock": ("--no-mmap", "--mlock"),
    "mmap+mlock": ("--mlock",),
}
_CONTAINER = frozenset({"cpuset", "cpuset_mems", "shm_size", "network"})
_SPECULATION = frozenset(
    [
        "speculation",
        "draft_model",
        "draft_max",
        "draft_min",
        "draft_p_min",
        "draft_gpu_layers",
        "draft_devices",
        "draft_cache_type_k",
        "draft_cache_type_v",
        "draft_threads",
        "draft_threads_batch",
        "ngram_size_n",
        "ngram_size_m",
        "ngram_min_hits",
    ]
)
_KINDS = {
    "draft-simple": "draft", "draft-mtp": "mtp", "ngram-simple": "ngram-simple",
    "ngram-map-k": "ngram-map-k", "ngram-map-k4v": "ngram-map-k4v", "ngram-mod": "ngram-mod",
    "ngram-cache": "ngram-cache",
}  # fmt: skip
_DRAFT_WORDS = {
    "draft_gpu_layers": "--gpu-layers-draft",
    "draft_devices": "--device-draft",
    "draft_cache_type_k": "--cache-type-k-draft",
    "draft_cache_type_v": "--cache-type-v-draft",
    "draft_threads": "--threads-draft",
    "draft_threads_batch": "--threads-batch-draft",
}
_DRAFT_PAYLOAD = {"draft_max": "n_max", "draft_min": "n_min", "draft_p_min": "p_min"}
_NGRAM_PAYLOAD = {
    "ngram_size_n": "ngram_size_n", "ngram_size_m": "ngram_size_m",
    "ngram_min_hits": "ngram_min_hits",
}  # fmt: skip


def spell(wish: Wish) -> Spelled:
    """Return the argument list (without the program) and warnings. Raises `CannotExpress`."""
    spelled = Spelled()
    spelled.argv += ["--model", wish.model_path, "--host", wish.listen, "--port", str(wish.port)]
    if wish.api_key_file:
        spelled.argv += ["--api-key-file", wish.api_key_file]
    if wish.tls_files:
        certificate, key = wish.tls_files
        spelled.argv += ["--ssl-cert-file", certificate, "--ssl-key-file", key]
    for name, value in wish.settings.items():
        _say_one(spelled, wish, name, value)
    _say_speculation(spelled, wish)
    if wish.rpc_servers:
        spelled.argv += ["--rpc", ",".join(wish.rpc_servers)]
    spelled.argv += check_extra_args(wish.extra_args, wish.build)
    return spelled


def _say_one(spelled: Spelled, wish: Wish, name: str, value: str | float) -> None:
    if name in _CONTAINER or name in _SPECULATION or (name == "numa" and value == "off"):
        return
    if name == "load_mode":
        _say_load_mode(spelled, wish, str(value))
    elif name == "gpu_layers":
        layers = {"all": _ALL_LAYERS, "auto": None}.get(str(value), value)
        if layers is not None:
            spelled.argv += ["--gpu-layers", as_word(layers)]
    elif name == "context_shift":
        spelled.argv += ["--context-shift", "on" if value else "off"]
    elif name == "ui":
        spelled.argv += ["--webui", "auto" if value else "none"]
    elif name == "fit" and not value:
        return  # off unless asked for
    elif name in WORDS:
        say(spelled, wish.build, name, WORDS[name], value)
    else:
        raise cannot_express(wish.build, name, ())


def _say_load_mode(spelled: Spelled, wish: Wish, mode: str) -> None:
    words = _LOAD_OPTIONS.get(mode)
    if words is None:
        raise cannot_express(wish.build, "load_mode", ())
    spelled.argv += words


def _say_speculation(spelled: Spelled, wish: Wish) -> None:
    """One `--spec-type KIND:key=value,...` for each kind; drafts need their model besides."""
    settings = wish.settings
    kinds = kinds_of_speculation(settings.get("speculation"))
    for kind in kinds:
        word = _KINDS.get(kind)
        if word is None:
            message = f"ik_llama.cpp has no `{kind}`"
            raise CannotExpress(message, where="speculation", fix=f"use one of {', '.join(_KINDS)}")
        keys = _DRAFT_PAYLOAD if word in {"draft", "mtp"} else {**_DRAFT_PAYLOAD, **_NGRAM_PAYLOAD}
        payload = [
            f"{key}={as_word(settings[name])}" for name, key in keys.items() if name in settings
        ]
        spelled.argv += ["--spec-type", word + (":" + ",".join(payload) if payload else "")]
    if "draft-simple" in kinds:
        spelled.argv += ["--model-draft", str(settings["draft_model"])]
        for name, option in _DRAFT_WORDS.items():
            if name in settings:
                value = {"all": _ALL_LAYERS}.get(str(settings[name]), settings[name])
                spelled.argv += [option, as_word(value)]
