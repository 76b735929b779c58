"""What is true of a model: its shape, what each layer caches, what its weights take.

Built from a GGUF header (`model_from_gguf`), a shipped architecture record
(`architecture_records`) or a Hugging Face `config.json` (`model_from_config`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CacheScope = Literal["full", "swa", "swa_dsv4", "ratio"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheLayers:
    """One cache and the layers that keep a row in it for each cell.

    `scope`: `full` has a cell for every token, `swa` for those in the `window`, `swa_dsv4`
    the same per sequence, `ratio` one for every `ratio` tokens. Rows are numbers of
    elements of the widest layer; `k_elements` and `v_elements` the sums over all layers.
    """

    name: str
    scope: CacheScope
    layers: tuple[int, ...]
    k_row: int
    v_row: int
    k_elements: int
    v_elements: int
    window: int = 0
    ratio: int = 1


def even_cache(
    name: str, scope: CacheScope, layers: Sequence[int], rows: tuple[int, int], **rest: int
) -> CacheLayers:
    """Return a cache whose `rows` of K and of V are the same in all layers."""
    k_row, v_row = rows
    return CacheLayers(
        name=name, scope=scope, layers=tuple(layers), k_row=k_row, v_row=v_row,
        k_elements=len(layers) * k_row, v_elements=len(layers) * v_row, **rest,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class StateLayers:
    """State of fixed size that a sequence keeps in some layers, always f32.

    `elements` is the number of values in one layer; `rolls_back` says whether drafting
    keeps one more copy for each draft token.
    """

    name: str
    layers: tuple[int, ...]
    elements: int
    rolls_back: bool = True

    @property
    def bytes_per_sequence(self) -> int:
        """Bytes of one sequence without copies for drafts."""
        return len(self.layers) * self.elements * 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Bytes of the tensors of one file: all of them, and where they go.

    `token_embd` stays on the host; when `tied`, a device with the output layer gets a copy
    of it too. `host_tables` are other tables that stay on the host. `layers` and
    `expert_layers` are bytes per layer (all, and of the experts alone); empty when only the
    totals are known. `largest_experts` are the two largest expert tensors. `mapped_twice` are
    bytes between others in the file that a CPU of x86 copies into a layout of its own.
    """

    quant: str
    total: int
    token_embd: int
    output: int
    experts: int = 0
    host_tables: int = 0
    tied: bool = False
    layers: tuple[int, ...] = ()
    expert_layers: tuple[int, ...] = ()
    largest_experts: tuple[int, ...] = ()
    mapped_twice: int = 0


def two_largest(sizes: Iterable[int]) -> tuple[int, ...]:
    """Return the `largest_experts` among the sizes of all expert tensors."""
    return tuple(sorted(set(sizes), reverse=True)[:2])


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputeTable:
    """A peak that is no straight line: f32 values per token of a ubatch, masks left out.

    `values` has a row for each of `ubatches`, a column for each of `contexts` (cells of one
    stream); between them lines, in the context and in one over the ubatch.
    """

    contexts: tuple[int, ...]
    ubatches: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputeFigures:
    """Coefficients of one architecture's compute buffer, from llama.cpp's reservations.

    `base` and `dequant` are f32 values for each token of a ubatch: the peak of the graph
    without and with the f16 copy of a quantised cache. `dense` are the same where several
    sequences share one stream and a sparse path is not taken. A copy of up to `hole` values
    per token finds room among tensors that are dead by then. `no_flash` is what each token
    takes without flash attention beyond the rule for all. `variants` replace `base` and
    `dequant` where K and V are copied, by whether each is quantised (`q`) or not (`n`).
    `sequence` is what each further sequence adds, in bytes. `tables` are by (`f16`, `q` or
    `bf16`, sequences). `cpu` are contexts and the bytes per token without a GPU.
    """

    base: int
    dequant: int
    dense: tuple[int, int] | None = None
    hole: int = 0
    no_flash: int = 0
    variants: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    sequence: int = 0
    tables: Mapping[tuple[str, int], ComputeTable] = field(default_factory=dict)
    cpu: tuple[tuple[int, ...], tuple[float, ...]] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFacts:
    """A model as the planner, the compiler and the tuner see it.

    `arch` is the GGUF architecture; `n_layer` leaves out the `nextn_layers` (MTP). Head
    counts and dimensions are those of the widest layer. `n_swa` is the sliding window in
    tokens, 0 without one. `weights` is None when no file and no quantisation was named;
    `quants` holds those that the record knows. `known` is False when the caches of this
    architecture are not known and the figures are bounds.
    """

    name: str
    arch: str
    source: Literal["gguf", "record", "config"]
    n_layer: int
    n_embd: int
    n_ctx_train: int
    n_vocab: int
    n_head: int
    n_head_kv: int
    head_dim_k: int
    head_dim_v: int
    n_ff: int
    n_ff_exp: int = 0
    n_expert: int = 0
    n_expert_used: int = 0
    n_swa: int = 0
    is_mla: bool = False
    is_recurrent: bool = False
    is_hybrid: bool = False
    nextn_layers: int = 0
    caches: tuple[CacheLayers, ...] = ()
    states: tuple[StateLayers, ...] = ()
    compute: ComputeFigures | None = None
    weights: Weights | None = None
    quants: Mapping[str, Weights] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    params: int | None = None
    tokenizer: str | None = None  # `tokenizer.ggml.model/pre`, equal for a fitting draft
    known: bool = True

    @property
    def v_is_part_of_k(self) -> bool:
        """Whether one cache serves both, so that both have one number format."""
        return self.is_mla or self.arch == "deepseek4"

    @property
    def weights_bytes(self) -> int | None:
        """Bytes of all tensors, or None when no file or quantisation is named."""
        return self.weights.total if self.weights else None

    @property
    def active_bytes_per_token(self) -> int | None:
        """Bytes of weights that one token reads: all but the embedding table and idle experts."""
        if self.weights is None:
            return None
        weights = self.weights
        dense = weights.total - weights.experts - weights.host_tables
        dense -= 0 if weights.tied else weights.token_embd
        return dense + weights.experts * self.n_expert_used // max(1, self.n_expert)

    @property
    def state_bytes_per_sequence(self) -> int:
        """Bytes of recurrent and compressor state that one sequence keeps."""
        return sum(state.bytes_per_sequence for state in self.states)
