"""One model over two hosts by RPC, for real: an old build, a tiny model, two namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.net_hosts import start_network
from support.town import NAME, Town

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from support.net_hosts import Network

CANNOT_START = ["--slot-save-path", "/nonexistent"]

pytestmark = [pytest.mark.ansible, pytest.mark.podman, pytest.mark.llama, pytest.mark.slow]


@pytest.fixture(scope="module")
def network(podman: Mapping[str, str], rpc_image: str) -> Iterator[Network]:  # noqa: ARG001 - built before
    made = start_network(2, podman)
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture
def pair(network: Network, rpc_image: str, tiny_models: Mapping[str, Path], tmp_path: Path) -> Town:
    made = Town(
        folder=tmp_path, network=network, model=tiny_models["llama-4-layers"], image=rpc_image,
        build="b10434",
    )  # fmt: skip
    made.write(topology="rpc", settings={"gpu_layers": "all"})
    return made


def test_layers_run_on_both_and_a_dead_worker_is_noticed(pair: Town) -> None:
    head, worker = pair.hosts

    code, told = pair.fleet("up", NAME)

    assert code == 0, told
    assert [each["host"] for each in told["changes"]] == ["h2", "h1"]  # worker first
    assert pair.ask(head)["tokens_predicted"] == 4
    log = head.run(f"podman logs fleet-{NAME}-head 2>&1").stdout
    assert f"RPC0[{worker.fabric}:50052] model buffer size" in log
    listening = worker.run("ss -Hltn").stdout
    assert f"{worker.fabric}:50052" in listening
    assert "0.0.0.0:50052" not in listening
    code, told = pair.fleet("check", NAME)
    assert code == 0, told
    assert "h1/head: no-systemd" in [each["name"] for each in told["checks"]]

    names = [each["Names"][0] for each in pair.containers(worker)]
    worker.run(f"podman kill {names[0]}; podman wait {names[0]}")

    code, told = pair.fleet("check", NAME)
    failed = {each["name"] for each in told["checks"] if not each["ok"]}
    assert code == 1
    assert any(name.startswith("h2/") for name in failed), told

    code, told = pair.fleet("up", NAME, "--yes")
    assert code == 0, told
    assert {each["action"] for each in told["changes"]} == {"replace"}
    assert pair.ask(head)["tokens_predicted"] == 4

    # a version that cannot start: both are put back, the worker before the head
    pair.write(topology="rpc", settings={"gpu_layers": "all"}, extra_args=CANNOT_START)
    code, told = pair.fleet("up", NAME, "--yes")
    assert code == 5
    assert "previous again on h2, h1" in told["error"]["message"]
    assert pair.ask(head)["tokens_predicted"] == 4

    code, told = pair.fleet("down", NAME, "--yes")
    assert code == 0, told
    assert [pair.containers(host) for host in pair.hosts] == [[], []]


def test_a_head_without_its_worker_is_no_success(pair: Town) -> None:
    """An old build would serve from the CPU and call itself healthy."""
    pair.hosts[1].power_off()

    code, told = pair.fleet("up", NAME)

    assert code == 5
    assert told["error"]["where"] == "h2"
    assert pair.containers(pair.hosts[0]) == []
