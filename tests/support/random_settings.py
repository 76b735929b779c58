"""Random settings that a compiler must either refuse or turn into a server that starts.

Values come from the table of settings; those that need files, accelerators or a network
of their own are left out, sizes are kept small, and a draft model is one of the choices.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fleet.profiles.kinds import (
    Deployment,
    EngineProfile,
    HardwareProfile,
    ModelProfile,
    Place,
    SettingValue,
)
from fleet.profiles.settings_table import SETTINGS, SettingRow

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

PLACE = Place(file="random", line=1)
NEEDS_MORE = frozenset(
    [
        "devices",
        "tensor_split",
        "split_mode",
        "main_gpu",
        "override_tensor",
        "gpu_layers",
        "cpu_moe_layers",
        "cpu_ffn_layers",
        "moe_cache",
        "fit_target",
        "lora",
        "mmproj",
        "image_min_tokens",
        "image_max_tokens",
        "mmproj_offload",
        "draft_gpu_layers",
        "draft_devices",
        "draft_cpu_moe",
        "draft_cpu_moe_layers",
        "lookup_cache_static",
        "lookup_cache_dynamic",
        "slot_save_path",
        "chat_template",
        "chat_template_file",
        "cpu_mask",
        "cpu_range",
        "cpu_mask_batch",
        "cpu_range_batch",
        "cors_origins",
        "api_prefix",
        "samplers",
        "embeddings",
        "reranking",
        "pooling",
        "cpuset",
        "cpuset_mems",
        "shm_size",
        "network",
        "ui",
        "sleep_idle_seconds",
        "reasoning_effort",
        "draft_model",
        "prio",
        "prio_batch",
        "fit",
        "fit_ctx",
        "kv_unified_per_slot",
        "draft_sampling",
    ]
)
SMALL: Mapping[str, tuple[int, int]] = {
    "threads": (1, 2), "threads_batch": (1, 2), "threads_http": (1, 8),
    "draft_threads": (1, 2), "draft_threads_batch": (1, 2), "ctx_size": (1, 4096),
    "parallel": (1, 6), "batch_size": (1, 2048), "ubatch_size": (1, 1024),
    "swa_checkpoints": (0, 64), "checkpoint_interval": (0, 4096), "cache_ram": (-1, 64),
    "cache_reuse": (0, 512), "draft_max": (1, 16), "draft_min": (0, 4),
    "ngram_size_n": (2, 16), "ngram_size_m": (2, 48), "ngram_min_hits": (1, 4),
    "ngram_mod_match": (16, 32), "ngram_mod_min": (1, 8), "ngram_mod_max": (8, 64),
    "yarn_orig_ctx": (0, 512), "n_predict": (-1, 64), "top_k": (0, 100),
    "repeat_last_n": (0, 64), "seed": (-1, 10**6), "timeout": (10, 600),
    "sse_ping_interval": (1, 60), "reasoning_budget": (-1, 0), "log_verbosity": (0, 5),
}  # fmt: skip
FRACTIONS: Mapping[str, tuple[float, float]] = {
    "rope_scale": (1, 4), "rope_freq_base": (5000, 500000), "rope_freq_scale": (0.25, 1),
    "yarn_ext_factor": (0, 1), "yarn_attn_factor": (0.5, 2), "yarn_beta_slow": (0.5, 2),
    "yarn_beta_fast": (16, 64), "temperature": (0, 2), "repeat_penalty": (1, 2),
    "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2),
}  # fmt: skip
WITHOUT_DRAFT = ("none", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod")


def random_settings(
    random: Random, *, kv_types: tuple[str, ...], draft: str | None = None
) -> dict[str, str | int | float | bool]:
    """Return up to twenty settings with random valid values."""
    names = [
        name
        for name, row in SETTINGS.items()
        if name not in NEEDS_MORE and row.engine is None and not row.dangerous
    ]
    chosen = random.sample(names, random.randint(1, 20))
    settings = {name: _value(random, SETTINGS[name], kv_types) for name in sorted(chosen)}
    if settings.get("speculation") == "draft-simple" and draft:
        settings["draft_model"] = draft
    return settings


def _value(  # noqa: PLR0911 - one for each kind of value
    random: Random, row: SettingRow, kv_types: tuple[str, ...]
) -> str | int | float | bool:
    if row.name.startswith(("cache_type", "draft_cache_type")):
        return random.choice(kv_types)
    if row.name == "speculation":
        return random.choice((*WITHOUT_DRAFT, "draft-simple"))
    if row.name == "chat_template_kwargs":
        return json.dumps({"flag": random.random() < 0.5})
    if row.name == "alias":
        return f"tiny-{random.randint(0, 9)}"
    if row.kind == "bool":
        return random.random() < 0.5
    if row.choices:
        return random.choice(row.choices)
    if row.kind in {"int", "mib"}:
        low, high = SMALL.get(row.name, (int(row.minimum or 0), int(row.maximum or 0)))
        return random.randint(low, high)
    low, high = FRACTIONS.get(row.name, (row.minimum or 0, row.maximum or 1))
    return round(random.uniform(low, high), 3)


def deployment_of(
    settings: Mapping[str, str | int | float | bool], *, model: str, port: int
) -> Deployment:
    """Return a deployment of the model file with these settings, for a plain process."""
    given = {
        name: SettingValue(value=value, layer="deployment", place=PLACE)
        for name, value in settings.items()
    }
    return Deployment(
        name="random",
        place=PLACE,
        hardware=HardwareProfile(name="here", place=PLACE, cores=2, threads=2),
        model=ModelProfile(name="tiny", place=PLACE, path=model),
        engine=EngineProfile(name="llama.cpp", place=PLACE, engine="llama.cpp"),
        runtime="embedded",
        settings=given,
        port=port,
    )
