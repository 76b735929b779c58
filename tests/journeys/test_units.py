"""The units that keep servers up over reboots are accepted by those who read them."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleet.cli.compile import BuildChoice, compile_for
from fleet.cli.load import load_deployment
from fleet.deploy.host_container import restart_way, unit_of
from fleet.deploy.launch_record import launch_from_json
from fleet.facts.host_facts import HostFacts
from fleet.facts.known_builds import build_facts
from support.deployments import HOSTS, launch, launches

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.compiler.launch_config import LaunchConfig

SYSTEMD = HostFacts(name="local", cores=1, cpus=(0,), systemd=True, quadlet=True, rootless=False)
AWKWARD = {"chat_template_kwargs": '{"a": "100% $HOME \\"x\\""}', "ctx_size": 4096}
SERVER = launch(AWKWARD, build="b11549", api_key=True, bind="192.168.1.9")
PAIR = launches({}, engine="vllm", hosts=HOSTS, topology="tensor-parallel")
RPC = launches({}, hosts=HOSTS, topology="rpc", build="b11549")
EACH = pytest.mark.parametrize("config", [SERVER, *PAIR, *RPC], ids=lambda each: each.server)


def unit(config: LaunchConfig, facts: HostFacts) -> tuple[str, str]:
    found = unit_of(config, generation=7, facts=facts)
    assert found is not None
    return found[0].rpartition("/")[2], found[1]


def generated(root: Path, name: str, text: str) -> str:
    """Return the service that the real generator makes of a `.container`."""
    folder = root / "fleet-units"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / name).write_text(text)
    words = ["chroot", str(root), "env", "QUADLET_UNIT_DIRS=/fleet-units"]
    words += ["/usr/libexec/podman/quadlet", "-dryrun"]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    shutil.rmtree(folder)
    assert made.returncode == 0, made.stderr
    assert "unsupported" not in made.stderr, made.stderr
    return made.stdout.partition("---\n")[2]


def labels_of(service: str) -> dict[str, str]:
    """Return the labels in ExecStart as systemd hands them to podman."""
    line = next(line for line in service.splitlines() if line.startswith("ExecStart="))
    words = shlex.split(line.removeprefix("ExecStart=").replace("%%", "%").replace("$$", "$"))
    pairs = [
        word.removeprefix("--label=") if word.startswith("--label=") else words[at + 1]
        for at, word in enumerate(words)
        if word == "--label" or word.startswith("--label=")
    ]
    return dict(pair.split("=", 1) for pair in pairs)


def accepted(folder: Path, name: str, service: str) -> None:
    """Let systemd read the service; podman stands in for itself where it is not installed."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: apt-get install systemd")
    file = folder / f"{name.partition('.')[0]}.service"
    file.write_text(service.replace("/usr/bin/podman", "/bin/true"))
    words = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(file)]
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    complaints = [line for line in told.stderr.splitlines() if file.name in line]
    assert (told.returncode, complaints) == (0, []), told.stderr


@pytest.mark.quadlet
@EACH
def test_a_quadlet_unit_carries_the_whole_launch_through_the_generator(
    config: LaunchConfig, quadlet_root: Path, tmp_path: Path
) -> None:
    name, text = unit(config, SYSTEMD)

    service = generated(quadlet_root, name, text)

    labels = labels_of(service)
    assert labels["fleet.generation"] == "7"
    assert labels["fleet.digest"] == config.digest
    read = launch_from_json(json.loads(labels["fleet.launch"]), where="unit")
    assert read == replace(config, warnings=())
    assert "[Install]" in service
    accepted(tmp_path, name, service)


@EACH
def test_a_plain_unit_is_one_that_systemd_takes(config: LaunchConfig, tmp_path: Path) -> None:
    name, text = unit(config, replace(SYSTEMD, quadlet=False))

    assert labels_of(text)["fleet.digest"] == config.digest
    assert "--detach" not in text
    assert "Restart=on-failure" in text
    accepted(tmp_path, name, text)


def test_a_unit_that_systemd_refuses_would_be_noticed(tmp_path: Path) -> None:
    _, text = unit(SERVER, replace(SYSTEMD, quadlet=False))

    with pytest.raises(AssertionError):
        accepted(tmp_path, "wrong.service", text.replace("Restart=on-failure", "Restart=perhaps"))


@pytest.mark.parametrize(
    ("facts", "way"),
    [
        (SYSTEMD, "quadlet"),
        (replace(SYSTEMD, quadlet=False), "systemd"),
        (replace(SYSTEMD, systemd=False), "policy"),
    ],
)
def test_a_server_comes_back_by_the_best_way_that_the_host_has(facts: HostFacts, way: str) -> None:
    assert restart_way(facts) == way


def test_every_option_of_the_shipped_pair_is_one_of_its_build() -> None:
    known = build_facts("vllm", "0.33.0").flags
    pair = compile_for(load_deployment("spark-pair-v4-flash"), BuildChoice(build=None))

    assert [config.build for config in pair] == ["0.33.0"] * 2
    for config in pair:
        options = [word for word in config.argv if word.startswith("--")]
        assert len(options) > 5
        assert not set(options) - set(known)
