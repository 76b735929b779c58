"""What is true of one host: read by probes in `observe/`, written down here as values."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fleet.sizes import Bandwidth, ByteSize

GpuBackend = Literal["cuda", "vulkan", "rocm"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One accelerator; `unified` means that its memory is the host's own."""

    name: str
    backend: GpuBackend
    memory: ByteSize
    free: ByteSize | None = None
    bandwidth: Bandwidth | None = None
    arch: str | None = None
    driver: str | None = None
    unified: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class NumaNode:
    """One memory node and the logical CPUs beside it."""

    index: int
    cpus: tuple[int, ...]
    memory: ByteSize | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    """A host as probed, or as its hardware profile says when it was not probed.

    `None` means not known, never zero. `cores` are physical cores that this process may
    use; `cpus` the logical CPUs it may use (affinity and cgroup); sizes are bytes.
    """

    name: str
    cores: int
    cpus: tuple[int, ...]
    threads_per_core: int = 1
    first_cpu_of_core: tuple[int, ...] = ()  # one logical CPU for each physical core
    cpu_quota: float | None = None  # CPUs the cgroup grants, for instance 1.5
    cpu_model: str | None = None
    isa: frozenset[str] = frozenset()
    numa_nodes: tuple[NumaNode, ...] = ()
    numa_balancing: bool | None = None
    memory_total: ByteSize | None = None
    memory_available: ByteSize | None = None
    memory_limit: ByteSize | None = None  # of the cgroup
    memory_bandwidth: Bandwidth | None = None
    gpus: tuple[Gpu, ...] = ()
    architecture: str | None = None  # x86_64, aarch64
    os: str | None = None
    kernel: str | None = None
    podman: str | None = None  # version
    rootless: bool | None = None
    systemd: bool | None = None
    quadlet: bool | None = None
    selinux: bool | None = None
    linger: bool | None = None
    hugepages: int | None = None
    memlock_limit: int | None = None  # bytes, -1 for none
    disk_free: ByteSize | None = None  # where models lie
    disk_bandwidth: Bandwidth | None = None
    rdma_devices: tuple[str, ...] = ()
    probed: bool = False

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits that change when the hardware or a GPU driver does."""
        what = [
            self.cpu_model,
            self.cores,
            len(self.cpus),
            self.cpu_quota,
            len(self.numa_nodes),
            # whole GiB: firmware updates move the total by some MiB
            round(self.memory_total.gib) if self.memory_total else None,
            self.memory_limit,
            [(gpu.name, gpu.backend, gpu.memory, gpu.driver) for gpu in self.gpus],
        ]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]
