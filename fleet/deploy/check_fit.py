"""Refuse a launch that this machine's memory cannot hold, before anything is stopped."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fleet.compiler.memory.advice import advise
from fleet.compiler.memory.fit import fit
from fleet.compiler.memory.plan_memory import plan_memory
from fleet.compiler.memory.question import MemoryQuestion
from fleet.errors import DoesNotFit
from fleet.sizes import ByteSize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.compiler.memory.fit import Verdict
    from fleet.deploy.prepare import Prepared
    from fleet.facts.host_facts import HostFacts
    from fleet.facts.model_facts import ModelFacts

# settings by the planner's names, where the value is taken as it is
_SAME = {
    "parallel": "parallel", "kv_unified": "unified", "batch_size": "batch",
    "ubatch_size": "ubatch", "cache_type_k": "type_k", "cache_type_v": "type_v",
    "swa_full": "swa_full", "cache_ram": "cache_ram_mib", "swa_checkpoints": "checkpoints",
    "cpu_moe_layers": "cpu_moe_layers",
}  # fmt: skip
_SPECULATES = frozenset({"none", "", None})


def check_fit(prepared: Prepared) -> None:
    """Raise `DoesNotFit` with needed and present memory, and the smallest change that fits."""
    if prepared.model is None:
        return
    for launch in prepared.launches:
        host = _within(launch, prepared.host)
        question = question_of(launch, prepared.model.facts, host)
        if question is None:
            continue
        verdict = fit(plan_memory(question), host)
        # what the engine refuses by rule it says itself, and by its own build's rules
        if verdict.short:
            raise _too_large(launch, verdict, question, host)


def _within(launch: LaunchConfig, host: HostFacts) -> HostFacts:
    """Return the host with the launch's own memory limit, where that is the smaller one."""
    limits = [size for size in (host.memory_limit, launch.memory_limit) if size]
    return replace(host, memory_limit=min(limits)) if limits else host


def question_of(launch: LaunchConfig, model: ModelFacts, host: HostFacts) -> MemoryQuestion | None:
    """Return what the planner is asked about a launch; None for what holds no model of its own."""
    if launch.role != "server" or launch.engine == "vllm":
        return None
    settings: Mapping[str, Any] = dict(launch.settings)
    given = {
        theirs: settings[ours] for ours, theirs in _SAME.items() if settings.get(ours) is not None
    }
    layers = settings.get("gpu_layers")
    drafts = settings.get("speculation") not in _SPECULATES
    on_cpu = not host.gpus or layers in {0, "0"}
    return MemoryQuestion(
        model=model,
        context=int(settings.get("ctx_size") or model.n_ctx_train),
        flash_attention=settings.get("flash_attention") != "off",
        devices=0 if on_cpu else len(host.gpus),
        gpu_layers=int(str(layers)) if str(layers).isdigit() else None,
        draft_tokens=int(settings.get("draft_max") or 0) if drafts else 0,
        engine="ik_llama.cpp" if launch.engine == "ik_llama.cpp" else "llama.cpp",
        build=launch.build if isinstance(launch.build, int) else None,
        locked="mlock" in str(settings.get("load_mode")),
        unified_memory=any(gpu.unified for gpu in host.gpus),
        backend=host.gpus[0].backend if host.gpus else "cpu",
        **given,
    )


def _too_large(
    launch: LaunchConfig, verdict: Verdict, question: MemoryQuestion, host: HostFacts
) -> DoesNotFit:
    parts = [
        f"{each.share.name} needs {ByteSize(each.share.total)} of {ByteSize(each.capacity or 0)}"
        for each in (*verdict.devices, verdict.host)
        if each.answer == "no"
    ]
    advice = next((each for each in advise(question, host) if each.fits), None)
    fix = "choose a smaller quantisation or another host"
    if advice is not None:
        changes = " ".join(f"--set {name}={value}" for name, value in advice.set.items())
        fix = f"`{changes}` fits: {advice.why}"
    where = f"{launch.deployment}/{launch.server} on {launch.host}"
    return DoesNotFit("it does not fit: " + ", ".join(parts), where=where, fix=fix)
