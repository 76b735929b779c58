"""The smallest changes that make a launch fit, each with what it costs.

In this order: the context (the edge of memory first), then the type of the cache, then
experts or layers on the host, then batch sizes; the last for slots where they multiply.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleet.compiler.memory.fit import fit
from fleet.compiler.memory.plan_memory import plan_memory
from fleet.sizes import ByteSize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fleet.compiler.memory.question import MemoryQuestion
    from fleet.facts.host_facts import HostFacts

STEP = 256  # contexts are padded to this
LEAST_CONTEXT = 4096
_BITS = (
    ("q8_0", "q8_0", "hardly any loss is measurable (perplexity +0.04%)"),
    ("q8_0", "q5_1", "V loses less than K would; a small loss"),
    ("q8_0", "q4_0", "V loses less than K would; some loss"),
    ("q4_0", "q4_0", "the last resort: a loss that some models show"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """A change by setting name, whether it fits then, and what it costs."""

    set: Mapping[str, str | int]
    fits: bool
    why: str


def advise(question: MemoryQuestion, host: HostFacts) -> tuple[Advice, ...]:
    """Return what would make the launch fit, in order; first of each kind that does."""
    kinds = (_context, _cache_type, _offload, _batch, _slots)
    return tuple(advice for kind in kinds for advice in kind(question, host))


def longest_context(question: MemoryQuestion, host: HostFacts) -> int:
    """Return the longest context that fits, a multiple of 256; 0 when none does."""
    most = max(question.model.n_ctx_train, STEP) * (1 if question.unified else question.parallel)
    return _largest(most // STEP, lambda n: _fits(replace(question, context=n * STEP), host)) * STEP


def _largest(most: int, good: Callable[[int], bool]) -> int:
    """Return the largest n in 1..most that is good, when smaller ones are good too; 0 for none."""
    return bisect_left(range(1, most + 1), True, key=lambda n: not good(n))  # noqa: FBT003 - sought


def _fits(question: MemoryQuestion, host: HostFacts) -> bool:
    return fit(plan_memory(question), host).fits


def _context(question: MemoryQuestion, host: HostFacts) -> Iterator[Advice]:
    best = longest_context(question, host)
    if best >= LEAST_CONTEXT and best < question.context:
        why = (
            f"the longest context that fits, instead of {question.context} tokens: "
            "what is longer is refused or cut"
        )
        yield Advice(set={"ctx_size": best}, fits=True, why=why)


def _cache_type(question: MemoryQuestion, host: HostFacts) -> Iterator[Advice]:
    if not question.flash_attention or not question.model.caches:
        return
    alike = question.model.v_is_part_of_k
    now = sum(plan.total for plan in plan_memory(question).caches)
    best: tuple[MemoryQuestion, str] | None = None
    for k, v, loss in _BITS:
        if alike and k != v:
            continue
        other = replace(question, type_k=k, type_v=v)
        plan = plan_memory(other)
        saved = now - sum(cache.total for cache in plan.caches)
        if saved <= 0 or plan.refused:
            continue
        best = (other, loss)
        if fit(plan, host).fits:
            why = f"saves {saved / 2**20:.0f} MiB of cache; {loss}"
            yield Advice(set={"cache_type_k": k, "cache_type_v": v}, fits=True, why=why)
            return
    if best is not None:
        yield from _with_context(best[0], best[1], host)


def _with_context(question: MemoryQuestion, loss: str, host: HostFacts) -> Iterator[Advice]:
    context = longest_context(question, host)
    if context >= LEAST_CONTEXT:
        change: dict[str, str | int] = {
            "cache_type_k": question.type_k,
            "cache_type_v": question.type_v,
            "ctx_size": min(context, question.context),
        }
        yield Advice(set=change, fits=True, why=f"both together: {loss}")


def _offload(question: MemoryQuestion, host: HostFacts) -> Iterator[Advice]:
    if not question.devices:
        return
    layers = question.model.n_layer
    if question.model.n_expert:
        count = _smallest(layers, lambda n: _fits(replace(question, cpu_moe_layers=n), host))
        if count:
            change = replace(question, cpu_moe_layers=count)
            what = f"the experts of {count} of {layers} layers"
            why = _read_from_host(what, question, change, host)
            yield Advice(set={"cpu_moe_layers": count}, fits=True, why=why)
            return
    count = _largest(layers, lambda n: _fits(replace(question, gpu_layers=n), host))
    if count:
        change = replace(question, gpu_layers=count)
        what = f"{layers + 1 - count} of {layers + 1} layers"
        why = _read_from_host(what, question, change, host)
        yield Advice(set={"gpu_layers": count}, fits=True, why=why)


def _read_from_host(
    what: str, question: MemoryQuestion, change: MemoryQuestion, host: HostFacts
) -> str:
    """Say how many bytes each token reads from host memory, and how long that takes at least."""
    moved = _on_host(change) - _on_host(question)
    experts = moved - (_on_host(_without_experts(change)) - _on_host(_without_experts(question)))
    model = question.model
    idle = experts * (1 - model.n_expert_used / model.n_expert) if model.n_expert else 0
    read = round(moved - idle)
    why = f"{what} ({ByteSize(moved)}) lie in host memory: each token reads {ByteSize(read)} of it"
    why += " there"
    if host.memory_bandwidth and not any(gpu.unified for gpu in host.gpus):
        why += f", at least {read / host.memory_bandwidth * 1000:.1f} ms"
    return why


def _on_host(question: MemoryQuestion) -> int:
    return plan_memory(question).host.weights


def _without_experts(question: MemoryQuestion) -> MemoryQuestion:
    """Return the question with all experts on the host: what else moves is no expert."""
    return replace(question, cpu_moe_layers=question.model.n_layer)


def _smallest(most: int, good: Callable[[int], bool]) -> int:
    """Return the smallest n in 1..most that is good, when larger ones are good too; 0 for none."""
    below = _largest(most, lambda n: not good(n))
    return below + 1 if below < most else 0


def _batch(question: MemoryQuestion, host: HostFacts) -> Iterator[Advice]:
    for ubatch in (1024, 512, 256, 128):
        if ubatch < question.ubatch and _fits(replace(question, ubatch=ubatch), host):
            why = "prompts are read in smaller pieces, and slower"
            yield Advice(set={"ubatch_size": ubatch}, fits=True, why=why)
            return


def _slots(question: MemoryQuestion, host: HostFacts) -> Iterator[Advice]:
    if question.parallel == 1:
        return
    fewer = question.parallel - 1
    count = _largest(fewer, lambda n: _fits(_with_slots(question, n), host))
    if count:
        why = "fewer requests at once; each slot keeps its context"
        change: dict[str, str | int] = {"parallel": count}
        if not question.unified:
            change["ctx_size"] = _with_slots(question, count).context
        yield Advice(set=change, fits=True, why=why)


def _with_slots(question: MemoryQuestion, count: int) -> MemoryQuestion:
    context = question.context
    if not question.unified:
        context = context // question.parallel * count
    return replace(question, parallel=count, context=context)
