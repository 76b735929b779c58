"""The JSON that `fleet fit` answers with; sizes in MiB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet.sizes import MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.compiler.memory.advice import Advice
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
            "cache_ram_mib": _mib(plan.cache_ram),
            "checkpoints_mib": _mib(plan.checkpoints),
            "when_full": verdict.later,
        },
        "kv": [
            {
                "name": cache.cache.name,
                "mib": _mib(cache.total),
                "k_mib": _mib(cache.k_bytes),
                "v_mib": _mib(cache.v_bytes),
                "cells": cache.cells,
                "layers": len(cache.cache.layers),
            }
            for cache in plan.caches
        ],
        "state_mib": _mib(plan.state),
        "output_mib": _mib(plan.output),
        "needed_mib": _mib(plan.needed),
        "advice": [{"set": dict(a.set), "fits": a.fits, "why": a.why} for a in advice],
        "refused": plan.refused,
        "model": plan.question.model.name,
        "quant": plan.question.model.weights.quant if plan.question.model.weights else None,
        "ctx": plan.question.context,
        "tier": plan.tier,
        "notes": list(plan.notes),
    }


def _device(fitted: DeviceFit) -> dict[str, Any]:
    share = fitted.share
    return {
        "name": share.name,
        "capacity_mib": None if fitted.capacity is None else _mib(fitted.capacity),
        "weights_mib": _mib(share.weights),
        "kv_mib": _mib(share.kv),
        "state_mib": _mib(share.state),
        "compute_mib": _mib(share.compute),
        "overhead_mib": _mib(share.overhead),
        "free_mib": None if fitted.free is None else _mib(fitted.free),
    }


def _mib(size: float) -> float:
    return round(size / MIB, 4)
