"""Which layers of a model keep which cache: the rules of llama.cpp, by architecture.

Sources: `load_swa_pattern` and the hyperparameters of each architecture in llama.cpp's
src/llama-model.cpp and llama-hparams.cpp as of October 2026.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fleet.facts.model_facts import CacheLayers, CacheScope, StateLayers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class SwaPattern(NamedTuple):
    """Every `period`-th layer is full; `dense_first` puts it at the start of the period."""

    period: int
    dense_first: bool = False
    window: int = 0  # where the file does not say


SWA_PATTERNS: dict[str, SwaPattern] = {
    "gemma2": SwaPattern(2, window=4096),
    "gpt-oss": SwaPattern(2),
    "openai-moe": SwaPattern(2),
    "llama4": SwaPattern(4, window=8192),
    "cohere2": SwaPattern(4),
    "exaone4": SwaPattern(4, window=4096),
    "exaone-moe": SwaPattern(4),
    "afmoe": SwaPattern(4),
    "olmo2": SwaPattern(4),
    "mellum": SwaPattern(4),
    "muse-glimmer": SwaPattern(4),
    "cohere2moe": SwaPattern(4, dense_first=True),
    "laguna": SwaPattern(4, dense_first=True),
    "smallthinker": SwaPattern(4, dense_first=True),
    "gemma3n": SwaPattern(5),
    "gemma3": SwaPattern(6),
    "gemma-embedding": SwaPattern(6),
    "plamo3": SwaPattern(8),
}
# the pattern must stand in the file
SWA_BY_FILE = frozenset(
    {"gemma4", "granite-swa", "step35", "mimo2", "dots3note", "maple", "spark2-5"}
)
# a window in the file that the engine does not use for its cache
SWA_IGNORED = frozenset({"phi3", "llama", "qwen2", "qwen3", "qwen3moe", "mistral", "mistral3"})

INDEXER_ARCHS = frozenset({"deepseek32", "glm-dsa"})
MLA_ARCHS = frozenset(
    {"deepseek2", "deepseek32", "glm-dsa", "minicpm3", "kimi-linear", "kimi-k3", "mistral4", "plm"}
)
RECURRENT_ARCHS = frozenset({"mamba", "mamba2", "rwkv6", "rwkv7", "rwkv6qwen2", "arwkv7"})
# every n-th layer attends, unless the file says which
INTERVAL_ARCHS: dict[str, int] = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4}
# layers without KV heads are recurrent; True: only those without a feed-forward part too
HEADLESS_ARCHS: dict[str, bool] = {
    "granitehybrid": False,
    "lfm2": False,
    "lfm2moe": False,
    "kimi-linear": False,
    "kimi-k3": False,
    "jamba": False,
    "nemotron_h": True,
    "nemotron_h_moe": True,
    "plamo2": False,
}
BOTH_IN_EACH_LAYER = frozenset({"falcon-h1"})
# keep one more copy of the state for each draft token
ROLLBACK_ARCHS = frozenset(
    {"qwen35", "qwen35moe", "qwen4exp", "kimi-k3", "deepseek4", "glm5next", "nemotron_h",
     "nemotron_h_moe", "lfm2", "lfm2moe", "bailingmoe3"}
)  # fmt: skip
# families whose cache is one row of K and V per head and token, or is told above
GQA_ARCHS = frozenset(
    {"llama", "deci", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "qwen2vl", "qwen3vl",
     "qwen3vlmoe", "mistral", "mistral3", "mixtral", "phi2", "phi3", "phimoe", "gemma",
     "starcoder", "starcoder2", "falcon", "gptneox", "gpt2", "bloom", "mpt", "stablelm",
     "internlm2", "minicpm", "command-r", "dbrx", "olmo", "olmoe", "openelm", "arctic",
     "deepseek", "chatglm", "glm4", "glm4moe", "bitnet", "nemotron", "exaone", "granite",
     "granitemoe", "bailingmoe", "bailingmoe2", "dots1", "arcee", "hunyuan-moe", "hunyuan-dense",
     "smollm3", "ernie4_5", "ernie4_5-moe", "minimax-m2", "seed_oss", "apertus", "grok", "orion",
     "xverse", "baichuan", "refact", "plamo", "codeshell", "jais", "grovemoe"}
)  # fmt: skip
KNOWN_ARCHS = (
    GQA_ARCHS | MLA_ARCHS | RECURRENT_ARCHS | SWA_BY_FILE | BOTH_IN_EACH_LAYER
    | frozenset(SWA_PATTERNS) | frozenset(INTERVAL_ARCHS) | frozenset(HEADLESS_ARCHS)
    | {"deepseek4", "minimax-m3"}
)  # fmt: skip


def swa_layers(arch: str, n_layer: int, pattern: int | Sequence[object] | None) -> frozenset[int]:
    """Return the layers with a sliding window; `pattern` as the file gives it."""
    if pattern is not None and not isinstance(pattern, int):
        return frozenset(i for i in range(n_layer) if i < len(pattern) and pattern[i])
    default = SWA_PATTERNS.get(arch)
    period = pattern if pattern is not None else default.period if default else 1
    if period < 2:  # noqa: PLR2004 - period 1 means that no layer slides
        return frozenset()
    full_at = 0 if default and default.dense_first else period - 1
    return frozenset(i for i in range(n_layer) if i % period != full_at)


def cache(
    name: str,
    layers: Sequence[int],
    k_rows: Mapping[int, int] | int,
    v_rows: Mapping[int, int] | int,
    *,
    window: int = 0,
    ratio: int = 1,
    per_sequence: bool = False,
) -> CacheLayers:
    """Build one cache from the rows of its layers (one number: the same in all)."""
    rows_k = [k_rows if isinstance(k_rows, int) else k_rows[i] for i in layers]
    rows_v = [v_rows if isinstance(v_rows, int) else v_rows[i] for i in layers]
    sliding: CacheScope = "swa_dsv4" if per_sequence else "swa"
    scope: CacheScope = "ratio" if ratio > 1 else sliding if window else "full"
    return CacheLayers(
        name=name,
        scope=scope,
        layers=tuple(layers),
        k_row=max(rows_k, default=0),
        v_row=max(rows_v, default=0),
        k_elements=sum(rows_k),
        v_elements=sum(rows_v),
        window=window,
        ratio=ratio,
    )


def v4_caches(
    ratios: Sequence[int], *, head: int, index_head: int, window: int
) -> tuple[tuple[CacheLayers, ...], tuple[StateLayers, ...]]:
    """Return the caches and compressor states of DeepSeek-V4 from its compression ratios.

    A ratio of 4 is CSA with a lightning indexer, 128 is HCA, 0 slides only; every layer
    keeps the raw window. Source: llama.cpp src/llama-kv-cache-dsv4.cpp.
    """
    csa = [i for i, ratio in enumerate(ratios) if ratio == 4]  # noqa: PLR2004 - CSA
    hca = [i for i, ratio in enumerate(ratios) if ratio == 128]  # noqa: PLR2004 - HCA
    caches = (
        cache("raw_swa", range(len(ratios)), head, 0, window=window, per_sequence=True),
        cache("csa", csa, head, 0, ratio=4),
        cache("hca", hca, head, 0, ratio=128),
        cache("lid", csa, index_head, 0, ratio=4),
    )
    # two tensors each (kv and score); CSA and the indexer keep 8 rows of twice the head
    states = (
        StateLayers(name="csa", layers=tuple(csa), elements=2 * 8 * 2 * head),
        StateLayers(name="hca", layers=tuple(hca), elements=2 * 128 * head),
        StateLayers(name="lid", layers=tuple(csa), elements=2 * 8 * 2 * index_head),
    )
    return caches, states
