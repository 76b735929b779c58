"""`plan_memory`: what one launch takes on each device and on the host. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from fleet.compiler.memory.caches import (
    CELL_BYTES,
    CachePlan,
    checkpoint_bytes,
    plan_caches,
    state_bytes,
    stream_cells,
)
from fleet.compiler.memory.compute_buffers import device_bytes, host_bytes, output_bytes
from fleet.compiler.memory.refusals import refusal
from fleet.compiler.memory.version_rules import rules_for
from fleet.compiler.memory.vllm_layouts import plan_vllm_caches
from fleet.compiler.memory.weights import HOST, layer_devices, plan_weights
from fleet.sizes import MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.compiler.memory.question import MemoryQuestion
    from fleet.compiler.memory.version_rules import MemoryRules

CUDA_CONTEXT = 450 * MIB  # measured on RTX 4090; other cards hold 120 to 750
MORE_GPU = 550 * MIB  # what each further GPU takes beyond its own context
MMPROJ_COMPUTE = 250 * MIB
HOST_PROCESS = 100 * MIB  # anonymous memory of a server beside its buffers
Tier = Literal["file", "record", "config"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What one device holds, in bytes."""

    name: str
    weights: int = 0
    kv: int = 0
    state: int = 0
    compute: int = 0
    overhead: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.kv + self.state + self.compute + self.overhead

    def with_draft(self, draft: Share) -> Share:
        """Return the share with a draft model's beside it; both are one process."""
        return replace(
            self,
            weights=self.weights + draft.weights,
            kv=self.kv + draft.kv,
            state=self.state + draft.state,
            compute=self.compute + draft.compute,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPlan:
    """The plan of one launch, sizes in bytes.

    `host` is what is there after loading; `cache_ram` and `checkpoints` fill up later.
    `mapped_twice` are pages of the file whose weights were repacked: the kernel may drop them,
    so they are part of no share unless they are locked.
    `tier` says how sure it is: a file's own header, a shipped record, or a config alone.
    """

    question: MemoryQuestion
    devices: tuple[Share, ...]
    host: Share
    caches: tuple[CachePlan, ...]
    state: int
    output: int
    cache_ram: int
    checkpoints: int
    tier: Tier
    mapped_twice: int = 0
    refused: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def needed(self) -> int:
        """Bytes on all GPUs and the host together, after loading."""
        return sum(share.total for share in self.devices) + self.host.total


def plan_memory(question: MemoryQuestion) -> MemoryPlan:
    """Return what the launch reserves; a refused one is planned all the same."""
    rules, history = rules_for(question.engine, question.build, question.build_date)
    reason = refusal(question, rules)
    if reason and not _plannable(question):
        return _refused(question, reason)
    vllm = question.engine == "vllm"
    caches = caches_of(question, rules)
    homes = layer_devices(question)
    weights = plan_weights(question, homes)
    twice = _mapped_twice(question, rules, weights.host)
    state = 0 if vllm else state_bytes(question)
    kv = _by_device(question, caches, homes)
    states = _states_by_device(question, homes, state)
    compute = device_bytes(question, caches, rules)
    output = output_bytes(question)
    devices = [
        Share(
            name=f"GPU{i}",
            weights=weights.devices[i],
            kv=kv[i],
            state=states[i],
            compute=round(compute[i]),
            overhead=CUDA_CONTEXT + (MORE_GPU if i else 0),
        )
        for i in range(question.devices)
    ]
    host = Share(
        name="host",
        weights=weights.host + (twice if question.locked else 0),
        kv=kv[HOST],
        state=states[HOST],
        compute=round(host_bytes(question, caches, rules)) + output,
        overhead=HOST_PROCESS,
    )
    if devices:
        devices[0] = devices[0].with_draft(_beside(question))
    else:
        host = host.with_draft(_beside(question))
    one = checkpoint_bytes(question, caches)
    return MemoryPlan(
        question=question,
        devices=tuple(devices),
        host=host,
        caches=caches,
        state=state,
        output=output,
        cache_ram=0 if vllm else max(question.cache_ram_mib, 0) * MIB,
        checkpoints=0 if vllm else round(one * question.checkpoints * question.parallel),
        mapped_twice=0 if question.locked else twice,
        tier="file" if question.model.source == "gguf" else question.model.source,
        refused=reason,
        notes=(*_notes(question), *history),
    )


def caches_of(question: MemoryQuestion, rules: MemoryRules) -> tuple[CachePlan, ...]:
    """Return the size of each cache of the model, in the model's own order."""
    if question.engine == "vllm":
        return plan_vllm_caches(question)
    return plan_caches(question, rules)


def _plannable(question: MemoryQuestion) -> bool:
    return {question.type_k, question.type_v} <= CELL_BYTES.keys() and question.engine != "vllm"


def _refused(question: MemoryQuestion, reason: str) -> MemoryPlan:
    return MemoryPlan(
        question=question,
        devices=tuple(Share(name=f"GPU{i}") for i in range(question.devices)),
        host=Share(name="host"),
        caches=(),
        state=0,
        output=0,
        cache_ram=0,
        checkpoints=0,
        tier="record",
        refused=reason,
    )


def _by_device(
    question: MemoryQuestion, caches: Sequence[CachePlan], homes: Sequence[int]
) -> dict[int, int]:
    """Bytes of all caches by the device of the layer that owns them."""
    shares = dict.fromkeys((HOST, *range(question.devices)), 0.0)
    for plan in caches:
        for layer in plan.cache.layers:
            shares[homes[layer]] += plan.total / len(plan.cache.layers)
    return {device: round(size) for device, size in shares.items()}


def _states_by_device(question: MemoryQuestion, homes: Sequence[int], total: int) -> dict[int, int]:
    shares = dict.fromkeys((HOST, *range(question.devices)), 0.0)
    one = question.model.state_bytes_per_sequence or 1
    for state in question.model.states:
        for layer in state.layers:
            shares[homes[layer]] += total * state.elements * 4 / one
    return {device: round(size) for device, size in shares.items()}


def _beside(question: MemoryQuestion) -> Share:
    """Return the draft model's weights, caches and buffers and a projector, all in one place."""
    projector = question.mmproj_bytes + MMPROJ_COMPUTE if question.mmproj_bytes else 0
    if question.draft is None:
        return Share(name="beside", compute=projector)
    alone = replace(
        question,
        model=question.draft,
        draft=None,
        mmproj_bytes=0,
        devices=min(question.devices, 1),
        gpu_layers=None,
        cpu_moe_layers=None,
        draft_tokens=0,
        split=(),
        type_k=question.draft_type_k,
        type_v=question.draft_type_v,
    )
    plan = plan_memory(alone)
    share = plan.devices[0] if plan.devices else plan.host
    return replace(share, compute=share.compute + projector)


def _mapped_twice(question: MemoryQuestion, rules: MemoryRules, on_host: int) -> int:
    """Bytes of the file's pages that stay mapped beside their repacked copy."""
    weights = question.model.weights
    if weights is None or question.no_repack or not rules.maps_what_it_repacks:
        return 0
    return weights.mapped_twice * on_host // max(weights.total, 1)


def _notes(question: MemoryQuestion) -> tuple[str, ...]:
    notes = []
    model = question.model
    cells, _ = stream_cells(question, rules_for("llama.cpp", None)[0])
    if cells > model.n_ctx_train > 0:
        notes.append(
            f"{cells} tokens a slot are more than the {model.n_ctx_train} that the model was "
            "trained for: set RoPE scaling, and expect worse answers"
        )
    if not model.known:
        notes.append(
            f"the architecture `{model.arch}` is not known: caches are planned as full attention "
            "in every layer, which is an upper bound; compute buffers are estimates"
        )
    if model.weights is None:
        notes.append("the weights are not counted: name a quantisation or a GGUF file")
    return tuple(notes)
