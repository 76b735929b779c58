"""A probed host as a hardware profile that a person can read and keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from fleet.sizes import GIB

if TYPE_CHECKING:
    from fleet.facts.host_facts import Gpu, HostFacts

ISA_WORTH_NAMING = ("avx2", "avx512f", "avx512_vbmi", "avx512_vnni", "avx512_bf16", "amx_tile")


def hardware_yaml(facts: HostFacts, name: str) -> str:
    """Return the profile's text; a figure that is not known is left out."""
    isa = [word for word in ISA_WORTH_NAMING if word in facts.isa]
    known: dict[str, Any] = {
        "kind": "hardware",
        "version": 1,
        "name": name,
        "cpu": facts.cpu_model,
        "cores": facts.cores,
        "threads": len(facts.cpus),
        "numa_nodes": len(facts.numa_nodes) or None,
        "isa": isa or None,
        "memory": _gib(facts.memory_total),
        "memory_bandwidth": str(facts.memory_bandwidth) if facts.memory_bandwidth else None,
        "gpus": [_gpu(gpu) for gpu in facts.gpus] or None,
    }
    return yaml.safe_dump(
        {key: value for key, value in known.items() if value is not None}, sort_keys=False
    )


def _gpu(gpu: Gpu) -> dict[str, Any]:
    known = {
        "name": gpu.name,
        "backend": gpu.backend,
        "memory": None if gpu.unified else _gib(gpu.memory),
        "arch": gpu.arch,
        "unified": gpu.unified or None,
    }
    return {key: value for key, value in known.items() if value is not None}


def _gib(size: int | None) -> str | None:
    return f"{size / GIB:.1f} GiB" if size else None
