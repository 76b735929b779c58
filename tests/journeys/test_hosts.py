"""Hosts over SSH, from the first look to the last `down`, and what may go wrong between.

Real sshd, podman and llama-server in three network namespaces; the tests of this file share
them, and each leaves the deployment down.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from support.net_hosts import start_network
from support.town import NAME, Town

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from support.net_hosts import Network

pytestmark = [pytest.mark.ansible, pytest.mark.podman, pytest.mark.slow]


@pytest.fixture(scope="module")
def network(podman: Mapping[str, str], engine_image: str) -> Iterator[Network]:  # noqa: ARG001 - built before
    made = start_network(3, podman)
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
        if not host.processes():
            host.power_on()
        host.run("podman rm --all --force --time 0; umount /small /usr/bin/podman 2>/dev/null")


def test_journey_on_three_hosts(town: Town) -> None:
    names = [host.name for host in town.hosts]

    code, told = town.fleet("hosts", "probe", *names)
    assert code == 0
    assert [each["name"] for each in told["hosts"]] == names
    code, told = town.fleet("doctor", *names, "--fix", "--yes")
    assert {check["host"] for check in told["checks"]} == set(names)

    code, told = town.fleet("plan", NAME)
    assert code == 1
    assert [each["action"] for each in told["changes"]] == ["start"] * 3

    code, told = town.fleet("up", NAME)
    assert code == 0, told
    assert [each["state"] for each in told["servers"]] == ["running"] * 3
    assert all(town.ask(host)["tokens_predicted"] == 4 for host in town.hosts)
    code, told = town.fleet("status", NAME)
    assert code == 0, told
    assert {each["health"] for each in told["servers"]} == {"ready"}
    assert all(not each["drift"] for each in told["servers"])

    code, told = town.fleet("up", NAME)
    assert (code, {each["action"] for each in told["changes"]}) == (0, {"keep"})

    # a setting changes: one host after another
    town.write(settings={"ctx_size": 2048})
    code, told = town.fleet("up", NAME, "--yes")
    assert code == 0, told
    assert {each["why"] for each in told["changes"]} == {"ctx_size: 1024 -> 2048"}
    assert {each["generation"] for each in told["servers"]} == {2}

    # a version that cannot start: the first host is put back, the others are not touched
    town.image = "localhost/fleet-test-broken:1"
    for host in town.hosts:
        host.run(f"printf 'FROM scratch\\n' | podman build -q -t {town.image} - ")
    town.write(settings={"ctx_size": 4096})
    code, told = town.fleet("up", NAME, "--yes")
    assert code == 5
    assert "h1" in str(told)
    assert "untouched on h2, h3" in told["error"]["message"]
    assert all(town.ask(host)["tokens_predicted"] == 4 for host in town.hosts)

    town.image = town.image.replace("broken:1", "llama:forky")
    town.write(settings={"ctx_size": 2048})
    code, told = town.fleet("status", NAME)
    assert code == 0, told

    code, told = town.fleet("rollback", NAME, "--yes")
    assert code == 0, told
    assert {each["generation"] for each in told["servers"]} == {1}
    code, told = town.fleet("status", NAME)
    assert code == 1
    wanted = {"setting": "ctx_size", "running": 1024, "wanted": 2048}
    assert all(wanted in each["drift"] for each in told["servers"])

    code, told = town.fleet("down", NAME, "--yes")
    assert code == 0
    assert [town.containers(host) for host in town.hosts] == [[], [], []]


def test_a_container_removed_behind_its_back_is_told_and_comes_back(town: Town) -> None:
    town.fleet("up", NAME)
    town.hosts[1].run(f"podman rm --force --time 0 fleet-{NAME}-server")

    code, told = town.fleet("status", NAME)
    assert code == 1
    assert [each["state"] for each in told["servers"] if each["host"] == "h2"] == ["stopped"]
    code, told = town.fleet("up", NAME)
    assert code == 0
    assert {each["host"]: each["action"] for each in told["changes"]} == {
        "h1": "keep",
        "h2": "start",
        "h3": "keep",
    }


def test_a_container_edited_behind_its_back_is_drift(town: Town) -> None:
    town.fleet("up", NAME)
    script = (
        "import json,subprocess as s;"
        f"n='fleet-{NAME}-server';"
        "w=json.loads(s.check_output(['podman','inspect',n]))[0]['Config']['CreateCommand'];"
        "w=['768' if a=='1024' else a for a in w];"
        "s.run(['podman','rm','-f','-t','0',n]);s.run(w)"
    )
    town.hosts[0].run(f'python3 -c "{script}"')

    code, told = town.fleet("status", NAME)
    drift = {each["host"]: each["drift"] for each in told["servers"]}
    assert code == 1
    assert {"setting": "ctx_size", "running": 768, "wanted": 1024} in drift["h1"]
    assert drift["h2"] == []


def test_a_host_without_power_is_named_and_caught_up_later(town: Town) -> None:
    town.fleet("up", NAME)
    town.hosts[2].power_off()
    town.write(settings={"ctx_size": 2048})

    code, told = town.fleet("up", NAME, "--yes")
    assert code == 5
    assert told["error"]["where"] == "h3"
    assert "h1, h2" in told["error"]["message"]
    assert all(town.ask(host)["tokens_predicted"] == 4 for host in town.hosts[:2])

    town.hosts[2].power_on()
    code, told = town.fleet("up", NAME, "--yes")
    assert code == 0, told
    assert {each["host"]: each["action"] for each in told["changes"]} == {
        "h1": "keep",
        "h2": "keep",
        "h3": "replace",
    }


def test_ssh_that_refuses_is_one_sentence_with_the_host(town: Town) -> None:
    (town.folder / "wrong_key").write_text(town.hosts[0].key_file.read_text())
    wrong = town.folder / "wrong_key"
    wrong.unlink()
    town.hosts[0].run(f"true; ssh-keygen -q -t ed25519 -N '' -f {wrong}")
    hosts = [town.target(host) for host in town.hosts[:1]]
    town.write(hosts=[{**hosts[0], "key_file": str(wrong)}])

    code, told = town.fleet("up", NAME)

    assert code == 5
    assert told["error"]["where"] == "h1"
    assert "key" in told["error"]["message"]


def test_a_changed_host_key_stops_everything(town: Town) -> None:
    state = town.folder / "state" / "fleet"
    state.mkdir(parents=True)
    other = (town.hosts[1].folder / "host_key.pub").read_text().split()[:2]
    (state / "known_hosts").write_text(f"{town.hosts[0].address} {' '.join(other)}\n")
    town.write(hosts=[town.target(town.hosts[0])])

    code, told = town.fleet("up", NAME)

    assert code == 5
    assert told["error"]["where"] == "h1"
    assert "not the one pinned before" in told["error"]["message"]


def test_a_full_disk_is_found_before_the_first_byte(town: Town) -> None:
    town.hosts[0].run("mkdir -p /small && mount -t tmpfs -o size=200k tmpfs /small")
    town.write(hosts=[town.target(town.hosts[0])], models_dir="/small")

    code, told = town.fleet("up", NAME)

    assert code == 5
    assert told["error"]["where"] == "h1"
    assert "disk is full" in told["error"]["message"]
    assert town.hosts[0].run("find /small -type f").stdout == ""


def test_a_host_without_podman_is_told_how_to_get_it(town: Town) -> None:
    town.hosts[0].run("mount --bind /dev/null /usr/bin/podman")
    town.write(hosts=[town.target(town.hosts[0])])

    code, told = town.fleet("up", NAME)

    assert code == 5
    assert "podman" in told["error"]["message"]
    assert "fleet doctor h1 --fix" in told["error"]["fix"]


def test_a_damaged_model_is_replaced_before_it_is_used(town: Town) -> None:
    host = town.hosts[0]
    town.write(hosts=[town.target(host)])
    town.fleet("up", NAME)
    file = "/root/.cache/fleet/models/tiny/llama.gguf"
    right = host.run(f"sha256sum {file}").stdout
    host.run(f"printf damage | dd of={file} bs=1 seek=200000 conv=notrunc status=none")

    town.write(hosts=[town.target(host)], settings={"ctx_size": 2048})
    code, told = town.fleet("up", NAME, "--yes")

    assert code == 0, told
    assert host.run(f"sha256sum {file}").stdout == right


@pytest.mark.parametrize("seconds", [2.5, 5.0])
def test_a_fleet_killed_in_the_middle_is_made_good_by_the_next(town: Town, seconds: float) -> None:
    town.write(hosts=[town.target(host) for host in town.hosts[:2]])
    with town.popen("up", NAME, "--yes") as process:
        time.sleep(seconds)
        process.kill()
        process.communicate()

    code, told = town.fleet("up", NAME, "--yes")

    assert code == 0, told
    assert [each["state"] for each in told["servers"]] == ["running"] * 2
    assert all(len(town.containers(host)) == 1 for host in town.hosts[:2])


def test_two_controllers_at_once_leave_one_server_a_host(town: Town) -> None:
    town.write(hosts=[town.target(host) for host in town.hosts[:2]])

    with town.popen("up", NAME, "--yes", "--json") as first:
        with town.popen("up", NAME, "--yes", "--json") as second:
            second.communicate()
        first.communicate()

    assert first.returncode == 0
    assert second.returncode in {0, 5}  # it waited, or it says who was at work
    assert all(len(town.containers(host)) == 1 for host in town.hosts[:2])


def test_a_key_reaches_the_host_as_a_secret_and_nothing_else(town: Town) -> None:
    host = town.hosts[0]
    town.write(hosts=[town.target(host)], bind=host.address, api_key=True)
    url = f"http://{host.address}:8080/props"

    code, told = town.fleet("up", NAME)
    key = (town.folder / "config/fleet/keys" / f"{NAME}.key").read_text().strip()

    assert code == 0, told
    asked = f"curl -s -o /dev/null -w '%{{http_code}}' {url}"
    assert host.run(asked).stdout == "401"
    assert host.run(f"{asked} -H 'Authorization: Bearer {key}'").stdout == "200"
    assert key not in host.run(f"podman inspect fleet-{NAME}-server").stdout
    assert key not in host.run("cat /root/.local/state/fleet/generations/*/*.json").stdout
    assert key not in str(told)
    town.fleet("down", NAME, "--yes")
    assert host.run("podman secret ls --noheading").stdout == ""
