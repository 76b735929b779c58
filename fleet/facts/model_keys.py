"""The hyperparameters of a model under their GGUF names, and the facts that follow.

A GGUF's metadata and a Hugging Face `config.json` are both brought to these names, so that
one set of rules says which layer caches what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from fleet.facts.layer_kinds import (
    BOTH_IN_EACH_LAYER,
    HEADLESS_ARCHS,
    INDEXER_ARCHS,
    INTERVAL_ARCHS,
    KNOWN_ARCHS,
    MLA_ARCHS,
    RECURRENT_ARCHS,
    ROLLBACK_ARCHS,
    SWA_BY_FILE,
    SWA_IGNORED,
    SWA_PATTERNS,
    cache,
    swa_layers,
    v4_caches,
)
from fleet.facts.model_facts import CacheLayers, StateLayers

if TYPE_CHECKING:
    from fleet.errors import UserError

Caches = tuple[tuple[CacheLayers, ...], tuple[StateLayers, ...]]
_MOST_LAYERS = 4096
_MOST_ELEMENTS = 1 << 26


class Shape(TypedDict):
    """The fields of `ModelFacts` that the keys decide."""

    arch: str
    n_layer: int
    n_embd: int
    n_ctx_train: int
    n_head: int
    n_head_kv: int
    head_dim_k: int
    head_dim_v: int
    n_ff: int
    n_ff_exp: int
    n_expert: int
    n_expert_used: int
    n_swa: int
    is_mla: bool
    is_recurrent: bool
    is_hybrid: bool
    nextn_layers: int
    caches: tuple[CacheLayers, ...]
    states: tuple[StateLayers, ...]
    known: bool


@dataclass(frozen=True, slots=True)
class Keys:
    """Hyperparameters without their architecture prefix; `broken` makes the error."""

    arch: str
    values: Mapping[str, object]
    broken: Callable[[str], UserError]

    def count(self, key: str, default: int | None = None) -> int:
        """Return a whole number of sane size; raises `UserError` when missing or absurd."""
        value = self.values.get(key, default)
        if isinstance(value, Sequence) and not isinstance(value, str) and value:
            value = max((v for v in value if isinstance(v, int)), default=None)
        if value is None:
            raise self.broken(f"the key `{self.arch}.{key}` is missing")
        if (
            not isinstance(value, int)
            or isinstance(value, bool)
            or not 0 <= value <= _MOST_ELEMENTS
        ):
            raise self.broken(f"`{self.arch}.{key}` is {value!r}, no sane number")
        return value

    def per_layer(self, key: str, n_layer: int, default: int | None = None) -> tuple[int, ...]:
        """Return one number for each layer, from a number or an array."""
        value = self.values.get(key)
        if isinstance(value, Sequence) and not isinstance(value, str):
            if len(value) < n_layer or not all(isinstance(v, int) and v >= 0 for v in value):
                raise self.broken(
                    f"`{self.arch}.{key}` has {len(value)} values for {n_layer} layers"
                )
            return tuple(int(v) for v in value[:n_layer])
        return (self.count(key, default),) * n_layer


def shape_of(keys: Keys, tensor_names: frozenset[str] = frozenset()) -> Shape:
    """Return what the keys decide; `tensor_names` settle what old files do not say.

    Raises `UserError` when a key that the shape needs is missing or absurd.
    """
    blocks = keys.count("block_count")
    nextn = keys.count("nextn_predict_layers", 0)
    n_layer = blocks - nextn
    if not 0 < n_layer <= _MOST_LAYERS:
        raise keys.broken(f"`{keys.arch}.block_count` is {blocks}, no sane number of layers")
    n_embd = keys.count("embedding_length")
    heads = keys.per_layer("attention.head_count", n_layer, 0)
    heads_kv = keys.per_layer("attention.head_count_kv", n_layer, max(heads))
    even = n_embd // max(heads) if max(heads) else 0
    key_length = keys.count("attention.key_length", even)
    feed_forward = keys.per_layer("feed_forward_length", n_layer, 0)
    is_mla = keys.arch in MLA_ARCHS and "attention.key_length_mla" in keys.values
    caches, states = layer_caches(keys, n_layer, tensor_names)
    recurrent = {layer for state in states for layer in state.layers if state.name == "recurrent"}
    return Shape(
        arch=keys.arch,
        n_layer=n_layer,
        n_embd=n_embd,
        n_ctx_train=keys.count("context_length"),
        n_head=max(heads),
        n_head_kv=max(heads_kv),
        head_dim_k=keys.count("attention.key_length_mla", key_length) if is_mla else key_length,
        head_dim_v=keys.count(
            "attention.value_length_mla" if is_mla else "attention.value_length", even
        ),
        n_ff=max(feed_forward),
        n_ff_exp=keys.count("expert_feed_forward_length", max(feed_forward)),
        n_expert=keys.count("expert_count", 0),
        n_expert_used=keys.count("expert_used_count", 0),
        n_swa=max((c.window for c in caches), default=0),
        is_mla=is_mla,
        is_recurrent=len(recurrent) == n_layer and not caches,
        is_hybrid=bool(recurrent) and bool(caches),
        nextn_layers=nextn,
        caches=caches,
        states=states,
        known=keys.arch in KNOWN_ARCHS,
    )


def layer_caches(keys: Keys, n_layer: int, tensor_names: frozenset[str]) -> Caches:
    """Return the caches and states of an architecture, by the rules of llama.cpp."""
    if keys.arch == "deepseek4":
        ratios = keys.per_layer("attention.compress_ratios", n_layer)
        return v4_caches(
            ratios,
            head=keys.count("attention.key_length"),
            index_head=keys.count("attention.indexer.key_length", 128),
            window=keys.count("attention.sliding_window", 128),
        )
    recurrent = _recurrent_layers(keys, n_layer)
    states = _states(keys, n_layer, recurrent)
    silent = recurrent if keys.arch not in BOTH_IN_EACH_LAYER else frozenset()
    attending = [i for i in range(n_layer) if i not in silent]
    if keys.arch in MLA_ARCHS and "attention.key_length_mla" in keys.values:
        return _mla(keys, attending, tensor_names), states
    return _heads(keys, n_layer, attending), states


def _mla(
    keys: Keys, attending: Sequence[int], tensor_names: frozenset[str]
) -> tuple[CacheLayers, ...]:
    row = keys.count("attention.key_length")  # the latent and the rotary part, one head
    caches = [cache("mla", attending, row, 0)]
    if keys.arch in INDEXER_ARCHS:
        types = keys.values.get("attention.indexer.types")
        owners = [i for i in attending if _owns_indexer(i, types, tensor_names)]
        caches.append(cache("indexer", owners, keys.count("attention.indexer.key_length"), 0))
    return tuple(caches)


def _owns_indexer(layer: int, types: object, tensor_names: frozenset[str]) -> bool:
    if isinstance(types, Sequence) and layer < len(types):
        return types[layer] in (True, "full")
    names = [name for name in tensor_names if ".indexer" in name]
    return not names or any(name.startswith(f"blk.{layer}.indexer") for name in names)


def _heads(keys: Keys, n_layer: int, attending: Sequence[int]) -> tuple[CacheLayers, ...]:
    heads = keys.per_layer("attention.head_count", n_layer, 0)
    heads_kv = keys.per_layer("attention.head_count_kv", n_layer, max(heads))
    even = keys.count("embedding_length") // max(heads) if max(heads) else 0
    k_length, v_length = (
        keys.count("attention.key_length", even),
        keys.count("attention.value_length", even),
    )
    sliding, window = _sliding(keys, n_layer)
    shared = keys.count("attention.shared_kv_layers", 0)
    owners = [i for i in attending if heads_kv[i] and i < _first_shared(keys, n_layer, shared)]
    k_swa = keys.count("attention.key_length_swa", k_length)
    v_swa = keys.count("attention.value_length_swa", v_length)
    k_rows = {i: heads_kv[i] * (k_swa if i in sliding else k_length) for i in owners}
    v_rows = {i: heads_kv[i] * (v_swa if i in sliding else v_length) for i in owners}
    caches = [cache("kv", [i for i in owners if i not in sliding], k_rows, v_rows)]
    if sliding:
        caches.append(
            cache("swa", [i for i in owners if i in sliding], k_rows, v_rows, window=window)
        )
    if keys.arch == "minimax-m3":
        indexed = [i for i in owners if i >= keys.count("leading_dense_block_count", 0)]
        row = keys.count("attention.indexer.key_length", 128)
        caches.append(cache("indexer", indexed, row, row))
    return tuple(c for c in caches if c.layers)


def _first_shared(keys: Keys, n_layer: int, shared: int) -> int:
    """Layers from here on read the cache of an earlier one."""
    if keys.arch == "gemma3n" and not shared:
        return 20
    return n_layer - shared


def _sliding(keys: Keys, n_layer: int) -> tuple[frozenset[int], int]:
    default = SWA_PATTERNS.get(keys.arch)
    window = keys.count("attention.sliding_window", default.window if default else 0)
    if not window or keys.arch in SWA_IGNORED:
        return frozenset(), 0
    pattern = keys.values.get("attention.sliding_window_pattern")
    if pattern is None and keys.arch in SWA_BY_FILE:
        raise keys.broken(f"the key `{keys.arch}.attention.sliding_window_pattern` is missing")
    if isinstance(pattern, (int, Sequence)) and not isinstance(pattern, str):
        return swa_layers(keys.arch, n_layer, pattern), window
    return swa_layers(keys.arch, n_layer, None), window


def _recurrent_layers(keys: Keys, n_layer: int) -> frozenset[int]:
    every = frozenset(range(n_layer))
    if keys.arch in RECURRENT_ARCHS or keys.arch in BOTH_IN_EACH_LAYER:
        return every
    named = keys.values.get("attention.recurrent_layers")
    if isinstance(named, Sequence) and not isinstance(named, str):
        return frozenset(i for i in range(min(n_layer, len(named))) if named[i])
    if keys.arch in INTERVAL_ARCHS:
        interval = keys.count("full_attention_interval", INTERVAL_ARCHS[keys.arch])
        return frozenset(i for i in every if (i + 1) % max(1, interval))
    if keys.arch in HEADLESS_ARCHS:
        heads_kv = keys.per_layer("attention.head_count_kv", n_layer)
        width = keys.per_layer("feed_forward_length", n_layer, 0)
        also = HEADLESS_ARCHS[keys.arch]
        return frozenset(i for i in every if not heads_kv[i] and not (also and width[i]))
    return frozenset()


def _states(keys: Keys, n_layer: int, recurrent: frozenset[int]) -> tuple[StateLayers, ...]:
    if not recurrent:
        return ()
    elements = _state_elements(keys, n_layer)
    rolls_back = keys.arch in ROLLBACK_ARCHS
    layers = tuple(sorted(recurrent))
    return (StateLayers(name="recurrent", layers=layers, elements=elements, rolls_back=rolls_back),)


def _state_elements(keys: Keys, n_layer: int) -> int:
    """f32 values of one layer: llama.cpp's `n_embd_r` plus `n_embd_s`."""
    n_embd = keys.count("embedding_length")
    heads = max(keys.per_layer("attention.head_count", n_layer, 0))
    if "shortconv.l_cache" in keys.values:
        return n_embd * (keys.count("shortconv.l_cache") - 1)
    if "wkv.head_size" in keys.values:
        return n_embd * (keys.count("token_shift_count", 2) + keys.count("wkv.head_size"))
    conv = keys.count("ssm.conv_kernel") - 1
    if "kda.head_dim" in keys.values:
        head = keys.count("kda.head_dim")
        return 3 * conv * heads * head + head * head * heads
    inner, state = keys.count("ssm.inner_size"), keys.count("ssm.state_size")
    groups = keys.count("ssm.group_count", 0)
    return conv * (inner + 2 * groups * state) + state * inner
