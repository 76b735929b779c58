"""Memory against context for each type of cache, with the edge of the device drawn in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleet.compiler.memory.fit import fit
from fleet.compiler.memory.plan_memory import plan_memory
from fleet.report.plots import Line, curves
from fleet.sizes import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.compiler.memory.question import MemoryQuestion
    from fleet.facts.host_facts import HostFacts
    from fleet.report.page import Figure

TYPES = ("f16", "q8_0", "q4_0")
_STEPS = 24


def memory_plot(question: MemoryQuestion, host: HostFacts) -> Figure:
    """Return the drawing: tokens to the right, GiB on the fullest device upwards."""
    most = max(question.context * 2, 8192)
    contexts = sorted(
        {max(256, most * step // _STEPS // 256 * 256) for step in range(1, _STEPS + 1)}
    )
    lines = [_line(question, host, kind, contexts) for kind in TYPES]
    edge = _edge(question, host)
    if edge is not None:
        ends = (contexts[0] / 1024, contexts[-1] / 1024)
        lines.append(Line(label="edge of memory", x=ends, y=(edge, edge)))
    return curves(
        "memory",
        {question.model.name: lines},
        x="context, thousand tokens",
        y="memory, GiB",
        caption="Memory on the fullest device against context, by type of cache",
    )


def _line(question: MemoryQuestion, host: HostFacts, kind: str, contexts: Sequence[int]) -> Line:
    plans = [
        plan_memory(replace(question, context=context, type_k=kind, type_v=kind))
        for context in contexts
    ]
    totals = (fit(plan, host) for plan in plans)
    sizes = tuple(max(d.share.total for d in (v.devices or (v.host,))) / GIB for v in totals)
    return Line(label=kind, x=tuple(context / 1024 for context in contexts), y=sizes)


def _edge(question: MemoryQuestion, host: HostFacts) -> float | None:
    verdict = fit(plan_memory(question), host)
    fitted = (verdict.devices or (verdict.host,))[0]
    return None if fitted.capacity is None else fitted.capacity / GIB
