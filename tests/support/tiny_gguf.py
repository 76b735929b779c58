"""Small GGUF models with random weights, for engine tests that take a fraction of a second.

The tokenizer knows bytes and letters; only letters have output weights, so that answers are
always valid text and never end before their limit. Weights are F16 (some builds of the engine
die on quantized blocks when the CPU is old).
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import TYPE_CHECKING

import gguf
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPECIAL = ("<unk>", "<s>", "</s>")
LETTERS = (*string.ascii_letters, "\u2581")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
TOKENS = SPECIAL + BYTES + LETTERS
LETTER_WEIGHT = 3.0
STATE_HEADS = 4  # of mamba2
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The sizes of a tiny model; `window` makes it a sliding-window one, `latent` an MLA one.

    The layers in `recurrent` keep a state instead of a cache: short convolutions of lfm2 or
    the state space of mamba2.
    """

    arch: str
    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    head: int = 32
    feed_forward: int = 128
    context: int = 8192
    window: int | None = None
    latent: int | None = None  # rank of the KV latent
    rope: int = 16  # of an MLA key
    recurrent: tuple[int, ...] = ()
    convolution: int = 4  # tokens that it sees
    state: int = 16
    tokens: tuple[str, ...] = TOKENS


SHAPES = {
    "llama": Shape(arch="llama"),
    "llama-4-layers": Shape(arch="llama", layers=4, width=256, feed_forward=512),
    "draft": Shape(arch="llama", layers=1, width=32, heads=2, kv_heads=1),
    "other-vocabulary": Shape(arch="llama", layers=1, tokens=TOKENS[:-20]),
    "gemma3": Shape(arch="gemma3", layers=6, kv_heads=1, window=128),
    "deepseek2": Shape(arch="deepseek2", kv_heads=4, latent=64),
    # as wide as makes their states more than the rounding of a log
    "lfm2": Shape(arch="lfm2", layers=4, width=256, head=64, convolution=32, recurrent=(0, 1, 3)),
    "mamba2": Shape(
        arch="mamba2",
        layers=3,
        width=256,
        heads=0,
        kv_heads=0,
        feed_forward=0,
        state=64,
        recurrent=(0, 1, 2),
    ),
}


def write_tiny(path: Path, shape: Shape, *, seed: int = 7, split: int = 0) -> Path:
    """Write a model of `shape` to `path`; with `split`, at most that many tensors a file."""
    options = {"split_max_tensors": split} if split else {}
    writer = gguf.GGUFWriter(path, shape.arch, **options)
    _describe(writer, shape)
    _tokenizer(writer, shape)
    random = np.random.default_rng(seed)
    for name, rows in _tensors(shape):
        writer.add_tensor(name, _weights(name, rows, shape, random))
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _describe(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_name(f"tiny {shape.arch}")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(_heads_kv(shape))
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(shape.tokens))
    if shape.latent is not None:
        _describe_latent(writer, shape, shape.latent)
    elif shape.heads:
        writer.add_key_length(shape.head)
        writer.add_value_length(shape.head)
        writer.add_rope_dimension_count(shape.head)
    if shape.window is not None:
        writer.add_sliding_window(shape.window)
    if shape.arch == "lfm2":
        writer.add_shortconv_l_cache(shape.convolution)
    if shape.arch == "mamba2":
        writer.add_ssm_conv_kernel(shape.convolution)
        writer.add_ssm_inner_size(2 * shape.width)
        writer.add_ssm_state_size(shape.state)
        writer.add_ssm_time_step_rank(STATE_HEADS)
        writer.add_ssm_group_count(1)


def _heads_kv(shape: Shape) -> int | list[int]:
    if shape.arch != "lfm2":
        return 1 if shape.latent else shape.kv_heads
    return [0 if i in shape.recurrent else shape.kv_heads for i in range(shape.layers)]


def _describe_latent(writer: gguf.GGUFWriter, shape: Shape, latent: int) -> None:
    """As the converter writes DeepSeek: the cache is one latent and one RoPE part a token."""
    writer.add_q_lora_rank(latent)
    writer.add_kv_lora_rank(latent)
    writer.add_key_length(latent + shape.rope)
    writer.add_value_length(latent)
    writer.add_key_length_mla(shape.head + shape.rope)
    writer.add_value_length_mla(shape.head)
    writer.add_rope_dimension_count(shape.rope)
    writer.add_leading_dense_block_count(shape.layers)
    writer.add_expert_count(0)
    writer.add_expert_used_count(0)
    writer.add_expert_feed_forward_length(shape.feed_forward)
    writer.add_expert_shared_count(0)
    writer.add_expert_weights_scale(1.0)


def _tokenizer(writer: gguf.GGUFWriter, shape: Shape) -> None:
    kinds = dict.fromkeys(BYTES, gguf.TokenType.BYTE)
    kinds |= dict.fromkeys(SPECIAL, gguf.TokenType.CONTROL)
    kinds["<unk>"] = gguf.TokenType.UNKNOWN
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token.encode() for token in shape.tokens])
    writer.add_token_scores([-float(index) for index in range(len(shape.tokens))])
    writer.add_token_types([kinds.get(token, gguf.TokenType.NORMAL) for token in shape.tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(value=True)
    writer.add_add_space_prefix(value=False)
    writer.add_chat_template(CHATML)


def _tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield each tensor's name and its shape, outermost dimension first."""
    yield "token_embd.weight", (len(shape.tokens), shape.width)
    last = "token_embd_norm" if shape.arch == "lfm2" else "output_norm"
    yield f"{last}.weight", (shape.width,)
    yield "output.weight", (len(shape.tokens), shape.width)
    for layer in range(shape.layers):
        blk = f"blk.{layer}"
        yield f"{blk}.attn_norm.weight", (shape.width,)
        yield from _mixer(blk, shape, recurrent=layer in shape.recurrent)
        if shape.feed_forward:
            yield f"{blk}.ffn_norm.weight", (shape.width,)
            for name in ("ffn_gate", "ffn_up"):
                yield f"{blk}.{name}.weight", (shape.feed_forward, shape.width)
            yield f"{blk}.ffn_down.weight", (shape.width, shape.feed_forward)
        if shape.arch == "gemma3":
            for name in ("post_attention_norm", "post_ffw_norm"):
                yield f"{blk}.{name}.weight", (shape.width,)


def _mixer(blk: str, shape: Shape, *, recurrent: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    if recurrent:
        yield from _state_space(blk, shape) if shape.arch == "mamba2" else _convolution(blk, shape)
        return
    yield from _attention(blk, shape)
    if shape.arch in {"gemma3", "lfm2"}:
        for name in ("attn_q_norm", "attn_k_norm"):
            yield f"{blk}.{name}.weight", (shape.head,)


def _convolution(blk: str, shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{blk}.shortconv.conv.weight", (shape.width, shape.convolution)
    yield f"{blk}.shortconv.in_proj.weight", (3 * shape.width, shape.width)
    yield f"{blk}.shortconv.out_proj.weight", (shape.width, shape.width)


def _state_space(blk: str, shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    inner, mixed = 2 * shape.width, 2 * shape.width + 2 * shape.state
    yield f"{blk}.ssm_in.weight", (inner + mixed + STATE_HEADS, shape.width)
    yield f"{blk}.ssm_conv1d.weight", (mixed, shape.convolution)
    yield f"{blk}.ssm_conv1d.bias", (mixed,)
    yield f"{blk}.ssm_dt.bias", (STATE_HEADS,)
    yield f"{blk}.ssm_a", (STATE_HEADS, 1)
    yield f"{blk}.ssm_d", (STATE_HEADS, 1)
    yield f"{blk}.ssm_norm.weight", (1, inner)
    yield f"{blk}.ssm_out.weight", (shape.width, inner)


def _attention(blk: str, shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    if shape.latent is None:
        yield f"{blk}.attn_q.weight", (shape.heads * shape.head, shape.width)
        yield f"{blk}.attn_k.weight", (shape.kv_heads * shape.head, shape.width)
        yield f"{blk}.attn_v.weight", (shape.kv_heads * shape.head, shape.width)
    else:
        yield f"{blk}.attn_q_a.weight", (shape.latent, shape.width)
        yield f"{blk}.attn_q_a_norm.weight", (shape.latent,)
        yield f"{blk}.attn_q_b.weight", (shape.heads * (shape.head + shape.rope), shape.latent)
        yield f"{blk}.attn_kv_a_mqa.weight", (shape.latent + shape.rope, shape.width)
        yield f"{blk}.attn_kv_a_norm.weight", (shape.latent,)
        yield f"{blk}.attn_k_b.weight", (shape.heads, shape.latent, shape.head)
        yield f"{blk}.attn_v_b.weight", (shape.heads, shape.head, shape.latent)
    yield f"{blk}.attn_output.weight", (shape.width, shape.heads * shape.head)


def _weights(
    name: str, rows: tuple[int, ...], shape: Shape, random: np.random.Generator
) -> np.ndarray:
    if name.endswith("norm.weight"):
        return np.ones(rows, dtype=np.float32)
    if (
        name.rpartition(".")[2] in {"bias", "ssm_a", "ssm_d"}
        or "conv1d" in name
        or ".conv." in name
    ):
        return np.full(rows, -0.5, dtype=np.float32)
    values = random.standard_normal(rows) * 0.05
    if name == "output.weight":
        letters = np.array([token in LETTERS[:-1] for token in shape.tokens])
        values = np.where(letters[:, None], values / 0.05 * LETTER_WEIGHT, 0.0)
    return values.astype(np.float16)
