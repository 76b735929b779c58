"""Threads, CPUs, memory nodes and capabilities of one server, planned together.

The engine counts the cores of the whole machine and knows neither cpuset nor quota, so the
numbers are always given. Binding memory to a node and raised priorities need CAP_SYS_NICE;
only then is it granted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.compiler.launch_config import Warn
from fleet.errors import UserError

if TYPE_CHECKING:
    from fleet.compiler.dialects.spelling import Settings
    from fleet.facts.host_facts import HostFacts

THREADS_OF_FULL_OFFLOAD = 4  # more only wait for the accelerator
SYS_NICE = "SYS_NICE"
_NUMA_BINDS = frozenset({"distribute", "isolate", "numactl"})


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuPlacement:
    """Where the server computes. `cpuset` and `mems` are lists as the kernel writes them."""

    threads: int
    threads_batch: int
    cpuset: str | None
    mems: str | None
    caps: tuple[str, ...]
    warnings: tuple[Warn, ...]


def place_cpus(
    settings: Settings, host: HostFacts, *, reserved_cores: int, full_offload: bool
) -> CpuPlacement:
    """Return threads within cpuset and quota, and what the NUMA mode needs.

    Raises `UserError` for a cpuset that the host does not have.
    """
    cpuset = _cpuset(settings, host)
    most = _most_threads(host, cpuset)
    default = _default_threads(host, cpuset, reserved_cores, full_offload=full_offload)
    warnings: list[Warn] = []
    threads = _bounded("threads", int(settings.get("threads", default)), most, warnings)
    batch_wish = int(settings.get("threads_batch", settings.get("threads", default)))
    batch = _bounded("threads_batch", batch_wish, most, warnings)
    numa = str(settings.get("numa", "off"))
    warnings += _numa_warnings(numa, host, full_offload=full_offload)
    needs_nice = numa in _NUMA_BINDS or max(
        int(settings.get("prio", 0)), int(settings.get("prio_batch", 0))
    ) > 0  # fmt: skip
    return CpuPlacement(
        threads=threads,
        threads_batch=batch,
        cpuset=str(settings["cpuset"]) if "cpuset" in settings else None,
        mems=_mems(settings, host, cpuset),
        caps=(SYS_NICE,) if needs_nice else (),
        warnings=tuple(warnings),
    )


def cpu_numbers(text: str, setting: str) -> tuple[int, ...]:
    """Return the numbers of a kernel list such as `0-3,8`. Raises `UserError`."""
    numbers: list[int] = []
    for run in text.split(","):
        first, _, last = run.strip().partition("-")
        if (
            not first.isdecimal()
            or not (last or first).isdecimal()
            or int(last or first) < int(first)
        ):
            raise UserError(f"`{text}` is no list such as `0-12`", where=setting)
        numbers += range(int(first), int(last or first) + 1)
    return tuple(sorted(set(numbers)))


def _cpuset(settings: Settings, host: HostFacts) -> tuple[int, ...]:
    """Return the CPUs the server may use: those named, within those the host grants."""
    if "cpuset" not in settings:
        return host.cpus
    named = cpu_numbers(str(settings["cpuset"]), "cpuset")
    missing = sorted(set(named) - set(host.cpus))
    if missing and host.cpus:
        fix = f"`{host.name}` grants {len(host.cpus)} CPUs, {host.cpus[0]} to {host.cpus[-1]}"
        raise UserError(f"CPU {missing[0]} is not there", where="cpuset", fix=fix)
    return named


def _most_threads(host: HostFacts, cpuset: tuple[int, ...]) -> int:
    most = len(cpuset) or host.cores
    return max(1, min(most, int(host.cpu_quota)) if host.cpu_quota else most)


def _default_threads(
    host: HostFacts, cpuset: tuple[int, ...], reserved: int, *, full_offload: bool
) -> int:
    """Physical cores less the reserved ones; hyper-threads bring nothing to decoding."""
    chosen = set(cpuset)
    cores = len(chosen & set(host.first_cpu_of_core)) if host.first_cpu_of_core else host.cores
    wanted = max(1, min(cores or len(cpuset), host.cores) - reserved)
    return min(wanted, THREADS_OF_FULL_OFFLOAD) if full_offload else wanted


def _bounded(name: str, wanted: int, most: int, warnings: list[Warn]) -> int:
    if wanted <= most:
        return wanted
    message = f"`{name}` {wanted} is more than the {most} CPUs that the server gets; {most} it is"
    warnings.append(Warn(code="threads-clamped", message=message))
    return most


def _mems(settings: Settings, host: HostFacts, cpuset: tuple[int, ...]) -> str | None:
    """Return the named memory nodes, or those beside a named cpuset on a NUMA machine."""
    if "cpuset_mems" in settings:
        return str(settings["cpuset_mems"])
    if "cpuset" not in settings or len(host.numa_nodes) < 2:  # noqa: PLR2004 - one node is none
        return None
    beside = [node.index for node in host.numa_nodes if set(node.cpus) & set(cpuset)]
    return ",".join(str(index) for index in beside) or None


def _numa_warnings(numa: str, host: HostFacts, *, full_offload: bool) -> list[Warn]:
    many = len(host.numa_nodes) > 1
    if numa == "off" and many and not full_offload:
        message = f"`{host.name}` has {len(host.numa_nodes)} memory nodes and `numa` is off"
        return [Warn(code="numa-off", message=message)]
    if numa != "off" and host.numa_balancing:
        message = "/proc/sys/kernel/numa_balancing is on, which works against `numa`"
        return [Warn(code="numa-balancing", message=message)]
    return []
