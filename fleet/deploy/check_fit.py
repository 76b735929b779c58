"""Refuse a launch that this machine's memory cannot hold, before anything is stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.compiler.memory.advice import advise
from fleet.compiler.memory.fit import fit
from fleet.compiler.memory.plan_memory import plan_memory
from fleet.compiler.memory.question import memory_question
from fleet.errors import DoesNotFit
from fleet.observe.read_model import read_model_file
from fleet.sizes import ByteSize

if TYPE_CHECKING:
    from fleet.compiler.launch_config import LaunchConfig
    from fleet.compiler.memory.fit import Verdict
    from fleet.compiler.memory.question import MemoryQuestion
    from fleet.deploy.prepare import Prepared
    from fleet.facts.host_facts import HostFacts
    from fleet.facts.model_facts import ModelFacts


def check_fit(prepared: Prepared) -> None:
    """Raise `DoesNotFit` with needed and present memory, and the smallest change that fits."""
    if prepared.model is None:
        return
    for launch in prepared.launches:
        refuse_too_large(launch, prepared.model.facts, prepared.host)


def refuse_too_large(launch: LaunchConfig, model: ModelFacts, host: HostFacts) -> None:
    """Raise `DoesNotFit` when `host` cannot hold what `launch` takes."""
    limited = within(launch, host)
    question = question_of(launch, model, limited)
    if question is None:
        return
    verdict = fit(plan_memory(question), limited)
    # what the engine refuses by rule it says itself, and by its own build's rules
    if verdict.short:
        raise _too_large(launch, verdict, question, limited)


def verdict_of(launch: LaunchConfig, model: ModelFacts, host: HostFacts) -> Verdict | None:
    """Return how the launch fits, None where the planner cannot tell."""
    limited = within(launch, host)
    question = question_of(launch, model, limited)
    return fit(plan_memory(question), limited) if question is not None else None


def within(launch: LaunchConfig, host: HostFacts) -> HostFacts:
    """Return the host with the launch's own memory limit, where that is the smaller one."""
    limits = [size for size in (host.memory_limit, launch.memory_limit) if size]
    return replace(host, memory_limit=min(limits)) if limits else host


def question_of(launch: LaunchConfig, model: ModelFacts, host: HostFacts) -> MemoryQuestion | None:
    """Return what the planner is asked about a launch; None for what holds no model of its own.

    A draft and a projector count where their files are here. Raises `UserError` for a
    damaged draft.
    """
    if launch.role != "server" or launch.engine == "vllm":
        return None
    settings = dict(launch.settings)
    draft, mmproj = (Path(str(settings.get(name))) for name in ("draft_model", "mmproj"))
    return memory_question(
        settings,
        model=model,
        host=host,
        engine=launch.engine,
        build=launch.build,
        draft=read_model_file(draft) if draft.is_file() else None,
        mmproj_bytes=mmproj.stat().st_size if mmproj.is_file() else 0,
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
