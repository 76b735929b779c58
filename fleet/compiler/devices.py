"""Accelerators and fabric of a host, as a container and as the engine name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleet.compiler.dialects.spelling import Settings
    from fleet.facts.host_facts import HostFacts
    from fleet.facts.model_facts import ModelFacts

INFINIBAND = "/dev/infiniband"
_BY_BACKEND = {
    "cuda": ("nvidia.com/gpu=all",),  # CDI
    "vulkan": ("/dev/dri",),
    "rocm": ("/dev/kfd", "/dev/dri"),
}
_ENGINE_NAMES = {"cuda": "CUDA", "vulkan": "Vulkan", "rocm": "ROCm"}


def container_devices(host: HostFacts, settings: Settings, *, fabric: bool) -> tuple[str, ...]:
    """Return the devices a container needs: accelerators in use, the fabric's."""
    used = () if settings.get("gpu_layers") == 0 else host.gpus
    found = [device for gpu in used for device in _BY_BACKEND[gpu.backend]]
    return tuple(dict.fromkeys([*found, *([INFINIBAND] if fabric else [])]))


def rpc_devices(
    settings: Settings, host: HostFacts, model: ModelFacts | None, workers: int
) -> Settings:
    """Return the devices of a head in order, workers first, and the layers they take.

    Naming them makes a dead worker an error at start; unnamed, old builds go on without it.
    A head without an accelerator keeps its own share of the layers on its CPU.
    """
    chosen: Settings = {}
    if "devices" not in settings:
        own = [f"{_ENGINE_NAMES[gpu.backend]}{index}" for index, gpu in enumerate(host.gpus)]
        chosen["devices"] = ",".join([*(f"RPC{index}" for index in range(workers)), *own])
    if "gpu_layers" not in settings and model is not None:
        chosen["gpu_layers"] = model.n_layer * workers // (workers + 1)
    return chosen
