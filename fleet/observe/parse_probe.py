"""Turn the answer of the probe script into `HostFacts`; pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleet.facts.host_facts import Gpu, HostFacts, NumaNode
from fleet.sizes import KIB, MIB, ByteSize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CGROUP1_NO_LIMIT = 1 << 60  # the kernel writes about 2^63 rounded to pages for "no limit"
AMD, INTEL = "0x1002", "0x8086"
SMALL_CARVE_OUT = 4 * 1024 * MIB  # what a BIOS gives an integrated GPU as its own
KFD = "/dev/kfd"


def parse_probe(text: str, *, name: str) -> HostFacts:
    """Return what the sections of `text` say; what they do not say is None."""
    part = _sections(text)
    cpus = _allowed_cpus(part)
    first, per_core = _cores(part.get("topology", ""), cpus)
    os_release = _pairs(part.get("os", ""), "=")
    kernel = part.get("uname", "").split()
    return HostFacts(
        name=name,
        cores=len(first),
        cpus=cpus,
        threads_per_core=per_core,
        first_cpu_of_core=first,
        cpu_quota=_cpu_quota(part),
        cpu_model=_cpu_model(part.get("cpuinfo", "")),
        isa=_isa(part.get("cpuinfo", "")),
        numa_nodes=_numa_nodes(part.get("numa", "")),
        numa_balancing=_flag(part.get("numa_balancing", "")),
        memory_total=_meminfo(part, "MemTotal"),
        memory_available=_meminfo(part, "MemAvailable"),
        memory_limit=_memory_limit(part),
        gpus=_gpus(part),
        architecture=kernel[-1] if kernel else None,
        os=os_release.get("PRETTY_NAME", "").strip('"') or None,
        kernel=kernel[1] if len(kernel) > 1 else None,
        podman=_version(part.get("podman", "")),
        rootless=part["uid"].strip() != "0" if part.get("uid", "").strip() else None,
        systemd=_yes(part.get("systemd", "")),
        quadlet=bool(part.get("quadlet", "").strip()),
        selinux=part["selinux"].strip() == "Enforcing" if part.get("selinux") else None,
        linger=_yes(part.get("linger", "")),
        hugepages=_integer(part.get("hugepages", "")),
        memlock_limit=_memlock(part.get("limits", "")),
        disk_free=_disk_free(part.get("disk", "")),
        rdma_devices=tuple(part.get("rdma", "").split()),
    )


def cpu_list(text: str) -> tuple[int, ...]:
    """Read the kernel's `0-3,8,10-11`."""
    numbers: list[int] = []
    for span in filter(None, text.strip().split(",")):
        low, _, high = span.partition("-")
        numbers.extend(range(int(low), int(high or low) + 1))
    return tuple(numbers)


def _sections(text: str) -> dict[str, str]:
    """Return the text under each `@@ name`; a section without text is left out."""
    found: dict[str, str] = {}
    for block in re.split(r"(?m)^@@ ", text)[1:]:
        title, _, body = block.partition("\n")
        if body.strip():
            found[title.strip()] = body.strip("\n")
    return found


def _allowed_cpus(part: Mapping[str, str]) -> tuple[int, ...]:
    """Return the logical CPUs of the affinity mask, which a cpuset narrows too."""
    allowed = _pairs(part.get("status", ""), ":").get("Cpus_allowed_list", "")
    present = [int(n) for n in re.findall(r"(?m)^processor\s*:\s*(\d+)", part.get("cpuinfo", ""))]
    mask = cpu_list(allowed)
    # the mask also names CPUs that are not plugged in
    return tuple(cpu for cpu in mask if cpu in set(present)) or mask or tuple(present)


def _cores(topology: str, cpus: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Return the first usable CPU of each physical core, and the threads of a core.

    Without a topology (some virtual machines) each CPU counts as a core.
    """
    lines = (line.partition(" ") for line in topology.splitlines())
    siblings = {int(cpu): cpu_list(mates) for cpu, _, mates in lines}
    usable = set(cpus)
    groups = {siblings.get(cpu, (cpu,)) for cpu in cpus}
    first = sorted(min(mate for mate in group if mate in usable) for group in groups)
    return tuple(first), max((len(group) for group in groups), default=1)


def _cpu_quota(part: Mapping[str, str]) -> float | None:
    """Return the smallest quota on the way up the cgroup tree, in CPUs."""
    # `-1` of cgroup 1 and `max` of cgroup 2 are no quota
    quotas = [
        int(words[1]) / int(words[2])
        for words in _cgroup(part)
        if words[0] in {"cpu", "cpu.max"} and len(words) == 3 and words[1].isdigit()  # noqa: PLR2004
    ]
    return min(filter(None, quotas), default=None)


def _memory_limit(part: Mapping[str, str]) -> ByteSize | None:
    """Return the smallest memory limit on the way up, None where it is above the machine's."""
    limits = [
        int(words[1])
        for words in _cgroup(part)
        if words[0].startswith("memory")
        and words[1:]
        and words[1].isdigit()
        and int(words[1]) < CGROUP1_NO_LIMIT
    ]
    total = _meminfo(part, "MemTotal")
    below = [limit for limit in limits if total is None or limit < total]
    return ByteSize(min(below)) if below else None


def _cgroup(part: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the words of each limit, `kind value ...`, of both versions of cgroups."""
    for version in ("cgroup2", "cgroup1"):
        yield from map(str.split, part.get(version, "").splitlines())


def _cpu_model(cpuinfo: str) -> str | None:
    found = re.search(r"(?m)^(?:model name|Model|Hardware)\s*:\s*(.+)$", cpuinfo)
    return found.group(1).strip() if found else None


def _isa(cpuinfo: str) -> frozenset[str]:
    found = re.search(r"(?m)^(?:flags|Features)\s*:\s*(.+)$", cpuinfo)
    return frozenset(found.group(1).split()) if found else frozenset()


def _numa_nodes(text: str) -> tuple[NumaNode, ...]:
    """Read `index cpulist kilobytes`; a node without CPUs has only two words."""
    nodes = []
    for line in text.splitlines():
        words = line.split()
        kib = int(words[-1]) if len(words) > 1 else None
        cpus = cpu_list(words[1]) if len(words) > 2 else ()  # noqa: PLR2004
        memory = ByteSize(kib * KIB) if kib is not None else None
        nodes.append(NumaNode(index=int(words[0]), cpus=cpus, memory=memory))
    return tuple(sorted(nodes, key=lambda node: node.index))


def _meminfo(part: Mapping[str, str], key: str) -> ByteSize | None:
    found = re.search(rf"(?m)^{key}:\s*(\d+) kB", part.get("meminfo", ""))
    return ByteSize(int(found.group(1)) * KIB) if found else None


def _gpus(part: Mapping[str, str]) -> tuple[Gpu, ...]:
    total = _meminfo(part, "MemTotal")
    cuda = [_nvidia(line, total) for line in part.get("nvidia", "").splitlines() if "," in line]
    if cuda:
        return tuple(cuda)
    backend_is_rocm = "rocm" in part and KFD in part.get("dri", "")
    lines = map(str.split, part.get("drm", "").splitlines())
    seen = (_drm(words, total, rocm=backend_is_rocm) for words in lines)
    return tuple(gpu for gpu in seen if gpu is not None)


def _nvidia(line: str, total: ByteSize | None) -> Gpu:
    """Read one line of nvidia-smi; a GB10 says `[N/A]` for memory, which is the host's."""
    name, memory, free, driver, arch = ([*map(str.strip, line.split(",")), "", "", "", ""])[:5]
    own = ByteSize(int(memory) * MIB) if memory.isdigit() else None
    return Gpu(
        name=name,
        backend="cuda",
        memory=own or total or ByteSize(0),
        free=ByteSize(int(free) * MIB) if free.isdigit() else None,
        arch=arch if re.fullmatch(r"\d+\.\d+", arch) else None,
        driver=driver or None,
        unified=own is None,
    )


def _drm(words: list[str], total: ByteSize | None, *, rocm: bool) -> Gpu | None:
    """Read `card vendor vram gtt used name`; other vendors' cards are no accelerators here.

    An integrated GPU (small carve-out, or Intel without memory of its own) may also use the
    part of host memory that the driver maps for it (GTT), at most the host's.
    """
    if len(words) < 5 or words[1] not in {AMD, INTEL}:  # noqa: PLR2004
        return None
    vram, gtt, used = (int(word) if word.isdigit() else 0 for word in words[2:5])
    unified = vram <= SMALL_CARVE_OUT
    shared = min(vram + gtt, total or vram + gtt) if gtt else (total or 0) // 2
    vendor = "AMD" if words[1] == AMD else "Intel"
    return Gpu(
        name=" ".join(words[5:]) or f"{vendor} GPU ({words[0]})",
        backend="rocm" if rocm and words[1] == AMD else "vulkan",
        memory=ByteSize(shared if unified else vram),
        free=ByteSize(vram - used) if vram and not unified else None,
        unified=unified,
    )


def _memlock(limits: str) -> int | None:
    found = re.search(r"(?m)^Max locked memory\s+(\S+)", limits)
    if found is None:
        return None
    return -1 if found.group(1) == "unlimited" else int(found.group(1))


def _disk_free(line: str) -> ByteSize | None:
    words = line.split()
    free = words[3] if len(words) > 3 else ""  # noqa: PLR2004 - df -P: size, used, available
    return ByteSize(int(free) * KIB) if free.isdigit() else None


def _version(text: str) -> str | None:
    found = re.search(r"\d+(?:\.\d+)+", text)
    return found.group(0) if found else None


def _pairs(text: str, separator: str) -> dict[str, str]:
    cut = (line.partition(separator) for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in cut}


def _flag(text: str) -> bool | None:
    return text.strip() != "0" if text.strip() else None


def _yes(text: str) -> bool | None:
    return text.strip() == "yes" if text.strip() else None


def _integer(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None
