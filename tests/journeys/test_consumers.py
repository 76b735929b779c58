"""Rendered files are accepted by the programs they are for."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

from fleet.render.quadlet import render_quadlet
from fleet.render.router_preset import render_preset
from support.deployments import HOSTS, launch, launches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fleet.compiler.launch_config import LaunchConfig
    from support.engines import WheelEngine

READY_S = 60.0
EVERYTHING = {
    "threads": 4, "cpuset": "0-3", "cpuset_mems": "0", "numa": "distribute", "load_mode": "mlock",
    "shm_size": 1024, "chat_template_kwargs": '{"a": "100% $HOME"}',
}  # fmt: skip


def dryrun(root: Path, units: Path, configs: Sequence[LaunchConfig]) -> str:
    """Return what the real generator makes of the units; fails on its errors."""
    for artefact in render_quadlet(configs):
        (units / artefact.path.rpartition("/")[2]).write_text(artefact.text)
    words = ["chroot", str(root), "env", "QUADLET_UNIT_DIRS=/units"]
    words += ["/usr/libexec/podman/quadlet", "-dryrun", "-user"]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert "unsupported key" not in made.stderr, made.stderr
    return made.stdout


@pytest.fixture
def units(quadlet_root: Path) -> Path:
    """Give an empty folder for units inside the generator's root."""
    folder = quadlet_root / "units"
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    return folder


@pytest.mark.quadlet
def test_the_generator_takes_every_key(quadlet_root: Path, units: Path) -> None:
    config = launch(EVERYTHING, build="b11549", api_key=True, bind="192.168.1.9")

    service = dryrun(quadlet_root, units, [config])

    for word in ("--read-only", "--cap-drop all", "--cap-add cap_sys_nice", "--cpuset-cpus 0-3",
                 "no-new-privileges", "--sdnotify=healthy", "--secret", "memlock=-1:-1",
                 "--entrypoint llama-server", "100%% $$HOME"):  # fmt: skip
        assert word in service


@pytest.mark.quadlet
def test_and_those_of_a_pair(quadlet_root: Path, units: Path) -> None:
    pair = launches({}, engine="vllm", hosts=HOSTS, topology="tensor-parallel")

    service = dryrun(quadlet_root, units, pair)

    assert service.count("ExecStart=") == 2
    assert "--headless" in service
    assert "--network=host" in service or "--network host" in service


@pytest.mark.llama
def test_a_router_loads_the_preset(
    wheel_engine: WheelEngine, tiny_models: Mapping[str, Path], tmp_path: Path
) -> None:
    config = launch(
        {"ctx_size": 512, "threads": 1, "warmup": False, "cache_ram": 0}, engine="embedded",
        build=f"b{wheel_engine.build}", model={"path": str(tiny_models["llama"])},
    )  # fmt: skip
    (preset,) = render_preset([config])
    file = tmp_path / "preset.ini"
    file.write_text(preset.text)
    port = _free_port()
    words = [str(wheel_engine.server), "--models-preset", str(file), "--port", str(port)]

    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            models = _get_when_ready(process, f"http://127.0.0.1:{port}/models")
        finally:
            process.terminate()
            process.wait(timeout=20)

    assert '"test"' in models, (tmp_path / "log").read_text()


def _get_when_ready(process: subprocess.Popen[bytes], url: str) -> str:
    until = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=10) as reply:  # noqa: S310 - our own server
                return str(reply.read().decode())
        except OSError:
            time.sleep(0.05)
    return f"ended with {process.poll()}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
