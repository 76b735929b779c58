"""The podman runtime keeps the contract; what is asked of the container is really so inside."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from contracts.server_host_contract import HTTP, ServerHostContract, client_of, wait_until_ready
from fleet.compiler.launch_config import LaunchConfig, Mount, SecretFile
from fleet.deploy.api_keys import ensure_key
from fleet.deploy.podman_host import podman_host
from fleet.deploy.rim import Rim
from fleet.effects.folders import Folders
from fleet.effects.machine import free_port
from fleet.errors import OutsideError
from fleet.observe.server_client import ServerClient
from fleet.sizes import ByteSize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from fleet.deploy.podman_host import PodmanHost

ANYWHERE = "0.0.0.0"  # noqa: S104 - of the container's own network

pytestmark = pytest.mark.podman
NAME = f"contract-{os.getpid()}"  # two runs at once share one podman


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(config=tmp_path / "config", state=tmp_path / "state", cache=tmp_path / "cache")


@pytest.fixture(scope="module")
def _socket(engine_image: str) -> PodmanHost:  # noqa: ARG001 - sets the environment
    return podman_host(Rim())


@pytest.fixture
def host(_socket: PodmanHost, folders: Folders) -> Iterator[PodmanHost]:
    made = replace(_socket, folders=folders)
    yield made
    for server in made.running():
        if server.deployment.startswith(NAME):
            made.stop(server)


@pytest.fixture
def launch(engine_image: str, tiny_models: Mapping[str, Path]) -> LaunchConfig:
    model, port = tiny_models["llama"], free_port()
    argv = (
        "-m", f"/models/{model.name}", "--host", ANYWHERE, "--port", str(port), "-c", "512",
        "-np", "1", "-t", "1", "-lv", "4", "--no-warmup",
    )  # fmt: skip
    return LaunchConfig(
        deployment=NAME, server="main", host="local", engine="llama.cpp", build=None,
        program="llama-server", argv=argv, image=engine_image, port=port, network="bridge",
        mounts=(Mount(source=str(model.parent), target="/models"),), model_path=str(model),
        settings=(("ctx_size", 512), ("parallel", 1)),
    )  # fmt: skip


class TestPodmanHost(ServerHostContract):
    stop_bar_s = 6.0

    @pytest.fixture
    def host(self, host: PodmanHost) -> PodmanHost:
        return host

    @pytest.fixture
    def launch(self, launch: LaunchConfig) -> LaunchConfig:
        return launch


def test_the_container_is_hardened(host: PodmanHost, launch: LaunchConfig) -> None:
    server = host.start(
        replace(
            launch, memory_limit=ByteSize.from_mib(700), cpuset="0", shm_size=ByteSize.from_mib(96)
        ),
        generation=1,
    )

    status = _inside(server.container, "cat /proc/self/status")
    assert "CapEff:\t0000000000000000" in status
    assert "CapBnd:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    assert "Cpus_allowed_list:\t0\n" in status
    assert "Uid:\t1000" in status
    assert "97" in _inside(server.container, "df -m /dev/shm") or "96" in _inside(
        server.container, "df -m /dev/shm"
    )
    assert "Read-only" in _inside(server.container, "touch /x; touch /models/x", check=False)
    assert _inside(server.container, "touch /tmp/x && echo written") == "written\n"
    found = host.socket.get(f"/containers/{server.container}/json")
    assert found["HostConfig"]["Memory"] == 700 * 2**20
    assert found["HostConfig"]["PidsLimit"] == 4096
    assert found["HostConfig"]["LogConfig"]["Size"]


def test_the_key_is_a_secret_file_and_nowhere_else(
    host: PodmanHost, launch: LaunchConfig, folders: Folders
) -> None:
    secret = SecretFile(name=f"fleet-{NAME}-api-key", target="/run/secrets/fleet-api-key")
    server = host.start(
        replace(launch, argv=(*launch.argv, "--api-key-file", secret.target), secrets=(secret,)),
        generation=1,
    )
    wait_until_ready(client_of(server))
    key = ensure_key(folders, NAME)

    with pytest.raises(OutsideError, match="401"):
        client_of(server).props()
    assert ServerClient(url=server.url or "", http=HTTP, api_key=key).context() == 512
    inspected = subprocess.run(
        ["podman", "inspect", server.container or ""], capture_output=True, text=True, check=True
    ).stdout
    assert key not in inspected
    assert not any(key in line for line in host.logs(server))

    host.stop(server)
    assert host.socket.get(f"/secrets/{secret.name}/json") is None


def test_a_container_of_others_is_never_touched(host: PodmanHost, launch: LaunchConfig) -> None:
    name = launch.container_name
    subprocess.run(
        ["podman", "create", "--name", name, str(launch.image), "sleep", "1"],
        check=True, capture_output=True,
    )  # fmt: skip
    try:
        with pytest.raises(OutsideError, match="fleet did not make"):
            host.start(launch, generation=1)

        assert host.running() == ()
        assert host.socket.get(f"/containers/{name}/json") is not None
    finally:
        subprocess.run(["podman", "rm", "-f", name], check=True, capture_output=True)


def test_a_missing_image_is_named_with_its_cure(host: PodmanHost, launch: LaunchConfig) -> None:
    with pytest.raises(OutsideError, match="is missing") as caught:
        host.start(replace(launch, image="localhost/none:0"), generation=1)

    assert "fleet build" in (caught.value.fix or "")
    assert host.running() == ()


def test_a_container_that_cannot_start_leaves_its_name_free(
    host: PodmanHost, launch: LaunchConfig
) -> None:
    with pytest.raises(OutsideError, match="nowhere"):
        host.start(replace(launch, program="nowhere"), generation=1)

    assert host.running() == ()
    assert host.start(launch, generation=1).state == "running"


@pytest.mark.machine_may_lack
def test_limits_that_someone_changed_show_in_the_settings(
    host: PodmanHost, launch: LaunchConfig
) -> None:
    server = host.start(replace(launch, memory_limit=ByteSize.from_mib(700)), generation=1)
    changed = subprocess.run(
        ["podman", "update", "--memory", "800m", server.container or ""],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = host.socket.get(f"/containers/{server.container}/json")
    if changed.returncode or found["HostConfig"]["Memory"] != 800 * 2**20:
        pytest.skip("needs a podman that remembers `podman update`: 4.4 or newer")

    (seen,) = host.running()

    assert dict(seen.settings)["memory_limit"] == 800 * 2**20


def test_memory_of_the_engine_is_told(host: PodmanHost, launch: LaunchConfig) -> None:
    server = host.start(launch, generation=1)
    wait_until_ready(client_of(server))

    assert host.memory_bytes(server) > 10 * 2**20

    host.stop(server)
    time.sleep(0.1)
    assert host.memory_bytes(server) == 0


def _inside(container: str | None, words: str, *, check: bool = True) -> str:
    done = subprocess.run(
        ["podman", "exec", container or "", "sh", "-c", words],
        capture_output=True, text=True, check=check,
    )  # fmt: skip
    return done.stdout + done.stderr
