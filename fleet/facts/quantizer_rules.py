"""What a model's tensors weigh after llama.cpp's quantizer, from its shape alone.

Source: `llama_tensor_get_type` of llama.cpp src/llama-quant.cpp (October 2026), for models
of attention and feed-forward layers, with experts or a latent cache; not for recurrent ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fleet.facts.ggml_types import GGML_TYPES
from fleet.facts.model_facts import Weights, two_largest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.facts.model_keys import Keys

_BLOCKS = {block.name: block for block in GGML_TYPES.values()}
# type of most tensors, of the output, of a layer that gets more bits
RULES = {
    "F16": ("f16", "f16", "f16"), "Q8_0": ("q8_0", "q8_0", "q8_0"),
    "Q6_K": ("q6_k", "q6_k", "q6_k"), "Q5_K_M": ("q5_k", "q6_k", "q6_k"),
    "Q4_K_M": ("q4_k", "q6_k", "q6_k"), "Q4_K_S": ("q4_k", "q6_k", "q5_k"),
}  # fmt: skip
# for rows that are no blocks of 256
_FALLBACKS = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
_MORE_BITS = frozenset({"attn_v", "ffn_down", "ffn_down_exps", "ffn_down_shexp"})
_MIXTRAL_EXPERTS = 8
_FEW_LAYERS = 4  # whose V gets more bits in the small mixes
_LARGE = 80  # layers of the models that the quantizer calls 70B
# whose tensors are those below, and nothing of size besides
RULED_ARCHS = frozenset(
    {"llama", "qwen2", "qwen3", "qwen3moe", "deepseek2", "gemma2", "gemma3", "gpt-oss",
     "glm4moe", "minimax-m2"}
)  # fmt: skip


class Matrix(NamedTuple):
    """Tensors of one name in one layer: `rows` of `width` elements."""

    name: str
    layer: int
    width: int
    rows: int


def quantised(
    keys: Keys, n_layer: int, vocabulary: int, *, shared: int, tied: bool
) -> dict[str, Weights]:
    """Return the weights by the name of the quantisation, none where the rules do not hold.

    `shared` is the width of the shared experts of a layer, 0 without any.
    """
    if keys.arch not in RULED_ARCHS:
        return {}
    layers = tuple(_layers(keys, n_layer, shared))
    return {
        quant: _weighed(quant, keys, layers, vocabulary=vocabulary, tied=tied) for quant in RULES
    }


def _weighed(
    quant: str, keys: Keys, layers: tuple[Matrix, ...], *, vocabulary: int, tied: bool
) -> Weights:
    base, last, _ = RULES[quant]
    width, n_layer = keys.count("embedding_length"), layers[-1].layer + 1
    output = _size(width, vocabulary, last)
    table = output if tied else _size(width, vocabulary, base)
    sizes = [(m, _size(m.width, m.rows, _type(m, quant, keys, n_layer))) for m in layers]
    experts = [size for matrix, size in sizes if matrix.name.endswith("_exps")]
    norms = (2 * n_layer + 1) * width * 4
    return Weights(
        quant=quant,
        total=table + (0 if tied else output) + norms + sum(size for _, size in sizes),
        token_embd=table,
        output=output,
        experts=sum(experts),
        tied=tied,
        largest_experts=two_largest(experts),
    )


def _type(matrix: Matrix, quant: str, keys: Keys, n_layer: int) -> str:
    base, _, more = RULES[quant]
    if matrix.name == "ffn_gate_inp":
        return "f32"
    if base == "f16":
        return base
    few = keys.count("expert_count", 0) == _MIXTRAL_EXPERTS
    if few and matrix.name in {"attn_v", "attn_k"}:
        return "q8_0"
    if few and matrix.name == "attn_output" and base == "q4_k":
        return "q5_k"
    kind = more if matrix.name in _MORE_BITS and _gets_more(matrix, quant, n_layer) else base
    large = keys.arch in {"llama", "qwen2"} and n_layer == _LARGE
    return "q5_k" if large and matrix.name == "attn_v" and kind == "q4_k" else kind


def _gets_more(matrix: Matrix, quant: str, n_layer: int) -> bool:
    """Tell the first and last eighth and every third layer between; in small mixes fewer."""
    layer, eighth = matrix.layer, n_layer // 8
    if quant.endswith("_S"):
        return layer < (_FEW_LAYERS if matrix.name == "attn_v" else eighth)
    return layer < eighth or layer >= 7 * n_layer // 8 or (layer - eighth) % 3 == 2  # noqa: PLR2004


def _size(width: int, rows: int, kind: str) -> int:
    if width % _BLOCKS[kind].elements:
        kind = _FALLBACKS.get(kind, "f16")
    if width % _BLOCKS[kind].elements:
        kind = "f16"
    return width * rows // _BLOCKS[kind].elements * _BLOCKS[kind].size


def _layers(keys: Keys, n_layer: int, shared: int) -> Iterator[Matrix]:
    width, experts = keys.count("embedding_length"), keys.count("expert_count", 0)
    dense = keys.count("leading_dense_block_count", 0) if experts else n_layer
    each = keys.count("expert_feed_forward_length", keys.count("feed_forward_length", 0))
    for layer in range(n_layer):
        yield from _attention(keys, layer, n_layer)
        if layer < dense:
            yield from _feed_forward(layer, width, keys.count("feed_forward_length"), 1, "")
            continue
        yield Matrix("ffn_gate_inp", layer, width, experts)
        yield from _feed_forward(layer, width, each, experts, "_exps")
        if shared:
            yield from _feed_forward(layer, width, shared, 1, "_shexp")


def _feed_forward(layer: int, width: int, inner: int, count: int, mark: str) -> Iterator[Matrix]:
    yield Matrix(f"ffn_gate{mark}", layer, width, inner * count)
    yield Matrix(f"ffn_up{mark}", layer, width, inner * count)
    yield Matrix(f"ffn_down{mark}", layer, inner, width * count)


def _attention(keys: Keys, layer: int, n_layer: int) -> Iterator[Matrix]:
    width, heads = keys.count("embedding_length"), keys.count("attention.head_count")
    if "attention.key_length_mla" in keys.values:
        yield from _latent_attention(keys, layer, width, heads)
        return
    kv_heads = keys.per_layer("attention.head_count_kv", n_layer, heads)[layer]
    head = keys.count("attention.key_length", width // heads)
    yield Matrix("attn_q", layer, width, heads * head)
    yield Matrix("attn_k", layer, width, kv_heads * head)
    yield Matrix("attn_v", layer, width, kv_heads * keys.count("attention.value_length", head))
    yield Matrix("attn_output", layer, heads * head, width)


def _latent_attention(keys: Keys, layer: int, width: int, heads: int) -> Iterator[Matrix]:
    row, rank = keys.count("attention.key_length"), keys.count("attention.value_length")
    key, value = keys.count("attention.key_length_mla"), keys.count("attention.value_length_mla")
    low = keys.count("attention.q_lora_rank", 0)
    if low:
        yield Matrix("attn_q_a", layer, width, low)
    yield Matrix("attn_q_b", layer, low or width, heads * key)
    yield Matrix("attn_kv_a_mqa", layer, width, row)
    yield Matrix("attn_k_b", layer, key - (row - rank), rank * heads)
    yield Matrix("attn_v_b", layer, rank, value * heads)
    yield Matrix("attn_output", layer, heads * value, width)
