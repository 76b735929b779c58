"""How llama-server spells each setting: names in order of preference, for all builds.

Where an option has a short name that every known build prints first, that one is used: it
is what all of them have in common. Settings with rules of their own are in `llama_cpp.py`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from fleet.compiler.dialects.spelling import Row, Switch, Value

if TYPE_CHECKING:
    from collections.abc import Mapping


def _values(**names: str) -> dict[str, Row]:
    return {setting: Value(tuple(words.split())) for setting, words in names.items()}


WORDS: Mapping[str, Row] = MappingProxyType(
    {
        **_values(
            threads="-t",
            threads_batch="-tb",
            threads_http="--threads-http",
            cpu_mask="-C",
            cpu_range="-Cr",
            cpu_strict="--cpu-strict",
            prio="--prio",
            poll="--poll",
            cpu_mask_batch="-Cb",
            cpu_range_batch="-Crb",
            prio_batch="--prio-batch",
            poll_batch="--poll-batch",
            numa="--numa",
            ctx_size="-c",
            parallel="-np",
            kv_unified_per_slot="--kv-unified-per-slot",
            batch_size="-b",
            ubatch_size="-ub",
            flash_attention="-fa",
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
            swa_checkpoints="--ctx-checkpoints --swa-checkpoints",
            checkpoint_interval="--checkpoint-min-step --checkpoint-every-n-tokens",
            cache_ram="--cache-ram -cram",
            cache_reuse="--cache-reuse",
            slot_prompt_similarity="--slot-prompt-similarity -sps",
            slot_save_path="--slot-save-path",
            gpu_layers="-ngl",
            cpu_moe_layers="--n-cpu-moe -ncmoe",
            cpu_ffn_layers="--n-cpu-ffn -ncffn",
            moe_cache="--moe-cache-mib",
            split_mode="-sm",
            tensor_split="-ts",
            main_gpu="-mg",
            devices="--device -dev",
            override_tensor="-ot",
            fit_target="--fit-target -fitt",
            fit_ctx="--fit-ctx -fitc",
            lazy_mode="--lazy-mode -lzm",
            lora="--lora",
            mmproj="-mm --mmproj",
            image_min_tokens="--image-min-tokens",
            image_max_tokens="--image-max-tokens",
            draft_p_min="--spec-draft-p-min --draft-p-min",
            draft_p_split="--spec-draft-p-split --draft-p-split",
            draft_sampling="--spec-draft-sampling",
            draft_gpu_layers="--spec-draft-ngl -ngld",
            draft_devices="--spec-draft-device -devd",
            draft_cache_type_k="--spec-draft-type-k -ctkd",
            draft_cache_type_v="--spec-draft-type-v -ctvd",
            draft_threads="--spec-draft-threads -td",
            draft_threads_batch="--spec-draft-threads-batch -tbd",
            draft_cpu_moe_layers="--spec-draft-n-cpu-moe -ncmoed",
            lookup_cache_static="--lookup-cache-static -lcs",
            lookup_cache_dynamic="--lookup-cache-dynamic -lcd",
            chat_template="--chat-template",
            chat_template_file="--chat-template-file",
            chat_template_kwargs="--chat-template-kwargs",
            reasoning_format="--reasoning-format",
            reasoning_budget="--reasoning-budget",
            reasoning_effort="--reasoning-effort",
            temperature="--temp",
            top_k="--top-k",
            top_p="--top-p",
            min_p="--min-p",
            typical_p="--typical",
            repeat_penalty="--repeat-penalty",
            repeat_last_n="--repeat-last-n",
            presence_penalty="--presence-penalty",
            frequency_penalty="--frequency-penalty",
            seed="-s",
            n_predict="-n",
            samplers="--samplers",
            alias="-a",
            timeout="-to",
            log_verbosity="-lv",
            cors_origins="--cors-origins",
            api_prefix="--api-prefix",
            sse_ping_interval="--sse-ping-interval",
            sleep_idle_seconds="--sleep-idle-seconds",
            pooling="--pooling",
            override_kv="--override-kv",
            tools="--tools",
            media_path="--media-path",
            static_path="--path",
        ),
        "kv_unified": Switch(("-kvu",), ("-no-kvu",)),
        "swa_full": Switch(("--swa-full",)),
        "context_shift": Switch(("--context-shift",), ("--no-context-shift",)),
        "cont_batching": Switch(("-cb",), ("-nocb",), without=True),
        "kv_offload": Switch(
            ("--kv-offload", "-kvo"), ("-nkvo", "--no-kv-offload"), without=True
        ),
        "op_offload": Switch(("--op-offload",), ("--no-op-offload",), without=True),
        "cache_idle_slots": Switch(
            ("--cache-idle-slots", "--clear-idle"), ("--no-cache-idle-slots", "--no-clear-idle")
        ),
        "cache_prompt": Switch(("--cache-prompt",), ("--no-cache-prompt",), without=True),
        "cpu_moe": Switch(("--cpu-moe",)),
        "repack": Switch(("--repack",), ("--no-repack", "-nr"), without=True),
        "no_host": Switch(("--no-host",)),
        "check_tensors": Switch(("--check-tensors",)),
        "warmup": Switch(("--warmup",), ("--no-warmup",), without=True),
        "mmproj_offload": Switch(("--mmproj-offload",), ("--no-mmproj-offload",), without=True),
        "draft_cpu_moe": Switch(("--spec-draft-cpu-moe", "-cmoed")),
        # before --no-jinja came, the template engine was off unless asked for
        "jinja": Switch(("--jinja",), ("--no-jinja",)),
        "reasoning_preserve": Switch(("--reasoning-preserve",), ("--no-reasoning-preserve",)),
        "prefill_assistant": Switch(
            ("--prefill-assistant",), ("--no-prefill-assistant",), without=True
        ),
        "metrics": Switch(("--metrics",)),
        "slots": Switch(("--slots",), ("--no-slots",), without=True),
        "log_timestamps": Switch(("--log-timestamps",), ("--no-log-timestamps",)),
        "ui": Switch(("--ui", "--webui"), ("--no-ui", "--no-webui"), without=True),
        "embeddings": Switch(("--embedding", "--embeddings")),
        "reranking": Switch(("--rerank", "--reranking")),
        "agent": Switch(("--agent", "-ag"), ("--no-agent", "-no-ag")),
        "props": Switch(("--props",)),
        "ui_mcp_proxy": Switch(
            ("--ui-mcp-proxy", "--webui-mcp-proxy"), ("--no-ui-mcp-proxy", "--no-webui-mcp-proxy")
        ),
    }
)  # fmt: skip
