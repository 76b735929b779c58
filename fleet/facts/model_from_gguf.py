"""`ModelFacts` from the header of a GGUF file, or of all files of a split set."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from fleet.facts.ggml_types import REPACKED_ROWS, REPACKED_TYPES
from fleet.facts.gguf_header import GgufHeader, LongArray, Tensor, merge_splits
from fleet.facts.model_facts import ModelFacts, Weights, two_largest
from fleet.facts.model_keys import Keys, shape_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_LAYER = re.compile(r"blk\.(\d+)\.")
# read row by row on the host: tables that the engine leaves there whatever is offloaded
_HOST_TABLES = ("per_layer_token_embd.weight", "position_embd.weight", "token_types.weight")
# `general.file_type` -> the name people give a quantisation
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S",
    17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
    23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE",
}  # fmt: skip


def model_facts_from_gguf(
    headers: GgufHeader | Sequence[GgufHeader], *, files: Sequence[str] = ()
) -> ModelFacts:
    """Return the facts of a model from its header, or from those of its splits in order.

    Raises `UserError` naming the file when a key is missing or absurd.
    """
    header = headers if isinstance(headers, GgufHeader) else merge_splits(headers)
    arch = header.architecture
    prefix = f"{arch}."
    values = {
        key.removeprefix(prefix): value
        for key, value in header.metadata.items()
        if key.startswith(prefix) and not isinstance(value, LongArray)
    }
    keys = Keys(arch, values, header.broken)
    names = frozenset(tensor.name for tensor in header.tensors)
    shape = shape_of(keys, names)
    return ModelFacts(
        **shape,
        name=_text(header, "general.name") or header.name,
        source="gguf",
        n_vocab=_vocabulary(header, keys),
        weights=weights_of(header, shape["n_layer"]),
        files=tuple(files) or (header.name,),
        params=sum(math.prod(tensor.shape) for tensor in header.tensors),
        tokenizer=_tokenizer(header),
    )


def weights_of(header: GgufHeader, n_layer: int) -> Weights:
    """Sum the tensor table by where the engine puts each tensor."""
    by_name = {tensor.name: tensor.size for tensor in header.tensors}
    layers, experts = [0] * n_layer, [0] * n_layer
    nextn = 0
    for tensor in header.tensors:
        match = _LAYER.match(tensor.name)
        if match is None:
            continue
        layer = int(match[1])
        if layer >= n_layer:  # the MTP block, which lies behind the last layer
            nextn += tensor.size
            continue
        layers[layer] += tensor.size
        experts[layer] += tensor.size if "_exps" in tensor.name else 0
    output = by_name.get("output.weight")
    file_type = header.metadata.get("general.file_type")
    repacked = [tensor for tensor in header.tensors if _is_repacked(tensor)]
    return Weights(
        quant=FILE_TYPES.get(file_type, "mixed") if isinstance(file_type, int) else "mixed",
        total=header.tensor_bytes,
        token_embd=by_name.get("token_embd.weight", 0),
        output=output if output is not None else by_name.get("token_embd.weight", 0),
        experts=sum(experts),
        host_tables=sum(by_name.get(name, 0) for name in _HOST_TABLES),
        tied=output is None,
        layers=tuple(layers),
        expert_layers=tuple(experts),
        largest_experts=two_largest(t.size for t in header.tensors if "_exps" in t.name),
        mapped_twice=_within_others(header.tensors, repacked),
    )


def _is_repacked(tensor: Tensor) -> bool:
    """Matrices that are multiplied by; the embedding table is read row by row."""
    return (
        tensor.type in REPACKED_TYPES
        and len(tensor.shape) > 1
        and tensor.shape[1] % REPACKED_ROWS == 0
        and tensor.name != "token_embd.weight"
    )


def _within_others(tensors: Sequence[Tensor], repacked: Sequence[Tensor]) -> int:
    """Bytes of `repacked` between the first and the last other tensor: one mapping spans both."""
    taken = {tensor.name for tensor in repacked}
    others = [tensor for tensor in tensors if tensor.name not in taken]
    if not others:
        return 0
    first = min(tensor.offset for tensor in others)
    last = max(tensor.offset for tensor in others)
    return sum(tensor.size for tensor in repacked if first < tensor.offset < last)


def _vocabulary(header: GgufHeader, keys: Keys) -> int:
    """Rows of the embedding table, which is what the output buffer is sized by."""
    table = next((t for t in header.tensors if t.name == "token_embd.weight"), None)
    if table is not None and len(table.shape) > 1:
        return table.shape[1]
    if "vocab_size" in keys.values:
        return keys.count("vocab_size")
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, LongArray):
        return tokens.length
    if isinstance(tokens, tuple):
        return len(tokens)
    raise header.broken("neither `token_embd.weight` nor a vocabulary is in it")


def _text(header: GgufHeader, key: str) -> str | None:
    value = header.metadata.get(key)
    return value if isinstance(value, str) else None


def _tokenizer(header: GgufHeader) -> str | None:
    model, pre = _text(header, "tokenizer.ggml.model"), _text(header, "tokenizer.ggml.pre")
    return f"{model}/{pre or 'default'}" if model else None
