"""`ModelFacts` from a Hugging Face `config.json`: shapes and caches, weights as bounds.

The keys are brought to their GGUF names, so that the same rules say what each layer caches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fleet.errors import UserError
from fleet.facts.model_facts import ModelFacts, Weights
from fleet.facts.model_keys import Keys, shape_of
from fleet.facts.quantizer_rules import quantised

if TYPE_CHECKING:
    from collections.abc import Mapping

# `model_type` -> GGUF architecture, where they differ
ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "mixtral": "llama", "llama4_text": "llama4",
    "qwen2": "qwen2", "qwen3": "qwen3", "qwen3_moe": "qwen3moe", "qwen3_next": "qwen3next",
    "qwen3_5_text": "qwen35", "qwen3_5_moe_text": "qwen35moe", "gemma2": "gemma2",
    "gemma3": "gemma3", "gemma3_text": "gemma3", "gemma4_text": "gemma4", "gpt_oss": "gpt-oss",
    "cohere2": "cohere2", "exaone4": "exaone4", "phi3": "phi3", "glm4_moe": "glm4moe",
    "glm_moe_dsa": "glm-dsa", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2",
    "kimi_k2": "deepseek2", "deepseek_v32": "deepseek32", "deepseek_v4": "deepseek4",
    "minimax_m2": "minimax-m2", "minimax_m3": "minimax-m3", "granitemoehybrid": "granitehybrid",
    "lfm2": "lfm2", "lfm2_moe": "lfm2moe", "nemotron_h": "nemotron_h_moe", "mamba2": "mamba2",
}  # fmt: skip
# GGUF key -> names in config.json, the first that is there
_NAMES: dict[str, tuple[str, ...]] = {
    "block_count": ("num_hidden_layers", "n_layer"),
    "embedding_length": ("hidden_size", "n_embd"),
    "context_length": ("max_position_embeddings", "n_positions"),
    "feed_forward_length": ("intermediate_size",),
    "attention.head_count": ("num_attention_heads", "n_head"),
    "attention.head_count_kv": ("num_key_value_heads",),
    "attention.key_length": ("head_dim",),
    "attention.value_length": ("head_dim",),
    "attention.q_lora_rank": ("q_lora_rank",),
    "attention.sliding_window": ("sliding_window", "attention_chunk_size"),
    "attention.shared_kv_layers": ("num_kv_shared_layers",),
    "attention.indexer.key_length": ("index_head_dim",),
    "attention.compress_ratios": ("compress_ratios",),
    "expert_count": ("n_routed_experts", "num_experts", "num_local_experts"),
    "expert_used_count": ("num_experts_per_tok", "num_experts_per_token"),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "leading_dense_block_count": ("first_k_dense_replace",),
    "full_attention_interval": ("full_attention_interval",),
    "ssm.state_size": ("ssm_state_size", "mamba_d_state", "state_size", "linear_key_head_dim"),
    "ssm.conv_kernel": ("conv_kernel", "mamba_d_conv", "linear_conv_kernel_dim"),
    "ssm.group_count": ("n_groups", "mamba_n_groups", "linear_num_key_heads"),
    "shortconv.l_cache": ("conv_L_cache",),
}
_BF16 = 2


def model_facts_from_config(config: Mapping[str, Any], name: str) -> ModelFacts:
    """Return the facts that a parsed `config.json` gives; `name` is for messages.

    `quants` are by the quantizer's rules where they are known for the architecture. The
    weights are those in bf16: without the rules a bound of the shapes that the config names.
    Raises `UserError` when a needed key is missing.
    """
    text = {**config, **(config.get("text_config") or {})}
    kind = str(text.get("model_type", ""))
    values = {
        key: found
        for key, names in _NAMES.items()
        if (found := next((text[n] for n in names if text.get(n) is not None), None)) is not None
    }
    arch = ARCHITECTURES.get(kind, kind or "unknown")
    values |= _latent(text, arch) | _layers(text) | _inner(text, values)
    keys = Keys(arch, values, lambda what: _broken(name, what))
    shape = shape_of(keys)
    vocabulary = text.get("vocab_size")
    if not isinstance(vocabulary, int):
        raise _broken(name, "the key `vocab_size` is missing")
    n_layer = shape["n_layer"]
    tied = bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", False)))
    quants = quantised(keys, n_layer, vocabulary, shared=_shared_width(text), tied=tied)
    whole = quants.get("F16")
    return ModelFacts(
        **shape,
        name=name,
        source="config",
        n_vocab=vocabulary,
        weights=replace(whole, quant="BF16")
        if whole
        else _bound(n_layer, keys, vocabulary, tied=tied),
        quants=quants,
    )


def _shared_width(text: Mapping[str, Any]) -> int:
    """Return the width of the experts that every token uses."""
    own = text.get("shared_expert_intermediate_size") or text.get("moe_intermediate_size")
    return int(own or 0) * int(text.get("n_shared_experts") or 0)


def _broken(name: str, what: str) -> UserError:
    return UserError(what, where=name, fix="give the model's GGUF file instead")


def _latent(text: Mapping[str, Any], arch: str) -> dict[str, object]:
    """Return the keys of a latent cache: one row of the latent and the rotary part."""
    rank, rotary = text.get("kv_lora_rank"), text.get("qk_rope_head_dim")
    if arch == "deepseek4" or not isinstance(rank, int) or not isinstance(rotary, int):
        return {}
    return {
        "attention.key_length": rank + rotary,
        "attention.value_length": rank,
        "attention.key_length_mla": int(text.get("qk_nope_head_dim", 0)) + rotary,
        "attention.value_length_mla": int(text.get("v_head_dim", 0)),
        "attention.head_count_kv": 1,
    }


def _layers(text: Mapping[str, Any]) -> dict[str, object]:
    """Return which layers slide or recur, where the config lists them."""
    types = text.get("layer_types")
    if not isinstance(types, list):
        pattern = text.get("sliding_window_pattern")
        return {"attention.sliding_window_pattern": pattern} if isinstance(pattern, int) else {}
    kinds = tuple(str(kind) for kind in types)
    found: dict[str, object] = {}
    if any(kind in {"sliding_attention", "chunked_attention"} for kind in kinds):
        slides = tuple(kind in {"sliding_attention", "chunked_attention"} for kind in kinds)
        found["attention.sliding_window_pattern"] = slides
    recurs = tuple(kind in {"linear_attention", "mamba", "conv"} for kind in kinds)
    if any(recurs):
        found["attention.recurrent_layers"] = recurs
    ratios = {"sliding": 0, "compressed_sparse": 4, "heavily_compressed": 128}
    compressed = tuple(ratios.get(kind.removesuffix("_attention"), -1) for kind in kinds)
    if any(ratio > 0 for ratio in compressed) and -1 not in compressed:
        found["attention.compress_ratios"] = compressed
    return found


def _inner(text: Mapping[str, Any], values: Mapping[str, object]) -> dict[str, object]:
    """Return the width of a state-space layer, which configs give as heads times width."""
    pairs = (
        ("linear_num_value_heads", "linear_value_head_dim"),
        ("mamba_num_heads", "mamba_head_dim"),
        ("mamba_n_heads", "mamba_d_head"),
    )
    for heads, width in pairs:
        if isinstance(text.get(heads), int) and isinstance(text.get(width), int):
            return {"ssm.inner_size": text[heads] * text[width]}
    expand, size = text.get("expand"), values.get("embedding_length")
    inner = expand * size if isinstance(expand, int) and isinstance(size, int) else None
    return {"ssm.inner_size": inner} if inner is not None else {}


def _bound(n_layer: int, keys: Keys, vocabulary: int, *, tied: bool) -> Weights:
    """Count the large matrices in bf16: attention, feed-forward or experts, embeddings."""
    width = keys.count("embedding_length")
    heads = keys.count("attention.head_count", 0)
    head = keys.count("attention.key_length", width // heads if heads else 0)
    kv_heads = keys.count("attention.head_count_kv", heads)
    experts = keys.count("expert_count", 0)
    dense_layers = keys.count("leading_dense_block_count", 0) if experts else n_layer
    dense = 3 * width * keys.count("feed_forward_length", 0)
    inner = keys.count("expert_feed_forward_length", keys.count("feed_forward_length", 0))
    each = 3 * width * inner
    attention = _latent_attention(keys) or 2 * width * head * (heads + kv_heads)
    table = vocabulary * width
    routed = experts * each * (n_layer - dense_layers)
    rest = n_layer * attention + dense_layers * dense + table * (1 if tied else 2)
    return Weights(
        quant="BF16",
        total=(rest + routed) * _BF16,
        token_embd=table * _BF16,
        output=table * _BF16,
        experts=routed * _BF16,
        tied=tied,
        largest_experts=(experts * each // 3 * _BF16,) * 2 if experts else (),
    )


def _latent_attention(keys: Keys) -> int:
    """Count the matrices of one MLA layer: query, latent, its two expansions, output."""
    if "attention.key_length_mla" not in keys.values:
        return 0
    width, heads = keys.count("embedding_length"), keys.count("attention.head_count")
    row, rank = keys.count("attention.key_length"), keys.count("attention.value_length")
    key_head = keys.count("attention.key_length_mla")
    value_head = keys.count("attention.value_length_mla")
    low = keys.count("attention.q_lora_rank", 0)
    query = low * (width + heads * key_head) if low else width * heads * key_head
    expansions = rank * heads * (key_head - (row - rank) + value_head)
    return query + width * row + expansions + heads * value_head * width
