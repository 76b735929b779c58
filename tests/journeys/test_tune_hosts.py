"""One study on two hosts, over SSH, with the real engine in containers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from support.net_hosts import start_network
from support.town import NAME, Town

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = [pytest.mark.ansible, pytest.mark.podman, pytest.mark.llama, pytest.mark.slow]


@pytest.fixture
def town(
    podman: Mapping[str, str], engine_image: str, tiny_models: Mapping[str, Path], tmp_path: Path
) -> Iterator[Town]:
    network = start_network(2, podman)
    made = Town(folder=tmp_path, network=network, model=tiny_models["llama"], image=engine_image)
    made.write(settings={"batch_size": 32, "ubatch_size": 32})
    yield made
    network.remove()


def test_two_hosts_share_a_study_and_keep_serving(town: Town) -> None:
    code, told = town.fleet("up", NAME)
    assert code == 0, told
    before = [town.containers(host)[0]["Id"] for host in town.hosts]

    code, told = town.fleet("tune", NAME, "--metric", "pp", "--trials", "6", "--hosts", "h1,h2")

    assert code == 0, told
    assert told["trials"] == 6
    lines = (town.folder / f"state/fleet/tune/{NAME}/pp.jsonl").read_text().splitlines()
    trials = [event["trial"] for event in map(json.loads, lines) if "trial" in event]
    assert {trial["lane"].split("/")[0] for trial in trials} == {"h1", "h2"}
    assert [[each["Id"] for each in town.containers(host)] for host in town.hosts] == [
        [one] for one in before
    ]


def test_a_host_that_the_deployment_does_not_name_is_an_error(town: Town) -> None:
    code, told = town.fleet("tune", NAME, "--hosts", "h1,h9")

    assert code == 3
    assert "h9" in told["error"]["message"]
