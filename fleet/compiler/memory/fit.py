"""Whether a plan fits a host: per device the capacity, the margin, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fleet.sizes import MIB

if TYPE_CHECKING:
    from fleet.compiler.memory.plan_memory import MemoryPlan, Share
    from fleet.facts.host_facts import HostFacts

SLACK = 200 * MIB  # less than this to spare is tight
Answer = Literal["fits", "tight", "no"]
_WORST: tuple[Answer, ...] = ("no", "tight", "fits")


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceFit:
    """One device: its share of the plan, its capacity in bytes (None: not known).

    `used` is what lies in that memory, which is more than the share where it is shared.
    """

    share: Share
    capacity: int | None
    used: int
    answer: Answer

    @property
    def free(self) -> int | None:
        """Bytes left; negative where it does not fit."""
        return None if self.capacity is None else self.capacity - self.used


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """`fits`, `tight` or `no` over all devices; `later` is the host once caches are full."""

    answer: Answer
    devices: tuple[DeviceFit, ...]
    host: DeviceFit
    later: Answer

    @property
    def fits(self) -> bool:
        """Tight still fits."""
        return self.answer != "no"

    @property
    def short(self) -> int:
        """Bytes missing on the devices that are too small."""
        frees = [fit.free for fit in (*self.devices, self.host) if fit.free is not None]
        return -sum(min(0, free) for free in frees)


def fit(plan: MemoryPlan, host: HostFacts) -> Verdict:
    """Compare a plan with a host's memory; unified memory carries host and device at once.

    A unified memory has one device; further ones are those of other nodes. The host's
    capacity is the smaller of its memory and the cgroup's limit.
    """
    unified = any(gpu.unified for gpu in host.gpus)
    shared = plan.host.total + (sum(s.total for s in plan.devices[:1]) if unified else 0)
    devices = tuple(
        _device(share, _gpu_capacity(host, i), shared if unified and i == 0 else share.total)
        for i, share in enumerate(plan.devices)
    )
    capacity = host_capacity(host)
    on_host = _device(plan.host, capacity, shared)
    full = _answer(capacity, shared + plan.checkpoints + plan.cache_ram)
    answers = [fitted.answer for fitted in (*devices, on_host)]
    answer: Answer = "no" if plan.refused else min(answers, key=_WORST.index)
    return Verdict(answer=answer, devices=devices, host=on_host, later=full)


def host_capacity(host: HostFacts) -> int | None:
    """Return the bytes that a server may use on the host, None when nothing is known."""
    known = [size for size in (host.memory_total, host.memory_limit) if size]
    return int(min(known)) if known else None


def _gpu_capacity(host: HostFacts, index: int) -> int | None:
    if index >= len(host.gpus):
        return 0
    gpu = host.gpus[index]
    if not gpu.unified:
        return int(gpu.memory)
    known = [size for size in (host_capacity(host), int(gpu.memory)) if size]
    return min(known) if known else None


def _device(share: Share, capacity: int | None, needed: int) -> DeviceFit:
    answer = _answer(capacity, needed)
    return DeviceFit(share=share, capacity=capacity, used=needed, answer=answer)


def _answer(capacity: int | None, needed: int) -> Answer:
    if capacity is None:
        return "fits"
    left = capacity - needed
    return "no" if left < 0 else "tight" if left < SLACK else "fits"
