"""The embedded runtime keeps the contract, and knows its process from others."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from contracts.server_host_contract import ServerHostContract, client_of, wait_until_ready
from fleet.compiler.launch_config import LaunchConfig
from fleet.deploy.embedded_host import EmbeddedHost
from fleet.effects.folders import Folders
from fleet.effects.machine import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.deploy.server_host import ServerHost

pytestmark = pytest.mark.llama


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(config=tmp_path / "config", state=tmp_path / "state", cache=tmp_path / "cache")


@pytest.fixture
def host(folders: Folders) -> ServerHost:
    return EmbeddedHost(folders=folders)


@pytest.fixture
def launch(tiny_models: Mapping[str, Path]) -> LaunchConfig:
    attributes = (
        ("model.path", str(tiny_models["llama"])), ("n_ctx", 512), ("n_parallel", 1),
        ("cpuparams.n_threads", 1), ("verbosity", 4), ("warmup", False),
    )  # fmt: skip
    return LaunchConfig(
        deployment="contract", server="main", host="local", engine="embedded", build=11549,
        program="llama-server", argv=(), attributes=attributes, port=free_port(),
        settings=(("ctx_size", 512), ("parallel", 1)),
    )  # fmt: skip


class TestEmbeddedHost(ServerHostContract):
    stop_bar_s = 6.0

    @pytest.fixture
    def host(self, folders: Folders) -> ServerHost:
        return EmbeddedHost(folders=folders)

    @pytest.fixture
    def launch(self, launch: LaunchConfig) -> LaunchConfig:
        return launch


def test_a_killed_server_is_failed(host: ServerHost, launch: LaunchConfig) -> None:
    server = host.start(launch, generation=1)
    assert server.pid

    os.kill(server.pid, signal.SIGKILL)
    until = time.monotonic() + 20
    while host.running()[0].exit_code is None and time.monotonic() < until:
        time.sleep(0.05)  # how it ended is written a moment after it has

    assert [each.state for each in host.running()] == ["failed"]
    assert host.running()[0].exit_code == 137


def test_a_pid_that_now_belongs_to_another_process_is_never_signalled(
    host: ServerHost, launch: LaunchConfig, folders: Folders
) -> None:
    server = host.start(launch, generation=1)
    host.stop(server)
    stale = folders.state / "servers" / launch.container_name
    host.start(launch, generation=1)
    signed = stale / "process.json"
    record = json.loads(signed.read_text())
    real = record["pid"]
    signed.write_text(json.dumps({**record, "pid": os.getpid()}))

    (seen,) = host.running()
    assert seen.state == "failed"
    host.stop(seen)  # would end this very test run

    os.kill(real, signal.SIGKILL)


@pytest.mark.parametrize("damage", ["cut", "moved"])
@pytest.mark.parametrize("file", ["order.json", "process.json"])
def test_a_server_whose_state_file_is_damaged_is_known_and_ended(
    host: ServerHost, launch: LaunchConfig, folders: Folders, file: str, damage: str
) -> None:
    server = host.start(launch, generation=1)
    path = folders.state / "servers" / launch.container_name / file
    whole = path.read_text()
    path.unlink()
    if damage == "cut":
        path.write_text(whole[: len(whole) // 2])

    (seen,) = host.running()

    assert (seen.deployment, seen.server, seen.state) == ("contract", "main", "running")
    assert seen.pid == server.pid
    assert (str(path) in (seen.damage or "")) == (file == "order.json")
    host.stop(seen)
    assert not psutil.pid_exists(server.pid or 0)
    assert host.running() == ()


def test_the_log_is_bounded(
    host: ServerHost, launch: LaunchConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet.deploy.embedded_host.LOG_BYTES", 40_000)
    server = host.start(launch, generation=1)
    client = client_of(server)
    wait_until_ready(client)
    try:
        for _ in range(120):
            client.tokenize("a")
        assert server.log_path
        until = time.monotonic() + 30
        while not _bounded(server.log_path) and time.monotonic() < until:
            time.sleep(0.2)
            client.tokenize("a")

        assert _bounded(server.log_path)
    finally:
        host.stop(server)


def test_an_attribute_that_the_engine_lacks_is_a_refused_argument(
    host: ServerHost, launch: LaunchConfig
) -> None:
    wrong = replace(launch, attributes=(*launch.attributes, ("n_gone", 1)))
    server = host.start(wrong, generation=1)
    until = time.monotonic() + 10
    while host.running()[0].state != "failed" and time.monotonic() < until:
        time.sleep(0.05)

    assert any("invalid argument" in line and "n_gone" in line for line in host.logs(server))
    host.stop(server)


def _bounded(path: str) -> bool:
    return sum(file.stat().st_size for file in _logs(path)) < 80_000


def _logs(path: str) -> list[Path]:
    return sorted(Path(path).parent.glob("server.log*"))
