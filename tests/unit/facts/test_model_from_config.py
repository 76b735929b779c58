from __future__ import annotations

from typing import Any

import pytest

from fleet.errors import UserError
from fleet.facts.architecture_records import model_facts_from_record
from fleet.facts.model_from_config import model_facts_from_config

pytestmark = pytest.mark.pure

LLAMA = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 131072, "vocab_size": 128256,
}  # fmt: skip
V32 = {
    "model_type": "deepseek_v32", "num_hidden_layers": 61, "hidden_size": 7168,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_attention_heads": 128,
    "num_key_value_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "index_head_dim": 128, "n_routed_experts": 256,
    "num_experts_per_tok": 8, "first_k_dense_replace": 3, "max_position_embeddings": 163840,
    "vocab_size": 129280,
}  # fmt: skip
GEMMA = {
    "model_type": "gemma3", "text_config": {
        "model_type": "gemma3_text", "num_hidden_layers": 48, "hidden_size": 3840,
        "intermediate_size": 15360, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 256, "sliding_window": 1024, "max_position_embeddings": 131072,
        "vocab_size": 262208, "sliding_window_pattern": 6,
    }, "tie_word_embeddings": True,
}  # fmt: skip
NEXT = {
    "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048,
    "intermediate_size": 5120, "moe_intermediate_size": 512, "num_experts": 512,
    "num_experts_per_tok": 10, "num_attention_heads": 16, "num_key_value_heads": 2,
    "head_dim": 256, "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "linear_value_head_dim": 128, "max_position_embeddings": 262144, "vocab_size": 151936,
}  # fmt: skip

V3 = {key: value for key, value in V32.items() if key != "index_head_dim"} | {
    "model_type": "deepseek_v3", "n_shared_experts": 1,
}  # fmt: skip
QWEN_72B = {
    "model_type": "qwen2", "num_hidden_layers": 80, "hidden_size": 8192,
    "intermediate_size": 29568, "num_attention_heads": 64, "num_key_value_heads": 8,
    "max_position_embeddings": 131072, "vocab_size": 152064,
}  # fmt: skip
QWEN_30B = {
    "model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "head_dim": 128,
    "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "num_attention_heads": 32, "num_key_value_heads": 4,
    "max_position_embeddings": 40960, "vocab_size": 151936,
}  # fmt: skip
MIXTRAL = {
    "model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_local_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 32768,
    "vocab_size": 32000,
}  # fmt: skip


@pytest.mark.parametrize("quant", ["F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_K_S"])
@pytest.mark.parametrize(
    ("config", "record"),
    [(LLAMA, "llama3.1-8b"), (V3, "deepseek-v3"), (GEMMA, "gemma3-12b"), (MIXTRAL, "mixtral-8x7b"),
     (QWEN_72B, "qwen2.5-72b"), (QWEN_30B, "qwen3-30b-a3b")],
)  # fmt: skip
def test_the_quantizers_rules_give_the_size_of_the_file(
    config: dict[str, Any], record: str, quant: str
) -> None:
    ruled, known = (
        model_facts_from_config(config, "c").quants,
        model_facts_from_record(record).quants,
    )

    # a file holds its vocabulary besides
    assert ruled[quant].total == pytest.approx(known[quant].total, rel=0.002)
    assert ruled[quant].experts == pytest.approx(known[quant].experts, rel=0.002)


@pytest.mark.parametrize(
    ("config", "record"),
    [(LLAMA, "llama3.1-8b"), (V32, "deepseek-v3.2"), (GEMMA, "gemma3-12b"),
     (NEXT, "qwen3-next-80b-a3b")],
)  # fmt: skip
def test_a_config_gives_the_caches_of_the_record(config: dict[str, Any], record: str) -> None:
    facts, known = model_facts_from_config(config, "c"), model_facts_from_record(record)

    assert facts.caches == known.caches
    assert facts.state_bytes_per_sequence == known.state_bytes_per_sequence
    assert facts.arch == known.arch
    assert facts.weights is not None
    assert facts.weights.total == pytest.approx(2 * (known.params or 0), rel=0.05)


def test_an_unknown_type_is_planned_and_said_to_be_unknown() -> None:
    facts = model_facts_from_config({**LLAMA, "model_type": "novel"}, "c")

    assert not facts.known
    assert facts.caches == model_facts_from_record("llama3.1-8b").caches


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "vocab_size"])
def test_a_missing_key_is_named(key: str) -> None:
    config = {name: value for name, value in LLAMA.items() if name != key}

    with pytest.raises(UserError, match="is missing"):
        model_facts_from_config(config, "config.json")
