"""The caches that vLLM keeps for DeepSeek-V3.2 and V4: FP8 latents, BF16 RoPE, FP4 index.

Bytes an entry, from vLLM 0.33.0's attention specifications: an MLA entry of V3.2 is 512 fp8
and 16 of scales and 128 of bf16 RoPE; one of V4 448 fp8, 128 of bf16 RoPE and 8 of scales.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.compiler.memory.caches import CELL_BYTES, CachePlan

if TYPE_CHECKING:
    from fleet.compiler.memory.question import MemoryQuestion
    from fleet.facts.model_facts import CacheLayers

V32_ENTRY = 512 + 16 + 128
V4_ENTRY = 448 + 128 + 8
INDEX_FP8 = 128 + 4
INDEX_MXFP4 = 64 + 4
LOGICAL_BLOCK = 256  # tokens that share one block of each kind of entry


def plan_vllm_caches(question: MemoryQuestion) -> tuple[CachePlan, ...]:
    """Return the caches of `context` tokens for each of `parallel` sequences.

    With type f16 the entries are plain bf16 rows; any other type asks for the packed ones,
    where `mxfp4` takes the FP4 index.
    """
    plans = []
    for cache in question.model.caches:
        tokens = -(-question.context // LOGICAL_BLOCK) * LOGICAL_BLOCK
        cells = -(-tokens // cache.ratio) if not cache.window else min(tokens, cache.window)
        size = len(cache.layers) * cells * question.parallel * _entry(cache, question)
        plans.append(CachePlan(cache, cells, question.parallel, size, 0))
    return tuple(plans)


def _entry(cache: CacheLayers, question: MemoryQuestion) -> float:
    if question.type_k in {"f16", "bf16", "auto"}:
        return 2 * (cache.k_row + cache.v_row)
    if cache.name in {"indexer", "lid"} and not cache.v_row:
        return INDEX_MXFP4 if question.type_v == "mxfp4" else INDEX_FP8
    if question.model.arch == "deepseek4":
        return V4_ENTRY
    if cache.name == "mla":
        return V32_ENTRY
    size = CELL_BYTES.get(question.type_k, 32) / 32
    return (cache.k_row + cache.v_row) * size
