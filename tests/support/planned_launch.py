"""The plan of a launch of a test's flags on this machine's CPU, beside what an engine printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet.compiler.memory.compare_with_reality import planned_memory, printed_memory
from fleet.compiler.memory.plan_memory import plan_memory
from fleet.compiler.memory.question import MemoryQuestion
from support.printed_memory import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.facts.model_facts import ModelFacts

ROUNDING = 0.0051  # MiB: a log prints two digits
SMALLEST = 0.35  # MiB of inputs and norms that are no share of a tiny model's buffer
EXACT = ("kv", "state", "output", "weights")


def planned(model: ModelFacts, flags: Mapping[str, Any], build: int) -> dict[str, float]:
    """Return the planned items in MiB of a launch without a GPU."""
    f = {**DEFAULTS, **flags}
    question = MemoryQuestion(
        model=model,
        context=f["c"],
        parallel=f["np"],
        unified=bool(f["kvu"]),
        batch=f.get("b") or max(2048, f["ub"]),
        ubatch=f["ub"],
        type_k=f["ctk"],
        type_v=f["ctv"],
        flash_attention=bool(f["fa"]),
        swa_full=bool(f["swa_full"]),
        devices=0,
        build=build,
        no_repack=not f["repack"],
        backend="cpu",
    )
    return planned_memory(plan_memory(question))


def wrong_items(lines: Sequence[str], plan: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Return the items that are not as planned, with plan and truth; `output` missing is one."""
    actual = printed_memory(lines)
    if not {"output", "weights", "compute CPU"} <= actual.keys():
        return {"printed": (1.0, 0.0)}
    # each of the buffers of an item is rounded by itself
    pieces = sum("model buffer size" in line or "llama_kv_cache: size" in line for line in lines)
    off = {
        item: (plan.get(item, 0.0), size)
        for item, size in actual.items()
        if item in EXACT and abs(plan.get(item, 0.0) - size) > (pieces + 1) * ROUNDING
    }
    off |= {item: (plan[item], 0.0) for item in EXACT if plan[item] > 0.01 and item not in actual}
    return off


def compute_gap(lines: Sequence[str], plan: Mapping[str, float]) -> float:
    """Return by which share the compute buffer is off, 0 within the smallest difference."""
    actual = printed_memory(lines)["compute CPU"]
    gap = abs(plan["compute CPU"] - actual)
    return 0.0 if gap <= SMALLEST else gap / actual
