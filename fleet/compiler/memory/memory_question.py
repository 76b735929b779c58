"""The memory question of a launch: its settings, its model, its host and its build."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.compiler.memory.question import MemoryQuestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleet.compiler.launch_config import SettingScalar
    from fleet.compiler.memory.question import MemoryEngine
    from fleet.facts.build_facts import BuildFacts
    from fleet.facts.host_facts import HostFacts
    from fleet.facts.model_facts import ModelFacts

Settings = dict[str, "SettingScalar"]
_STATEFUL_DRAFTS = ("draft-mtp", "draft-eagle3", "draft-dflash", "draft-dspark")
_DEFAULT_SLOTS = 4  # llama-server without `-np`: four slots in one pool


def memory_question(
    settings: Mapping[str, SettingScalar] | Iterable[tuple[str, SettingScalar]],
    *,
    model: ModelFacts,
    host: HostFacts,
    build: BuildFacts | None = None,
    draft: ModelFacts | None = None,
    mmproj_bytes: int = 0,
) -> MemoryQuestion:
    """Return the question that a launch's settings (in fleet's own words) ask.

    What a setting leaves out is the engine's default: four slots in one pool, batches of
    2048 and 512, the context that the model was trained with.
    """
    words = {key: value for key, value in dict(settings).items() if value is not None}
    slots = _number(words, "parallel", 0)
    devices = _devices(words, host, build)
    flash = str(words.get("flash_attention", "auto")).lower() not in {"off", "false", "0"}
    return MemoryQuestion(
        model=model,
        context=_number(words, "ctx_size", 0) or model.n_ctx_train,
        parallel=slots if slots > 0 else _default_slots(build),
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
        swa_full=bool(words.get("swa_full", False)),
        engine=_engine(build),
        build=build.number if build else None,
        build_date=build.date if build else None,
        draft=draft,
        draft_type_k=str(words.get("draft_cache_type_k", "f16")),
        draft_type_v=str(words.get("draft_cache_type_v", "f16")),
        mmproj_bytes=mmproj_bytes,
        cache_ram_mib=_number(words, "cache_ram", 8192),
        checkpoints=_number(words, "swa_checkpoints", 32),
        split=_split(words, devices),
        backend=host.gpus[0].backend if devices and host.gpus else "cpu",
    )


def _number(words: Mapping[str, SettingScalar], key: str, otherwise: int) -> int:
    value = words.get(key, otherwise)
    return int(value) if isinstance(value, (int, float)) else otherwise


def _default_slots(build: BuildFacts | None) -> int:
    return 1 if build is not None and build.engine != "llama.cpp" else _DEFAULT_SLOTS


def _devices(words: Mapping[str, SettingScalar], host: HostFacts, build: BuildFacts | None) -> int:
    if build is not None and build.engine == "embedded":
        return 0 if not host.gpus else len(host.gpus)
    if words.get("gpu_layers") == 0 or words.get("devices") == "none":
        return 0
    return len(host.gpus)


def _gpu_layers(words: Mapping[str, SettingScalar], model: ModelFacts) -> int | None:
    wanted = words.get("gpu_layers")
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted > model.n_layer:
        return None
    return wanted if wanted >= 0 else None


def _moe_layers(words: Mapping[str, SettingScalar]) -> int | None:
    return _number(words, "cpu_moe_layers", 0) or None


def _rollbacks(words: Mapping[str, SettingScalar]) -> int:
    """Return the copies of the state that drafts need; a plain draft model needs none."""
    kinds = str(words.get("speculation", "none")).split(",")
    return _number(words, "draft_max", 3) if set(kinds) & set(_STATEFUL_DRAFTS) else 0


def _engine(build: BuildFacts | None) -> MemoryEngine:
    if build is None or build.engine == "embedded":
        return "llama.cpp"
    return build.engine


def _split(words: Mapping[str, SettingScalar], devices: int) -> tuple[float, ...]:
    shares = str(words.get("tensor_split") or "")
    parts = tuple(float(part) for part in shares.replace("/", ",").split(",") if part.strip())
    return parts[:devices] if len(parts) >= devices > 0 and sum(parts) > 0 else ()
