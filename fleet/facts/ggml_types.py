"""Bytes of the number formats of ggml: tensors of a GGUF file and cells of a cache."""

from __future__ import annotations

from typing import NamedTuple


class BlockType(NamedTuple):
    """A format: `elements` numbers are stored together in `size` bytes."""

    name: str
    elements: int
    size: int


# id -> format, as ggml.h and ggml.c of ggml 0.25 number and size them; removed ids are absent
GGML_TYPES: dict[int, BlockType] = {
    0: BlockType("f32", 1, 4),
    1: BlockType("f16", 1, 2),
    2: BlockType("q4_0", 32, 18),
    3: BlockType("q4_1", 32, 20),
    6: BlockType("q5_0", 32, 22),
    7: BlockType("q5_1", 32, 24),
    8: BlockType("q8_0", 32, 34),
    9: BlockType("q8_1", 32, 36),
    10: BlockType("q2_k", 256, 84),
    11: BlockType("q3_k", 256, 110),
    12: BlockType("q4_k", 256, 144),
    13: BlockType("q5_k", 256, 176),
    14: BlockType("q6_k", 256, 210),
    15: BlockType("q8_k", 256, 292),
    16: BlockType("iq2_xxs", 256, 66),
    17: BlockType("iq2_xs", 256, 74),
    18: BlockType("iq3_xxs", 256, 98),
    19: BlockType("iq1_s", 256, 50),
    20: BlockType("iq4_nl", 32, 18),
    21: BlockType("iq3_s", 256, 110),
    22: BlockType("iq2_s", 256, 82),
    23: BlockType("iq4_xs", 256, 136),
    24: BlockType("i8", 1, 1),
    25: BlockType("i16", 1, 2),
    26: BlockType("i32", 1, 4),
    27: BlockType("i64", 1, 8),
    28: BlockType("f64", 1, 8),
    29: BlockType("iq1_m", 256, 56),
    30: BlockType("bf16", 1, 2),
    34: BlockType("tq1_0", 256, 54),
    35: BlockType("tq2_0", 256, 66),
    39: BlockType("mxfp4", 32, 17),
    40: BlockType("nvfp4", 64, 36),
}

# what a CPU with AVX2 keeps in a layout of its own when rows come in eights; seen in b10434,
# b11549 and b11669 (q2_k too where the build uses AVX-512)
REPACKED_TYPES = frozenset({"q4_0", "q4_k", "iq4_nl", "mxfp4"})
REPACKED_ROWS = 8

WHOLE_TYPES = frozenset({"f32", "f16", "bf16"})  # not quantised
# what `--cache-type-k` and `--cache-type-v` accept, bytes of 32 elements
CACHE_TYPES: dict[str, int] = {
    "f32": 128,
    "f16": 64,
    "bf16": 64,
    "q8_0": 34,
    "q5_1": 24,
    "q5_0": 22,
    "q4_1": 20,
    "q4_0": 18,
    "iq4_nl": 18,
}
# of ik_llama.cpp only; q8_KV keeps 8 bytes a row besides
IK_CACHE_TYPES: dict[str, int] = {"q6_0": 26, "q8_KV": 32}
