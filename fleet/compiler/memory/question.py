"""`MemoryQuestion`: a model, the settings of a launch that take memory, and the build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fleet.facts.model_facts import ModelFacts

MemoryEngine = Literal["llama.cpp", "ik_llama.cpp", "vllm"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryQuestion:
    """What is asked of the planner; contexts and batches in tokens.

    `context` is the whole `--ctx-size`, shared out over `parallel` slots unless `unified`.
    `devices` counts GPUs, 0 runs on the CPU. `gpu_layers` None means all, counted from the
    last, the output layer first. `cpu_moe_layers` keeps the experts of the first n layers on
    the host, None those of no layer. `outputs` is the number of logit rows of a batch, None
    one for each slot and draft token. `build` None is today's. `mla_stores_v` keeps V also
    where the build would not; `no_repack` and `locked` say how weights lie in host memory.
    """

    model: ModelFacts
    context: int
    parallel: int = 1
    unified: bool = False
    batch: int = 2048
    ubatch: int = 512
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attention: bool = True
    outputs: int | None = None
    devices: int = 1
    gpu_layers: int | None = None
    cpu_moe_layers: int | None = None
    draft_tokens: int = 0
    swa_full: bool = False
    engine: MemoryEngine = "llama.cpp"
    build: int | None = None
    build_date: str | None = None
    draft: ModelFacts | None = None
    draft_type_k: str = "f16"
    draft_type_v: str = "f16"
    mmproj_bytes: int = 0
    cache_ram_mib: int = 8192
    checkpoints: int = 32
    no_repack: bool = False
    locked: bool = False
    mla_stores_v: bool = False
    split: tuple[float, ...] = ()
    backend: Literal["cuda", "vulkan", "rocm", "cpu"] = "cuda"
