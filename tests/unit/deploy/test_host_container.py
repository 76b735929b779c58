"""What a container on another host says of itself, and what somebody changed in it."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from fleet.compiler.launch_config import LaunchConfig, SecretFile
from fleet.deploy.host_container import changed_words, run_words, servers_of, unit_of
from fleet.facts.host_facts import HostFacts

pytestmark = pytest.mark.pure

LAUNCH = LaunchConfig(
    deployment="town", server="server", host="h1", engine="llama.cpp", build=11549,
    program="llama-server", argv=("-m", "/models/m.gguf", "-c", "1024", "--mlock"),
    settings=(("ctx_size", 1024),), image="localhost/x:1", bind="127.0.0.1", port=8081,
    secrets=(SecretFile(name="fleet-town-api-key", target="/run/secrets/fleet-api-key"),),
)  # fmt: skip


def inspected(launch: LaunchConfig, *, argv: tuple[str, ...] | None = None, **state: Any) -> str:
    words = run_words(launch, generation=3, restart="always")
    labels = dict(
        word.removeprefix("--label=").split("=", 1) for word in words if word.startswith("--label=")
    )
    pairs = itertools.pairwise(words)
    labels |= dict(value.split("=", 1) for word, value in pairs if word == "--label")
    found = {
        "Id": "abc", "Name": launch.container_name, "ImageName": launch.image,
        "State": {"Status": "running", "ExitCode": 0, **state},
        "Config": {"Labels": labels, "Cmd": list(launch.argv if argv is None else argv)},
        "HostConfig": {"Memory": 0, "CpusetCpus": ""},
    }  # fmt: skip
    return json.dumps([found])


def test_a_running_container_is_read_back_as_it_was_launched() -> None:
    (server,) = servers_of(inspected(LAUNCH), "h1")

    assert (server.state, server.generation, server.digest) == ("running", 3, LAUNCH.digest)
    assert server.url == "http://127.0.0.1:8081"
    assert dict(server.settings) == {"ctx_size": 1024}


def test_another_argument_than_launched_shows_as_that_setting() -> None:
    argv = ("-m", "/models/m.gguf", "-c", "512", "--mlock")

    (server,) = servers_of(inspected(LAUNCH, argv=argv), "h1")

    assert server.digest != LAUNCH.digest
    assert dict(server.settings)["ctx_size"] == 512


def test_an_ended_container_is_failed_only_with_an_exit_code() -> None:
    (failed,) = servers_of(inspected(LAUNCH, Status="exited", ExitCode=1), "h1")
    (stopped,) = servers_of(inspected(LAUNCH, Status="exited", ExitCode=0), "h1")

    assert (failed.state, failed.exit_code) == ("failed", 1)
    assert stopped.state == "stopped"


def test_the_words_name_the_secret_and_hold_no_key() -> None:
    words = run_words(LAUNCH, generation=1)

    assert any(word.startswith("fleet-town-api-key,type=mount") for word in words)
    assert words[words.index("localhost/x:1") + 1 :] == LAUNCH.argv


def test_switches_and_values_are_told_apart() -> None:
    changed = changed_words(("--a", "1", "--b"), ("--a", "-1", "--c"))

    assert dict(changed) == {"a": -1, "b": None, "c": "on"}


@pytest.mark.parametrize(
    ("quadlet", "rootless", "path"),
    [
        (True, False, "/etc/containers/systemd/fleet-town-server.container"),
        (True, True, "~/.config/containers/systemd/fleet-town-server.container"),
        (False, False, "/etc/systemd/system/fleet-town-server.service"),
    ],
)
def test_a_unit_goes_where_systemd_of_that_host_reads_it(
    *, quadlet: bool, rootless: bool, path: str
) -> None:
    facts = HostFacts(
        name="h1", cores=1, cpus=(0,), systemd=True, quadlet=quadlet, rootless=rootless
    )

    found = unit_of(LAUNCH, generation=1, facts=facts)

    assert found is not None
    assert found[0] == path
    assert "fleet.launch" in found[1]


def test_without_systemd_podman_restarts_it() -> None:
    facts = HostFacts(name="h1", cores=1, cpus=(0,), systemd=False, quadlet=True)

    assert unit_of(LAUNCH, generation=1, facts=facts) is None
    assert "--restart=always" in run_words(LAUNCH, generation=1, restart="always")


def test_a_launch_without_image_limits_needs_no_edit() -> None:
    plain = replace(LAUNCH, secrets=())

    (server,) = servers_of(inspected(plain), "h1")

    assert server.digest == plain.digest
