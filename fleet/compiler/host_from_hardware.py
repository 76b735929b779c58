"""A host as its hardware profile says, when it was not probed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.facts.host_facts import Gpu, HostFacts, NumaNode
from fleet.sizes import ByteSize

if TYPE_CHECKING:
    from fleet.profiles.kinds import GpuProfile, HardwareProfile

_UNKNOWN_CORES = 4  # a profile that names no cores; the compiler warns


def host_from_hardware(hardware: HardwareProfile, name: str) -> HostFacts:
    """Return facts with the profile's figures; `probed` is False, what it omits None."""
    cores = hardware.cores or _UNKNOWN_CORES
    threads = hardware.threads or cores
    cpus = tuple(range(threads))
    nodes = hardware.numa_nodes or 1
    return HostFacts(
        name=name,
        cores=cores,
        cpus=cpus,
        threads_per_core=max(1, threads // cores),
        first_cpu_of_core=tuple(range(cores)),
        cpu_model=hardware.cpu,
        isa=frozenset(hardware.isa),
        numa_nodes=_numa_nodes(cores, threads, nodes) if nodes > 1 else (),
        memory_total=hardware.memory,
        memory_bandwidth=hardware.memory_bandwidth,
        gpus=tuple(gpu for kind in hardware.gpus for gpu in _gpus(kind, hardware)),
    )


def _numa_nodes(cores: int, threads: int, nodes: int) -> tuple[NumaNode, ...]:
    """Spread cores over nodes as Linux numbers them: siblings follow after all cores."""
    each = cores // nodes
    return tuple(
        NumaNode(
            index=node,
            cpus=tuple(
                cpu for cpu in range(threads) if (cpu % cores) // max(1, each) == node
            ),
        )
        for node in range(nodes)
    )  # fmt: skip


def _gpus(kind: GpuProfile, hardware: HardwareProfile) -> tuple[Gpu, ...]:
    memory = kind.memory or (hardware.memory if kind.unified else None) or ByteSize(0)
    gpu = Gpu(
        name=kind.name, backend=kind.backend, memory=memory, bandwidth=kind.bandwidth,
        arch=kind.arch, unified=kind.unified,
    )  # fmt: skip
    return (gpu,) * kind.count
