"""What a probe measures is what the machine can do, within the noise."""

from __future__ import annotations

from fleet.deploy.probe_hosts import measure_bandwidth
from fleet.deploy.rim import Rim
from fleet.effects import memory_bandwidth
from fleet.facts.host_facts import HostFacts


def test_copying_is_measured_and_not_the_making_of_pages() -> None:
    one = HostFacts(name="local", cores=1, cpus=(0,))

    found = measure_bandwidth({"local": one}, {"local": None}, rim=Rim())["local"]

    assert isinstance(found, HostFacts)
    # new pages for each copy leave a tenth and less; other work on the machine slows both
    assert (found.memory_bandwidth or 0) > memory_bandwidth.measure_bandwidth(1) / 4
