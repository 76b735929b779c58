"""One study on two hosts, over SSH, with the real engine in containers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from support.town import NAME, Town, town_of_two

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = [pytest.mark.ansible, pytest.mark.podman, pytest.mark.llama, pytest.mark.slow]


@pytest.fixture
def town(
    podman: Mapping[str, str], engine_image: str, tiny_models: Mapping[str, Path], tmp_path: Path
) -> Iterator[Town]:
    model = tiny_models["llama"]
    with town_of_two(tmp_path, podman=podman, model=model, image=engine_image) as made:
        yield made


def test_two_hosts_share_a_study_and_keep_serving(town: Town) -> None:
    code, told = town.fleet("up", NAME)
    assert code == 0, told
    before = [town.containers(host)[0]["Id"] for host in town.hosts]

    code, told = town.fleet("tune", NAME, "--metric", "pp", "--trials", "6", "--hosts", "h1,h2")

    assert code == 0, told
    assert told["trials"] == 6
    lines = (town.folder / f"state/fleet/tune/{NAME}/pp.jsonl").read_text().splitlines()
    begun = [event["running"] for event in map(json.loads, lines) if "running" in event]
    # what they measured may differ too much on a busy machine; pooling is the stand-in's test
    assert {run["lane"].split("/")[0] for run in begun} == {"h1", "h2"}
    assert [[each["Id"] for each in town.containers(host)] for host in town.hosts] == [
        [one] for one in before
    ]


def test_model_and_image_are_brought_to_the_host_that_is_named(town: Town) -> None:
    code, told = town.fleet("tune", NAME, "--hosts", "h1,h9")
    assert code == 3
    assert "h9" in told["error"]["message"]

    code, told = town.fleet("tune", NAME, "--metric", "pp", "--trials", "3", "--hosts", "h1")

    assert code == 0, told
    assert told["trials"] == 3
    assert [town.containers(host) for host in town.hosts] == [[], []]
