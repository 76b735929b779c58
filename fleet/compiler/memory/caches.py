"""Cells and bytes of every cache and state of a model, as the engine reserves them.

Sources: llama.cpp src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-kv-cache-dsv4.cpp,
llama-memory-recurrent.cpp of October 2026; checked against its own reservations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fleet.facts.ggml_types import CACHE_TYPES, IK_CACHE_TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.compiler.memory.question import MemoryQuestion
    from fleet.compiler.memory.version_rules import MemoryRules
    from fleet.facts.model_facts import CacheLayers, ModelFacts

BLOCK = 32  # elements that the sizes of cache types count
CELL_BYTES = CACHE_TYPES | IK_CACHE_TYPES
# caches that the engine keeps outside the attention heads' own padding of V
INDEX_CACHES = frozenset({"indexer", "lid"})


class CachePlan(NamedTuple):
    """One cache: cells of a stream, streams, bytes of K and of V over all layers."""

    cache: CacheLayers
    cells: int
    streams: int
    k_bytes: float
    v_bytes: float

    @property
    def total(self) -> float:
        """Bytes of K and V together."""
        return self.k_bytes + self.v_bytes


def pad(value: int, to: int) -> int:
    """Return `value` rounded up to a multiple of `to`."""
    return -(-value // to) * to


def stream_cells(question: MemoryQuestion, rules: MemoryRules) -> tuple[int, int]:
    """Return the cells of one stream and the number of streams of a full cache."""
    padded = pad(question.context, rules.context_padding)
    if question.unified or not rules.split_streams or question.parallel == 1:
        return padded, 1
    return pad(padded // question.parallel, rules.context_padding), question.parallel


def plan_caches(question: MemoryQuestion, rules: MemoryRules) -> tuple[CachePlan, ...]:
    """Return the size of each cache of the model, in the model's own order."""
    model = question.model
    stores_v = question.mla_stores_v or rules.mla_stores_v
    widest = widest_v(model) if not question.flash_attention else 0
    plans = []
    for cache in model.caches:
        cells, streams = _cells(cache, question, rules)
        v_elements = cache.v_elements
        if widest and v_elements and cache.name not in INDEX_CACHES:
            v_elements = widest * len(cache.layers)
        elif cache.name == "mla" and stores_v:
            v_elements = (cache.k_row - _ROTARY) * len(cache.layers)
        rows = cells * streams
        k_bytes = rows * cache.k_elements * CELL_BYTES[question.type_k] / BLOCK
        v_bytes = rows * v_elements * CELL_BYTES[question.type_v] / BLOCK
        plans.append(CachePlan(cache, cells, streams, k_bytes, v_bytes))
    return tuple(plans)


_ROTARY = 64  # elements of an MLA row that belong to K alone


def widest_v(model: ModelFacts) -> int:
    """Return the elements of the widest V row, to which all are padded without flash attention."""
    return max((c.v_row for c in model.caches if c.name not in INDEX_CACHES), default=0)


def _cells(cache: CacheLayers, question: MemoryQuestion, rules: MemoryRules) -> tuple[int, int]:
    cells, streams = stream_cells(question, rules)
    if cache.scope == "full":
        return cells, streams
    if cache.scope == "ratio":
        return pad(-(-cells // cache.ratio), 256), question.parallel
    if cache.scope == "swa_dsv4":
        window = cells if question.swa_full else pad(cache.window + ubatch_tokens(question), 256)
        return min(pad(cells, 256), window), question.parallel
    if question.swa_full or rules.swa_tail == "everything":
        return cells, streams
    sharing = question.parallel if streams == 1 else 1
    tail = ubatch_tokens(question) if rules.swa_tail == "ubatch" else question.batch
    return pad(min(cells, cache.window * sharing + tail), rules.swa_padding), streams


def ubatch_tokens(question: MemoryQuestion) -> int:
    """Return the ubatch, which is never larger than a batch, nor that than the context."""
    return min(question.ubatch, question.batch, pad(question.context, 256))


def state_bytes(question: MemoryQuestion) -> int:
    """Return the bytes of recurrent and compressor state of all sequences."""
    copies = 1 + question.draft_tokens
    return question.parallel * sum(
        state.bytes_per_sequence * (copies if state.rolls_back else 1)
        for state in question.model.states
    )


def checkpoint_bytes(question: MemoryQuestion, plans: Sequence[CachePlan]) -> float:
    """Return the bytes of one context checkpoint: state, and the cells of a window.

    Zero for models whose whole past stays in the cache: they need no checkpoints.
    """
    states = sum(state.bytes_per_sequence for state in question.model.states)
    windows = 0.0
    for plan in plans:
        if plan.cache.scope in {"swa", "swa_dsv4"} and plan.cells:
            kept = min(plan.cells, plan.cache.window)
            windows += plan.total * kept / (plan.cells * plan.streams)
    return states + windows
