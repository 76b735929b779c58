"""The JSON that `fleet fit` answers with; sizes in MiB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet.sizes import MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.compiler.memory.advice import Advice
    from fleet.compiler.memory.caches import CachePlan
    from fleet.compiler.memory.fit import DeviceFit, Verdict
    from fleet.compiler.memory.plan_memory import MemoryPlan


def as_json(plan: MemoryPlan, verdict: Verdict, advice: Sequence[Advice]) -> dict[str, Any]:
    """Return the document of the command line's contract."""
    return {
        "fits": verdict.fits,
        "verdict": verdict.answer,
        "devices": [_device(fitted) for fitted in verdict.devices],
        "host": {
            **_device(verdict.host),
            "cache_ram_mib": mib(plan.cache_ram),
            "checkpoints_mib": mib(plan.checkpoints),
            "when_full": verdict.later,
        },
        "kv": [cache_as_json(cache) for cache in plan.caches],
        "state_mib": mib(plan.state),
        "output_mib": mib(plan.output),
        "needed_mib": mib(plan.needed),
        "advice": [{"set": dict(a.set), "fits": a.fits, "why": a.why} for a in advice],
        "refused": plan.refused,
        "model": plan.question.model.name,
        "quant": plan.question.model.weights.quant if plan.question.model.weights else None,
        "ctx": plan.question.context,
        "tier": plan.tier,
        "notes": list(plan.notes),
    }


def cache_as_json(plan: CachePlan) -> dict[str, Any]:
    """Return one cache as `fit` and its cases show it."""
    return {
        "name": plan.cache.name,
        "mib": mib(plan.total),
        "k_mib": mib(plan.k_bytes),
        "v_mib": mib(plan.v_bytes),
        "cells": plan.cells,
        "layers": len(plan.cache.layers),
    }


def _device(fitted: DeviceFit) -> dict[str, Any]:
    share = fitted.share
    return {
        "name": share.name,
        "capacity_mib": None if fitted.capacity is None else mib(fitted.capacity),
        "weights_mib": mib(share.weights),
        "kv_mib": mib(share.kv),
        "state_mib": mib(share.state),
        "compute_mib": mib(share.compute),
        "overhead_mib": mib(share.overhead),
        "free_mib": None if fitted.free is None else mib(fitted.free),
    }


def mib(size: float) -> float:
    """Return bytes as MiB, with four decimals."""
    return round(size / MIB, 4)
