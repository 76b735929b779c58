"""Facts of a host from the probe's answer: cores, limits, nodes, GPUs."""

from __future__ import annotations

import pytest

from fleet.observe.parse_probe import cpu_list, parse_probe
from fleet.sizes import GIB, MIB

pytestmark = pytest.mark.pure

CPUINFO = "\n".join(
    f"processor\t: {cpu}\nmodel name\t: Some CPU\nflags\t\t: avx2 avx512f" for cpu in range(8)
)
# four cores of two threads: 0 and 4 share a core, and so on
TOPOLOGY = "\n".join(f"{cpu} {cpu % 4},{cpu % 4 + 4}" for cpu in range(8))


def answer(**sections: str) -> str:
    base = {
        "uname": "Linux 6.1.0 x86_64", "os": 'PRETTY_NAME="Some OS 12"', "cpuinfo": CPUINFO,
        "meminfo": f"MemTotal: {16 * GIB // 1024} kB\nMemAvailable: {12 * GIB // 1024} kB",
        "status": "Cpus_allowed_list:\t0-7", "topology": TOPOLOGY, "uid": "0",
    }  # fmt: skip
    return "".join(f"\n@@ {name}\n{text}\n" for name, text in {**base, **sections}.items())


def test_cores_are_physical_and_each_has_its_first_thread() -> None:
    host = parse_probe(answer(), name="h")

    assert (host.cores, host.cpus, host.threads_per_core) == (4, tuple(range(8)), 2)
    assert host.first_cpu_of_core == (0, 1, 2, 3)
    assert host.isa == {"avx2", "avx512f"}
    assert (host.architecture, host.kernel, host.os) == ("x86_64", "6.1.0", "Some OS 12")


def test_affinity_narrows_the_cores() -> None:
    host = parse_probe(answer(status="Cpus_allowed_list:\t1,5-6"), name="h")

    assert (host.cores, host.cpus, host.first_cpu_of_core) == (2, (1, 5, 6), (1, 6))


def test_an_affinity_mask_may_name_cpus_that_are_not_there() -> None:
    assert parse_probe(answer(status="Cpus_allowed_list:\t0-127"), name="h").cpus == tuple(range(8))


def test_cgroup_2_gives_the_smallest_limit_on_the_way_up() -> None:
    text = f"cpu.max 150000 100000\ncpu.max max 100000\nmemory.max {4 * GIB}\nmemory.max {2 * GIB}"

    host = parse_probe(answer(cgroup2=text), name="h")

    assert (host.cpu_quota, host.memory_limit) == (1.5, 2 * GIB)


def test_cgroup_1_gives_limits_too_and_its_word_for_none_is_none() -> None:
    limited = parse_probe(answer(cgroup1=f"memory {3 * GIB}\ncpu 200000 100000"), name="h")
    free = parse_probe(answer(cgroup1="memory 9223372036854771712\ncpu -1 100000"), name="h")

    assert (limited.cpu_quota, limited.memory_limit) == (2.0, 3 * GIB)
    assert (free.cpu_quota, free.memory_limit) == (None, None)


def test_a_limit_above_the_machine_is_none() -> None:
    assert parse_probe(answer(cgroup2=f"memory.max {64 * GIB}"), name="h").memory_limit is None


def test_numa_nodes_may_lack_cpus() -> None:
    host = parse_probe(answer(numa=f"0 0-3 {8 * GIB // 1024}\n1 4-7 1024\n2 2048"), name="h")

    assert [(node.index, node.cpus) for node in host.numa_nodes] == [
        (0, (0, 1, 2, 3)), (1, (4, 5, 6, 7)), (2, ()),
    ]  # fmt: skip
    assert host.numa_nodes[0].memory == 8 * GIB


def test_an_nvidia_card_has_memory_of_its_own() -> None:
    text = "NVIDIA GeForce RTX 3090, 24576, 24000, 550.90, 8.6"

    (gpu,) = parse_probe(answer(nvidia=text), name="h").gpus

    assert (gpu.name, gpu.backend, gpu.memory) == ("NVIDIA GeForce RTX 3090", "cuda", 24576 * MIB)
    assert (gpu.free, gpu.driver, gpu.arch, gpu.unified) == (24000 * MIB, "550.90", "8.6", False)


def test_a_gb10_shares_the_memory_of_the_host() -> None:
    (gpu,) = parse_probe(answer(nvidia="NVIDIA GB10, [N/A], [N/A], 580.95, 12.1"), name="h").gpus

    assert (gpu.unified, gpu.memory, gpu.arch) == (True, 16 * GIB, "12.1")


def test_an_integrated_amd_gpu_is_unified_and_a_card_is_not() -> None:
    drm = f"/sys/class/drm/card0 0x1002 {2 * GIB} {8 * GIB} 100"
    card = f"/sys/class/drm/card0 0x1002 {16 * GIB} {8 * GIB} {GIB}"

    (integrated,) = parse_probe(answer(drm=drm), name="h").gpus
    (own,) = parse_probe(answer(drm=card), name="h").gpus

    assert (integrated.unified, integrated.memory, integrated.backend) == (True, 10 * GIB, "vulkan")
    assert (own.unified, own.memory, own.free) == (False, 16 * GIB, 15 * GIB)


def test_other_display_adapters_are_no_accelerators() -> None:
    assert parse_probe(answer(drm="/sys/class/drm/card0 0x1234 - - -"), name="h").gpus == ()


def test_what_is_not_said_is_not_known() -> None:
    host = parse_probe("@@ cpuinfo\n" + CPUINFO + "\n", name="h")

    assert host.cores == 8  # without a topology each CPU counts
    assert host.memory_total is None
    assert host.podman is None
    assert host.numa_balancing is None
    assert host.rootless is None


def test_the_fingerprint_changes_with_the_hardware_only() -> None:
    base = parse_probe(answer(), name="h")

    assert parse_probe(answer(uid="1000", podman="podman version 5.0.0"), name="x").fingerprint == (
        base.fingerprint
    )
    assert parse_probe(answer(status="Cpus_allowed_list:\t0-3"), name="h").fingerprint != (
        base.fingerprint
    )


def test_cpu_lists_are_the_kernel_s() -> None:
    assert cpu_list("0-2,8,10-11") == (0, 1, 2, 8, 10, 11)
    assert cpu_list("") == ()
