"""`MemoryQuestion`: a model, the settings of a launch that take memory, and the build.

`memory_question` asks it for a launch, from its settings and its host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.facts.host_facts import HostFacts
    from fleet.facts.model_facts import ModelFacts
    from fleet.profiles.settings_table import SettingScalar

MemoryEngine = Literal["llama.cpp", "ik_llama.cpp", "vllm"]
_STATEFUL_DRAFTS = ("draft-mtp", "draft-eagle3", "draft-dflash", "draft-dspark")
# of each kind the setting that bounds its drafts, and the engine's default
_NGRAM_LENGTHS = {
    "ngram-simple": ("ngram_size_m", 48),
    "ngram-map-k": ("ngram_size_m", 48),
    "ngram-map-k4v": ("ngram_size_m", 48),
    "ngram-mod": ("ngram_mod_max", 64),
}
_ENGINES: dict[str, MemoryEngine] = {"ik_llama.cpp": "ik_llama.cpp", "vllm": "vllm"}
_DEFAULT_SLOTS = {"llama.cpp": 4}  # llama-server without `-np`: four slots in one pool


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryQuestion:
    """What is asked of the planner; contexts and batches in tokens.

    `context` is the whole `--ctx-size`, shared out over `parallel` slots unless `unified`.
    `devices` counts GPUs, 0 runs on the CPU. `gpu_layers` None means all, counted from the
    last, the output layer first. `cpu_moe_layers` keeps the experts of the first n layers on
    the host, None those of no layer. `outputs` is the number of logit rows of a batch, None
    one for each slot and draft token, `ngram_tokens` being drafts that need no state. `build`
    None is today's. `mla_stores_v` keeps V also where the build would not; `no_repack` and
    `locked` say how weights lie in host memory.
    """

    model: ModelFacts
    context: int
    parallel: int = 1
    unified: bool = False
    batch: int = 2048
    ubatch: int = 512
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attention: bool = True
    outputs: int | None = None
    devices: int = 1
    gpu_layers: int | None = None
    cpu_moe_layers: int | None = None
    draft_tokens: int = 0
    ngram_tokens: int = 0
    swa_full: bool = False
    engine: MemoryEngine = "llama.cpp"
    build: int | None = None
    build_date: str | None = None
    draft: ModelFacts | None = None
    draft_type_k: str = "f16"
    draft_type_v: str = "f16"
    mmproj_bytes: int = 0
    cache_ram_mib: int = 8192
    checkpoints: int = 32
    no_repack: bool = False
    locked: bool = False
    mla_stores_v: bool = False
    split: tuple[float, ...] = ()
    backend: Literal["cuda", "vulkan", "rocm", "cpu"] = "cuda"


def memory_question(
    settings: Mapping[str, SettingScalar],
    *,
    model: ModelFacts,
    host: HostFacts,
    engine: str = "llama.cpp",
    build: int | str | None = None,
    draft: ModelFacts | None = None,
    mmproj_bytes: int = 0,
) -> MemoryQuestion:
    """Return the question that a launch's settings (in fleet's own words) ask.

    `engine` and `build` (a number or a date) as a launch names them. What a setting leaves
    out is the engine's default: four slots in one pool, batches of 2048 and 512, the context
    that the model was trained with.
    """
    words = {key: value for key, value in settings.items() if value is not None}
    slots = _number(words, "parallel", 0)
    devices = _devices(words, host)
    load_mode = str(words.get("load_mode", "auto"))
    flash = str(words.get("flash_attention", "auto")).lower() not in {"off", "false", "0"}
    return MemoryQuestion(
        model=model,
        context=_number(words, "ctx_size", 0) or model.n_ctx_train,
        parallel=slots if slots > 0 else _DEFAULT_SLOTS.get(engine, 1),
        unified=bool(words.get("kv_unified", slots <= 0)),
        batch=_number(words, "batch_size", 2048),
        ubatch=_number(words, "ubatch_size", 512),
        type_k=str(words.get("cache_type_k", "f16")),
        type_v=str(words.get("cache_type_v", "f16")),
        flash_attention=flash,
        devices=devices,
        gpu_layers=_gpu_layers(words, model),
        cpu_moe_layers=model.n_layer if words.get("cpu_moe") else _moe_layers(words),
        draft_tokens=_rollbacks(words),
        ngram_tokens=_longest_ngram(words),
        swa_full=bool(words.get("swa_full", False)),
        engine=_ENGINES.get(engine, "llama.cpp"),
        build=build if isinstance(build, int) else None,
        build_date=build if isinstance(build, str) else None,
        draft=draft,
        draft_type_k=str(words.get("draft_cache_type_k", "f16")),
        draft_type_v=str(words.get("draft_cache_type_v", "f16")),
        mmproj_bytes=mmproj_bytes,
        cache_ram_mib=_number(words, "cache_ram", 8192),
        checkpoints=_number(words, "swa_checkpoints", 32),
        # what is read into memory of its own has no pages of the file besides
        no_repack=words.get("repack") is False or load_mode in {"none", "dio"},
        locked="mlock" in load_mode,
        split=_split(words, devices),
        backend=host.gpus[0].backend if devices and host.gpus else "cpu",
    )


def _number(words: Mapping[str, SettingScalar], key: str, otherwise: int) -> int:
    value = words.get(key, otherwise)
    return int(value) if isinstance(value, (int, float)) else otherwise


def _devices(words: Mapping[str, SettingScalar], host: HostFacts) -> int:
    if str(words.get("gpu_layers")) == "0" or words.get("devices") == "none":
        return 0
    return len(host.gpus)


def _gpu_layers(words: Mapping[str, SettingScalar], model: ModelFacts) -> int | None:
    wanted = str(words.get("gpu_layers"))
    return int(wanted) if wanted.isdigit() and int(wanted) <= model.n_layer else None


def _moe_layers(words: Mapping[str, SettingScalar]) -> int | None:
    return _number(words, "cpu_moe_layers", 0) or None


def _rollbacks(words: Mapping[str, SettingScalar]) -> int:
    """Return the copies of the state that drafts need; a plain draft model needs none."""
    kinds = str(words.get("speculation", "none")).split(",")
    return _number(words, "draft_max", 3) if set(kinds) & set(_STATEFUL_DRAFTS) else 0


def _longest_ngram(words: Mapping[str, SettingScalar]) -> int:
    """Return the tokens that the longest n-gram draft has: each is a row of logits."""
    kinds = str(words.get("speculation", "none")).split(",")
    found = (_NGRAM_LENGTHS[kind] for kind in kinds if kind in _NGRAM_LENGTHS)
    return max((_number(words, key, otherwise) for key, otherwise in found), default=0)


def _split(words: Mapping[str, SettingScalar], devices: int) -> tuple[float, ...]:
    shares = str(words.get("tensor_split") or "")
    parts = tuple(float(part) for part in shares.replace("/", ",").split(",") if part.strip())
    return parts[:devices] if len(parts) >= devices > 0 and sum(parts) > 0 else ()
