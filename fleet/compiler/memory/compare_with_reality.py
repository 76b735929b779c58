"""The plan of a running server beside what the engine printed and the host shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.sizes import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleet.compiler.memory.plan_memory import MemoryPlan

ALLOWED = 0.02  # a larger gap is a finding
_LEAST = MIB  # and so is nothing below a MiB
_CACHE = re.compile(r"llama_kv_cache\S*: size =\s*([\d.]+) MiB \(\s*\d+ cells,\s*\d+ layers")
_BUFFERS = {
    "model": re.compile(r"(\S+) model buffer size =\s*([\d.]+) MiB"),
    "compute": re.compile(r"(\S+) compute buffer size =\s*([\d.]+) MiB"),
    "output": re.compile(r"(\S+)\s+output buffer size =\s*([\d.]+) MiB"),
    "state": re.compile(r"(\S+) RS buffer size =\s*([\d.]+) MiB"),
}
_HOSTS = ("CPU", "CUDA_Host", "ROCm_Host", "Vulkan_Host", "BLAS")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """One item of the plan and what it is in truth, in MiB.

    What grows with use, or whose pages may be absent, is planned from `planned` to `most`.
    """

    item: str
    planned: float
    actual: float
    most: float | None = None

    @property
    def apart(self) -> float:
        """How far the truth lies outside of the plan, MiB."""
        most = self.planned if self.most is None else self.most
        return max(self.planned - self.actual, self.actual - most, 0.0)

    @property
    def share(self) -> float:
        """The same as a share of the truth, 0.02 is two percent."""
        return self.apart / self.actual if self.actual else 0.0

    @property
    def finding(self) -> bool:
        """Whether the gap is one to report."""
        return self.share > ALLOWED and self.apart * MIB > _LEAST


def printed_memory(lines: Iterable[str]) -> dict[str, float]:
    """Return what a log at verbosity 4 prints, in MiB, by item; empty when it prints none.

    Items: `kv`, `state`, `output`, `weights`, `weights GPU`, `compute GPU`, `compute CPU`.
    A compute buffer printed again replaces the earlier one: the engine reserves twice.
    """
    caches: list[float] = []
    found: dict[tuple[str, str, int], float] = {}
    context = pieces = 0
    for line in lines:
        if cache := _CACHE.search(line):
            caches.append(float(cache[1]))
            continue
        for kind, pattern in _BUFFERS.items():
            if buffer := pattern.search(line):
                # a mapped file comes in pieces; a draft model has a context of its own
                context += kind == "output"
                pieces += kind == "model"
                found[kind, buffer[1], pieces if kind == "model" else context] = float(buffer[2])
    return _items(caches, found)


def _items(caches: list[float], found: Mapping[tuple[str, str, int], float]) -> dict[str, float]:
    items: dict[str, float] = {}
    if caches:
        items["kv"] = sum(caches)
    for (kind, device, _), size in found.items():
        where = "CPU" if device.startswith(_HOSTS) else "GPU"
        names = {
            "model": ["weights", f"weights {where}"],
            "compute": [f"compute {where}"],
            "output": ["output"],
            "state": ["state"],
        }
        for name in names[kind]:
            items[name] = items.get(name, 0.0) + size
    return items


def planned_memory(plan: MemoryPlan) -> dict[str, float]:
    """Return the same items of a plan, those of a draft with them, in MiB."""
    gpus = plan.devices
    items = {
        "kv": sum(share.kv for share in (*gpus, plan.host)),
        "state": sum(share.state for share in (*gpus, plan.host)),
        "output": plan.output,
        "weights": sum(share.weights for share in (*gpus, plan.host)) + plan.mapped_twice,
        "compute CPU": plan.host.compute - plan.output,
    }
    if gpus:
        items["weights GPU"] = sum(share.weights for share in gpus)
        items["compute GPU"] = sum(share.compute for share in gpus)
    return {name: size / MIB for name, size in items.items()}


def gaps(plan: MemoryPlan, actual: Mapping[str, float]) -> tuple[Gap, ...]:
    """Return plan and truth for every item that both know; `actual` is in MiB.

    Beside the printed items, `total GPU` (nvidia-smi of the process) and `total host`
    (memory of the container) may be given.
    """
    planned = {item: (size, size) for item, size in planned_memory(plan).items()}
    # of a GPU's overhead nobody tells how much a driver takes
    gpus = sum(share.total for share in plan.devices) / MIB
    overhead = sum(share.overhead for share in plan.devices) / MIB
    planned["total GPU"] = (gpus - overhead, gpus + overhead)
    planned["total host"] = _on_host(plan)
    return tuple(
        Gap(item=item, planned=planned[item][0], actual=size, most=planned[item][1])
        for item, size in actual.items()
        if item in planned
    )


def _on_host(plan: MemoryPlan) -> tuple[float, float]:
    """Resident MiB of a server: at least its caches, at most all pages and full caches.

    Pages of the weights come and go; those of a compute buffer come with their first use.
    """
    host = plan.host
    grows = plan.cache_ram + plan.checkpoints + plan.mapped_twice + host.overhead
    return (host.kv + host.state) / MIB, (host.total + grows) / MIB
