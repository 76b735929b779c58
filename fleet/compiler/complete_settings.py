"""From the settings a profile gives to the complete set that is said to the engine.

What is always said, whether or not a profile does: threads, slots, context, batch sizes'
consequences, the log's level, and that the engine must not change them to fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.compiler.dialects import vllm
from fleet.compiler.dialects.llama_cpp import TRACE_LEVEL, has_trace_level
from fleet.facts.ggml_types import WHOLE_TYPES
from fleet.profiles.settings_table import SETTINGS
from fleet.sizes import MIB

if TYPE_CHECKING:
    from fleet.compiler.dialects.spelling import Settings
    from fleet.facts.build_facts import BuildFacts
    from fleet.facts.host_facts import HostFacts
    from fleet.facts.model_facts import ModelFacts
    from fleet.profiles.kinds import Deployment
    from fleet.sizes import ByteSize

# layers that are written for any engine: what vLLM has no word for is left out there
_SHARED = frozenset({"hardware", "model", "workload"})
DEFAULT_CONTEXT = 8192  # tokens of one slot when nobody says more
DEFAULT_CACHE_RAM = 8192  # MiB, the engine's own default
_HOST_OVERHEAD = 1024 * MIB


def complete_settings(
    deployment: Deployment,
    *,
    build: BuildFacts,
    model: ModelFacts | None,
    host: HostFacts,
    trained: int | None,
    draft: str | None,
) -> Settings:
    """Return every setting that is to be said, in the order of the table."""
    wanted: Settings = {
        name: setting.value
        for name, setting in deployment.settings.items()
        if setting.value is not None
        and not (build.engine == "vllm" and setting.layer in _SHARED and not vllm.knows(name))
    }
    _from_model(wanted, deployment, draft)
    if build.engine != "vllm":
        _for_llama_server(wanted, build, model, host, trained)
        _bound_cache_ram(wanted, build, model, deployment.memory_limit or host.memory_limit, host)
    return {name: wanted[name] for name in SETTINGS if name in wanted}


def _from_model(wanted: Settings, deployment: Deployment, draft: str | None) -> None:
    """Take the model's thinking policy and draft where the profile says nothing."""
    model = deployment.model
    if model.thinking:
        wanted.setdefault("reasoning", model.thinking)
    if deployment.engine.engine == "vllm":
        return
    if draft and wanted.get("speculation") != "none":
        wanted["draft_model"] = draft
        # a draft model that no kind of speculation uses would only take memory
        wanted.setdefault("speculation", "draft-simple")


def _for_llama_server(
    wanted: Settings,
    build: BuildFacts,
    model: ModelFacts | None,
    host: HostFacts,
    trained: int | None,
) -> None:
    wanted.setdefault("parallel", 1)
    if build.engine != "ik_llama.cpp":
        wanted.setdefault("kv_unified", False)
    slots = int(wanted["parallel"])
    whole = slots if not wanted.get("kv_unified") else 1
    wanted.setdefault("ctx_size", min(DEFAULT_CONTEXT, trained or DEFAULT_CONTEXT) * whole)
    wanted.setdefault("jinja", not names_template(wanted))
    wanted.setdefault("metrics", True)
    if host.gpus:
        wanted.setdefault("gpu_layers", "all")
        wanted.setdefault("load_mode", "auto")
    if build.engine == "ik_llama.cpp":
        # it shifts the context unless told not to: answers would change unnoticed
        wanted.setdefault("context_shift", False)
    else:
        _for_mainline(wanted, build, model)


def names_template(settings: Settings) -> bool:
    """Whether a template of the engine's own is asked for by name, not by its text.

    With jinja on, a name other than `chatml` is taken for the text: each prompt is that word.
    """
    template = str(settings.get("chat_template") or "chatml")
    return template != "chatml" and "{" not in template


def _for_mainline(wanted: Settings, build: BuildFacts, model: ModelFacts | None) -> None:
    # left on, it may shrink what was planned; `gpu_layers: auto` is a wish for it
    wanted.setdefault("fit", wanted.get("gpu_layers") == "auto" and "-fit" in build)
    if has_trace_level(build):
        wanted.setdefault("log_verbosity", TRACE_LEVEL)
    if model is not None and model.v_is_part_of_k:
        _same_types(wanted)
    if wanted.get("cache_type_v", "f16") not in WHOLE_TYPES:
        wanted.setdefault("flash_attention", "on")
    _keep_batch_masks(wanted)


def _same_types(wanted: Settings) -> None:
    """Give the one type that is named to both halves of a cache that has but one."""
    given = wanted.get("cache_type_k", wanted.get("cache_type_v"))
    if given is not None:
        wanted.setdefault("cache_type_k", given)
        wanted.setdefault("cache_type_v", given)


def _keep_batch_masks(wanted: Settings) -> None:
    """Repeat masks and priority for prompt threads, which do not inherit them with `-tb`."""
    for name in ("cpu_mask", "cpu_range"):
        if name in wanted:
            wanted.setdefault(f"{name}_batch", wanted[name])
    if int(wanted.get("prio", 0)) > 0:
        wanted.setdefault("prio_batch", wanted["prio"])
    if "poll" in wanted:
        wanted.setdefault("poll_batch", int(int(wanted["poll"]) > 0))


def _bound_cache_ram(
    wanted: Settings,
    build: BuildFacts,
    model: ModelFacts | None,
    limit: ByteSize | None,
    host: HostFacts,
) -> None:
    """Leave past prompts a quarter of what the memory limit leaves beside the weights."""
    if limit is None or "cache_ram" in wanted or "--cache-ram" not in build:
        return
    weights = (model.weights_bytes or 0) if model and not host.gpus else 0
    room = max(0, limit - weights - _HOST_OVERHEAD) // 4 // MIB
    if room < DEFAULT_CACHE_RAM:
        wanted["cache_ram"] = room
