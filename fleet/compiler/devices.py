"""Accelerators and fabric of a host, as a container and as the engine name them.

`ggml-rpc-server` lends a host's devices to a head over the fabric.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.compiler.launch_config import Warn
from fleet.errors import CannotExpress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fleet.compiler.dialects.spelling import Settings
    from fleet.facts.build_facts import BuildFacts
    from fleet.facts.host_facts import HostFacts
    from fleet.facts.model_facts import ModelFacts

INFINIBAND = "/dev/infiniband"
_BY_BACKEND = {
    "cuda": ("nvidia.com/gpu=all",),  # CDI
    "vulkan": ("/dev/dri",),
    "rocm": ("/dev/kfd", "/dev/dri"),
}
_ENGINE_NAMES = {"cuda": "CUDA", "vulkan": "Vulkan", "rocm": "ROCm"}
_RPC_RENAMED = (9093, 9538)  # `rpc-server` before


def container_devices(host: HostFacts, settings: Settings, *, fabric: bool) -> tuple[str, ...]:
    """Return the devices a container needs: accelerators in use, the fabric's."""
    used = () if settings.get("gpu_layers") == 0 else host.gpus
    found = [device for gpu in used for device in _BY_BACKEND[gpu.backend]]
    return tuple(dict.fromkeys([*found, *([INFINIBAND] if fabric else [])]))


def rpc_devices(
    settings: Settings, host: HostFacts, model: ModelFacts | None, workers: Sequence[HostFacts]
) -> Settings:
    """Return the devices of a head in order, workers first, and the layers they take.

    Naming them makes a dead worker an error at start; unnamed, old builds go on without it.
    Without any accelerator each host's CPU gets an equal share of the layers; a head without
    one leaves all to workers that have some.
    """
    chosen: Settings = {}
    if "devices" not in settings:
        own = [f"{_ENGINE_NAMES[gpu.backend]}{index}" for index, gpu in enumerate(host.gpus)]
        chosen["devices"] = ",".join([*(f"RPC{index}" for index in range(len(workers))), *own])
    if "gpu_layers" not in settings:
        if host.gpus or any(worker.gpus for worker in workers):
            chosen["gpu_layers"] = "all"
        elif model is not None:
            chosen["gpu_layers"] = model.n_layer * len(workers) // (len(workers) + 1)
    return chosen


def rpc_warnings(settings: Settings, model: ModelFacts | None) -> Iterator[Warn]:
    """Say which layers a head keeps on its own CPU, where the workers do not have them all."""
    layers = settings.get("gpu_layers")
    if layers is None:
        message = "how many layers go to the workers is not known before the model is read"
        yield Warn(code="rpc-layers", message=message)
    elif model is not None and isinstance(layers, int) and 0 <= layers < model.n_layer:
        message = (
            f"{model.n_layer - layers} of {model.n_layer} layers stay on the head's CPU; "
            "`gpu_layers: all` leaves them all to the workers"
        )
        yield Warn(code="rpc-layers", message=message)


def rpc_program(build: BuildFacts) -> str:
    """Return the RPC worker's program in this build. Raises `CannotExpress` where it changed."""
    renamed = build.changed(*_RPC_RENAMED)
    if renamed is None:
        message = f"{build.name}: the RPC worker was renamed between b9093 and b9538"
        raise CannotExpress(message, where="topology", fix="use b9538 or later")
    return "ggml-rpc-server" if renamed else "rpc-server"
