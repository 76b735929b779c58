"""What the engine would refuse before it allocates anything, said without starting it.

Source: `llama_init_from_model` and the checks of the cache types in llama.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.facts.ggml_types import CACHE_TYPES, IK_CACHE_TYPES, WHOLE_TYPES

if TYPE_CHECKING:
    from fleet.compiler.memory.question import MemoryQuestion
    from fleet.compiler.memory.version_rules import MemoryRules

VLLM_TYPES = ("auto", "bf16", "f16", "fp8", "fp8_ds_mla", "mxfp4")  # K: entries, V: index
MOST_SEQUENCES = 256  # LLAMA_MAX_SEQ
_QUANTISED_BLOCK = 32


def refusal(question: MemoryQuestion, rules: MemoryRules) -> str | None:
    """Return why the engine would refuse this launch, or None."""
    if question.engine == "vllm":
        return _vllm_types(question)
    checks = (_types(question), _pairs(question, rules), _flash(question), _counts(question))
    return next((reason for reason in checks if reason), None)


def _vllm_types(question: MemoryQuestion) -> str | None:
    for kind in (question.type_k, question.type_v):
        if kind not in VLLM_TYPES:
            return f"cache type `{kind}` is not one of {', '.join(VLLM_TYPES)}"
    return None


def _types(question: MemoryQuestion) -> str | None:
    known = CACHE_TYPES | (IK_CACHE_TYPES if question.engine == "ik_llama.cpp" else {})
    for side, kind in (("K", question.type_k), ("V", question.type_v)):
        if kind not in known:
            return f"cache type `{kind}` for {side} is not one of {', '.join(known)}"
    return None


def _pairs(question: MemoryQuestion, rules: MemoryRules) -> str | None:
    must_agree = question.model.v_is_part_of_k and rules.mla_types_must_match
    if must_agree and question.type_k != question.type_v:
        return (
            f"V is a part of K in {question.model.arch}, so both cache types must be the same, "
            f"not {question.type_k} and {question.type_v}"
        )
    return None


def _flash(question: MemoryQuestion) -> str | None:
    v_quantised = question.type_v not in WHOLE_TYPES
    if not question.flash_attention:
        return f"a V cache of {question.type_v} needs flash attention" if v_quantised else None
    model = question.model
    latent = max((cache.k_row for cache in model.caches if cache.name == "mla"), default=0)
    sides = (
        ("K", question.type_k, latent or model.head_dim_k),
        ("V", question.type_v, 0 if latent else model.head_dim_v),
    )
    for side, kind, head in sides:
        if kind not in WHOLE_TYPES and head % _QUANTISED_BLOCK:
            return f"heads of {head} elements cannot be stored as {kind} blocks of 32 ({side})"
    return None


def _counts(question: MemoryQuestion) -> str | None:
    if question.batch == 0 and question.ubatch == 0:
        return "batch and ubatch cannot both be 0"
    if question.parallel > MOST_SEQUENCES:
        return f"{question.parallel} slots are more than the engine's {MOST_SEQUENCES} sequences"
    return None
