"""The compute buffers of a launch: the peak of the graph on each device and on the host.

The peak is a sum of masks, which lie there all the time, and the largest set of tensors
alive at once. That set is linear in the tokens of a ubatch; a quantised cache adds an f16
copy of the widest layer where flash attention runs on CUDA. Coefficients of known models
come from llama.cpp's own reservations (October 2026), closed forms serve the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from fleet.compiler.memory.caches import INDEX_CACHES, CachePlan, pad, ubatch_tokens, widest_v
from fleet.facts.ggml_types import WHOLE_TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.compiler.memory.question import MemoryQuestion
    from fleet.compiler.memory.version_rules import MemoryRules
    from fleet.facts.model_facts import ComputeTable, ModelFacts

F32 = 4
_GATED_Q = frozenset({"qwen35", "qwen35moe", "qwen3next"})  # q carries its own gate
_NORMED_OUT = frozenset({"gemma2", "gemma3", "gemma3n", "gemma4"})  # norms behind each block
_INDEX_BYTES = 8
_INPUTS_BESIDE_LOGITS = 5  # rows of the model's width
_PIPELINE_COPIES = 4  # input copies that overlap work of several devices


def batch_tokens(question: MemoryQuestion) -> int:
    """Return the tokens of a ubatch as the engine reserves them: whole per sequence."""
    return pad(ubatch_tokens(question), question.parallel)


def mask_bytes(plans: Sequence[CachePlan], tokens: int, rules: MemoryRules) -> int:
    """Return the bytes of one mask for each cache."""
    return sum(plan.cells for plan in plans) * tokens * rules.mask_bytes


def dequantised_bytes(question: MemoryQuestion, plans: Sequence[CachePlan]) -> int:
    """Return the bytes of the f16 copy of the layer with the widest quantised cache."""
    if not question.flash_attention or question.backend != "cuda":
        return 0
    k_copy, v_copy = question.type_k != "f16", question.type_v != "f16"
    if not k_copy and not v_copy:
        return 0
    return max(
        (
            plan.cells * plan.streams * 2 * (plan.cache.k_row * k_copy + plan.cache.v_row * v_copy)
            for plan in plans
            if plan.cache.name not in INDEX_CACHES
        ),
        default=0,
    )


def gpu_bytes(question: MemoryQuestion, plans: Sequence[CachePlan], rules: MemoryRules) -> float:
    """Return the peak on the only GPU that holds all layers."""
    tokens = batch_tokens(question)
    model = question.model
    logits = (model.n_vocab + model.n_embd) * _outputs(question, rules) * F32
    dense = _dense(question)
    if dense:  # the engine leaves the index out, and with it its mask
        plans = [plan for plan in plans if plan.cache.name not in INDEX_CACHES]
    masks = mask_bytes(plans, tokens, rules)
    base, dequant = dense or coefficients(model)
    if not question.flash_attention:
        alive = max(_without_flash(question, plans, tokens), base * tokens * F32)
        return max(masks + alive, logits)
    copy = dequantised_bytes(question, plans) if rules.dequant_in_compute else 0
    table = None if dense else _table(question, copied=bool(copy))
    if table is not None:
        alive = _from_table(table, question, plans, tokens) * tokens * F32
    else:
        if copy and not dense:
            base, dequant = _copying(question, base, dequant)
        hole = model.compute.hole if model.compute else 0
        grows = copy > hole * tokens * F32
        alive = max(base * tokens * F32, copy + dequant * tokens * F32 if grows else 0)
    more = model.compute.sequence * (question.parallel - 1) if model.compute else 0
    return max(masks + alive + more, logits)


def host_bytes(question: MemoryQuestion, plans: Sequence[CachePlan], rules: MemoryRules) -> float:
    """Return the host's compute buffer, with or without GPUs beside it."""
    return (_beside_gpus if question.devices else _cpu_alone)(question, plans, rules)


def _beside_gpus(question: MemoryQuestion, plans: Sequence[CachePlan], rules: MemoryRules) -> float:
    """Masks and the inputs of the graph."""
    tokens = batch_tokens(question)
    if question.model.compute is not None and question.model.compute.dense:
        plans = [plan for plan in plans if plan.cache.name not in INDEX_CACHES]
    masks = mask_bytes(plans, tokens, rules)
    inputs = question.model.n_embd * tokens * F32
    if question.devices > 1:
        return _PIPELINE_COPIES * masks + (_PIPELINE_COPIES + 1) * inputs
    if not question.flash_attention:
        attending = [plan for plan in plans if plan.cache.name not in INDEX_CACHES]
        # a mask in f32 is twice as large, and a transposed V is written by an index of each value
        masks += mask_bytes(attending, tokens, rules)
        masks += sum(widest_v(question.model) * tokens * _INDEX_BYTES
                     for plan in attending if plan.v_bytes)  # fmt: skip
    return masks + 2 * inputs


def _cpu_alone(question: MemoryQuestion, plans: Sequence[CachePlan], rules: MemoryRules) -> float:
    tokens = batch_tokens(question)
    model = question.model
    outputs = _outputs(question, rules)
    logits = (model.n_vocab + model.n_embd) * outputs * F32
    masks = mask_bytes(plans, tokens, rules)
    if question.outputs is None and rules.outputs == "sequences":
        # beside them lie masks and inputs; measured with n-gram drafts, Gemma 3 270M, b11549
        inputs = _INPUTS_BESIDE_LOGITS * model.n_embd * tokens * F32
        logits = masks + inputs + model.n_vocab * outputs * F32
    if not question.flash_attention:
        alive = _without_flash(question, plans, tokens) + model.n_embd * tokens * F32
        return max(masks + alive, logits)
    if model.compute is not None and model.compute.cpu is not None:
        contexts, per_token = model.compute.cpu
        # a mask more for each stream's cells, so cells of one stream are what counts
        cells = max((plan.cells for plan in plans), default=0)
        return max(interpolate(contexts, per_token, cells) * tokens, logits)
    base = coefficients(model)[0] + model.n_embd
    return max(masks + base * tokens * F32, logits)


def device_bytes(
    question: MemoryQuestion, plans: Sequence[CachePlan], rules: MemoryRules
) -> tuple[float, ...]:
    """Return the compute buffer of each GPU, in order."""
    if question.devices == 0:
        return ()
    one = gpu_bytes(question, plans, rules)
    if question.cpu_moe_layers or question.gpu_layers is not None:
        one += _uploads(question)
    if question.devices == 1:
        return (one,)
    tokens = batch_tokens(question)
    inputs = question.model.n_embd * tokens * F32
    copies = (_PIPELINE_COPIES - 1) * mask_bytes(plans, tokens, rules) + one
    # the first device keeps four copies of what leaves it, each later one of what arrives too
    return (copies + 4 * inputs, *(copies + 8 * inputs for _ in range(question.devices - 1)))


def output_bytes(question: MemoryQuestion) -> int:
    """Return the host's buffer for the logits that are handed out."""
    return question.model.n_vocab * question.parallel * F32


def coefficients(model: ModelFacts) -> tuple[float, float]:
    """Return f32 values per token of a ubatch: the peak without and with an f16 copy."""
    if model.compute is not None:
        return model.compute.base, model.compute.dequant
    heads = model.n_head * model.head_dim_k
    width = model.n_embd
    extra = 10 if model.arch in _NORMED_OUT else 5
    experts = model.n_expert_used * model.n_ff_exp
    if model.n_expert:
        base = 2 * width + model.n_expert_used * (2 * width + model.n_ff_exp) + 5
        base = max(base, 2 * width + heads + 3 * experts + 5)
    elif model.is_recurrent or model.is_hybrid:
        base = 2 * width + 3 * model.n_ff + 10
    else:
        base = 2 * width + heads + 3 * model.n_ff + extra
    if model.is_mla:
        latent = max((c.k_row for c in model.caches), default=0)
        base = max(base, 2 * width + model.n_head * (2 * latent + model.head_dim_k) + 5)
    return base, 2 * width + 2 * heads + 46


def interpolate(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Return the value at `x` of straight lines through the points, continued at the ends."""
    if len(xs) == 1:
        return ys[0]
    at = min(max(bisect_left(xs, x), 1), len(xs) - 1)
    low, high = xs[at - 1], xs[at]
    return ys[at - 1] + (ys[at] - ys[at - 1]) * (x - low) / (high - low)


def _outputs(question: MemoryQuestion, rules: MemoryRules) -> int:
    """Rows of logits that one batch may ask for."""
    if question.outputs is not None:
        return question.outputs
    if rules.outputs == "ubatch":
        return batch_tokens(question)
    return question.parallel * (1 + max(question.draft_tokens, question.ngram_tokens))


def _dense(question: MemoryQuestion) -> tuple[int, int] | None:
    """Coefficients of the path without sparse attention, where several sequences share."""
    figures = question.model.compute
    shared = question.unified and question.parallel > 1
    return figures.dense if figures is not None and shared else None


def _copying(question: MemoryQuestion, base: float, dequant: float) -> tuple[float, float]:
    """Coefficients with an f16 copy: a quantised side is rotated, which costs room of its own."""
    figures = question.model.compute
    sides = "".join(
        "n" if kind in WHOLE_TYPES else "q" for kind in (question.type_k, question.type_v)
    )
    return figures.variants.get(sides, (base, dequant)) if figures else (base, dequant)


def _without_flash(question: MemoryQuestion, plans: Sequence[CachePlan], tokens: int) -> float:
    """Bytes alive at the product of Q and K in f32, with the mask in f32 beside it."""
    model = question.model
    cells = max((plan.cells for plan in plans if plan.cache.name not in INDEX_CACHES), default=0)
    scores = cells * tokens * model.n_head * F32
    mask = cells * tokens * 2
    heads = model.n_head * model.head_dim_k
    queries = (3 if model.arch in _GATED_Q or model.arch in _NORMED_OUT else 2) * heads
    rows = max((plan.cache.k_row + plan.cache.v_row for plan in plans), default=0)
    width = (3 if model.arch == "glm4moe" else 2) * model.n_embd
    if model.is_mla:
        latent = max((plan.cache.k_row for plan in plans), default=0)
        queries, rows = model.n_head * (2 * latent - 64 + model.head_dim_k), 0
        width = 3 * model.n_embd
    more = model.compute.no_flash if model.compute else 0
    return scores + mask + (width + queries + rows + more + 5) * tokens * F32


def _table(question: MemoryQuestion, *, copied: bool) -> ComputeTable | None:
    figures = question.model.compute
    if figures is None or not figures.tables:
        return None
    kind = "q" if copied else "f16"
    if copied and question.type_k in WHOLE_TYPES and ("bf16", 1) in figures.tables:
        kind = "bf16"
    counts = [n for k, n in figures.tables if k == kind]
    nearest = max((n for n in counts if n <= question.parallel), default=min(counts))
    return figures.tables[kind, nearest]


def _from_table(
    table: ComputeTable, question: MemoryQuestion, plans: Sequence[CachePlan], tokens: int
) -> float:
    """Values per token; the copy of all streams counts as that of a smaller ubatch."""
    full = max(plans, key=lambda plan: plan.cells)
    cells = full.cells * full.cache.ratio
    streams = full.streams if question.model.is_mla else 1
    lines = [interpolate(table.contexts, row, cells) for row in table.values]
    if len(lines) == 1:
        return lines[0]
    inverse = [-1 / ubatch for ubatch in table.ubatches]
    return interpolate(inverse, lines, -streams / tokens)


def _uploads(question: MemoryQuestion) -> float:
    """Bytes of the two largest expert tensors that a batch carries to the GPU."""
    model = question.model
    if model.weights and model.weights.largest_experts:
        return sum(model.weights.largest_experts)
    if not question.cpu_moe_layers or not model.n_expert:
        return 0
    return 2 * model.n_expert * model.n_embd * model.n_ff_exp * 2  # two in f16
