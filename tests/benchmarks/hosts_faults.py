"""The slow faults over hosts: cables cut, power lost, fleet killed at ten moments.

    tests/benchmarks/run hosts_faults [PYTEST ARGUMENTS]

Each is survived: the error names the host, nothing is lost, the next `up` goes on from there.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.net_hosts import start_network
from support.town import NAME, Town

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Mapping

    from support.net_hosts import NetHost, Network

KILLS = 10
PADDING = 256 * 2**20
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def network(podman: Mapping[str, str], engine_image: str) -> Iterator[Network]:  # noqa: ARG001 - built before
    made = start_network(3, podman, bare=1)
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture
def town(
    network: Network, tiny_models: Mapping[str, Path], engine_image: str, tmp_path: Path
) -> Iterator[Town]:
    made = Town(folder=tmp_path, network=network, model=tiny_models["llama"], image=engine_image)
    made.write()
    yield made
    for host in network.hosts:
        host.connect()
        if not host.processes():
            host.power_on()
        host.run("podman rm --all --force --time 0; rm -rf /root/.cache/fleet")


def until(true: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait until something is so, while fleet works."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def generation(town: Town, host: NetHost) -> int:
    labels = [each["Labels"] for each in town.containers(host) if each["State"] == "running"]
    return max((int(each["fleet.generation"]) for each in labels), default=0)


def error(said: str) -> dict[str, str]:
    return dict(json.loads(said)["error"])


def test_a_cable_cut_in_mid_copy_is_named_and_the_copy_goes_on(town: Town) -> None:
    host = town.hosts[1]
    large = town.folder / "large.gguf"
    large.write_bytes(town.model.read_bytes())
    with large.open("ab") as file:
        file.truncate(file.tell() + PADDING)
    town.model = large
    town.write(hosts=[town.target(host)])
    partial = host.folder / "root/.cache/fleet/models/tiny/large.gguf.partial"
    with town.popen("up", NAME, "--json") as process:
        until(lambda: partial.exists() and partial.stat().st_size > PADDING // 16, process)
        host.cut()
        said, _ = process.communicate()
    there = partial.stat().st_size
    host.connect()

    assert process.returncode == 5
    assert error(said)["where"] == "h2"
    assert "connection" in error(said)["message"]
    code, told = town.fleet("up", NAME)
    assert code == 0, told
    assert there > PADDING // 16
    assert not partial.exists()


def test_a_cable_cut_in_mid_start_is_named_and_made_good(town: Town) -> None:
    host = town.hosts[1]
    town.write(hosts=[town.target(each) for each in town.hosts[1:]], batch="100%")
    town.fleet("up", NAME)
    town.write(
        hosts=[town.target(each) for each in town.hosts[1:]], batch="100%",
        settings={"ctx_size": 2048},
    )  # fmt: skip
    with town.popen("up", NAME, "--yes", "--json") as process:
        until(lambda: len(town.containers(host)) == 2, process)  # the new beside the old
        host.cut()
        said, _ = process.communicate()
    host.connect()

    assert process.returncode == 5
    assert error(said)["where"].endswith("h2")
    code, told = town.fleet("up", NAME, "--yes")
    assert code == 0, told
    assert [len(town.containers(each)) for each in town.hosts[1:]] == [1, 1]
    assert {each["generation"] for each in told["servers"]} == {2}


def test_a_host_switched_off_in_a_rollout_of_three_stops_it(town: Town) -> None:
    first, dark, last = town.hosts
    town.write(batch="100%")
    code, told = town.fleet("up", NAME)
    assert code == 0, told
    town.write(settings={"ctx_size": 2048}, batch="1")
    with town.popen("up", NAME, "--yes", "--json") as process:
        until(lambda: len(town.containers(dark)) == 2, process)
        dark.power_off()
        said, _ = process.communicate()

    assert process.returncode == 5
    assert error(said)["where"].endswith("h2")
    assert "new on h1" in error(said)["message"]
    assert "untouched on" in error(said)["message"]
    assert generation(town, first) == 2
    assert generation(town, last) == 1
    dark.power_on()
    code, told = town.fleet("up", NAME, "--yes")
    assert code == 0, told
    assert {e["host"]: e["action"] for e in told["changes"] if e["server"] == "server"} == {
        "h1": "keep", "h2": "replace", "h3": "replace",
    }  # fmt: skip


def test_an_interrupted_image_load_leaves_nothing_and_is_done_again(town: Town) -> None:
    host = town.hosts[0]
    host.run("podman rmi --all --force")
    town.write(hosts=[town.target(host)])
    with town.popen("up", NAME, "--json") as process:
        until(lambda: "podman load" in host.run("ps -eo args").stdout, process)
        time.sleep(0.5)
        host.cut()
        said, _ = process.communicate()
    host.connect()

    assert process.returncode == 5
    assert error(said)["where"] == "h1"
    assert town.image not in host.run("podman images --format '{{.Repository}}:{{.Tag}}'").stdout
    code, told = town.fleet("up", NAME)
    assert code == 0, told


def test_two_controllers_that_know_nothing_of_each_other(town: Town, tmp_path: Path) -> None:
    hosts = town.hosts[1:]
    other = Town(
        folder=tmp_path / "other", network=town.network, model=town.model, image=town.image
    )
    for each, context in ((town, 1024), (other, 2048)):
        named = [each.target(host) for host in hosts]
        each.write(hosts=named, batch="100%", settings={"ctx_size": context})

    with town.popen("up", NAME, "--yes", "--json") as first:
        with other.popen("up", NAME, "--yes", "--json") as second:
            second.communicate()
        first.communicate()

    assert {first.returncode, second.returncode} <= {0, 5}
    assert all(len(town.containers(host)) <= 1 for host in hosts)
    code, told = town.fleet("up", NAME, "--yes")
    assert code == 0, told
    assert all(len(town.containers(host)) == 1 for host in hosts)


@pytest.mark.timeout(3600)
def test_ten_kills_over_two_hosts(town: Town) -> None:
    chance = random.Random(1)  # noqa: S311 - moments, no secrets
    named = {"hosts": [town.target(host) for host in town.hosts[1:]], "batch": "100%"}
    town.write(**named)
    town.fleet("up", NAME)
    town.write(**named, settings={"ctx_size": 1536})
    began = time.monotonic()
    town.fleet("up", NAME, "--yes")
    whole = time.monotonic() - began
    for number in range(KILLS):
        moment = chance.uniform(0.1, 1.0) * whole
        town.write(**named, settings={"ctx_size": 2048 + 256 * number})
        with town.popen("up", NAME, "--yes") as process:
            time.sleep(moment)
            process.kill()
            process.communicate()

        code, told = town.fleet("up", NAME, "--yes")

        assert code == 0, (number, moment, told)
        assert {each["state"] for each in told["servers"]} == {"running"}
        assert all(len(town.containers(host)) == 1 for host in town.hosts[1:]), (number, moment)
        code, told = town.fleet("status", NAME)
        assert code == 0, (number, moment, told)
        print(f"killed after {moment:.1f} s of {whole:.1f} s: made good")


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__, "-v", "-rA", *sys.argv[1:]]))
