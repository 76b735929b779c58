"""The record of a deployment: whole or not at all, five generations deep."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fleet.compiler.launch_config import LaunchConfig, Mount, SecretFile
from fleet.deploy.generations import (
    Generation,
    Origin,
    Record,
    earlier_generation,
    generation,
    read_generations,
    read_record,
    write_generation,
    write_record,
)
from fleet.deploy.launch_record import launch_from_json, launch_to_json
from fleet.effects.folders import Folders
from fleet.errors import OutsideError, UserError
from fleet.sizes import ByteSize

if TYPE_CHECKING:
    from pathlib import Path

LAUNCH = LaunchConfig(
    deployment="d", server="main", host="local", engine="llama.cpp", build=11549,
    program="llama-server", argv=("-c", "512"), env=(("A", "b"),), image="i",
    attributes=(("n_ctx", 512),), settings=(("ctx_size", 512), ("metrics", True)),
    mounts=(Mount(source="/a", target="/b"),), secrets=(SecretFile(name="k", target="/s"),),
    memory_limit=ByteSize(5), devices=("/dev/dri",),
)  # fmt: skip


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(config=tmp_path / "c", state=tmp_path / "s", cache=tmp_path / "k")


def made(number: int, *, ready: bool = True) -> Generation:
    return Generation(
        number=number, at="2026-01-01T00:00:00+00:00", runtime="podman", launches=(LAUNCH,),
        ready=ready,
    )  # fmt: skip


def test_a_launch_survives_json_with_its_digest() -> None:
    back = launch_from_json(json.loads(json.dumps(launch_to_json(LAUNCH))), where="x")

    assert back == LAUNCH
    assert back.digest == LAUNCH.digest


def test_the_newest_five_are_kept(folders: Folders) -> None:
    for number in range(1, 9):
        write_generation(folders, "d", made(number))

    assert [each.number for each in read_generations(folders, "d")] == [4, 5, 6, 7, 8]
    with pytest.raises(UserError, match="no generation 2") as caught:
        generation(folders, "d", 2)
    assert "4, 5, 6, 7, 8" in (caught.value.fix or "")


def test_a_record_is_read_as_written(folders: Folders) -> None:
    record = Record(
        deployment="d", wanted="up", runtime="podman", generation=3, at="now",
        origin=Origin(name="d", sets=("a=1",)),
    )  # fmt: skip
    write_record(folders, record)

    assert read_record(folders, "d") == record
    assert read_record(folders, "other") is None


def test_rollback_skips_generations_that_never_served(folders: Folders) -> None:
    write_generation(folders, "d", made(1))
    write_generation(folders, "d", made(2, ready=False))
    write_generation(folders, "d", made(3))
    write_record(
        folders, Record(deployment="d", wanted="up", runtime="podman", generation=3, at="now")
    )

    assert earlier_generation(folders, "d").number == 1


@pytest.mark.parametrize("content", ["", "{", "[]", '{"deployment": "d"}', '{"x": 1}'])
def test_a_damaged_record_names_its_file(folders: Folders, content: str) -> None:
    write_record(
        folders, Record(deployment="d", wanted="up", runtime="podman", generation=3, at="now")
    )
    (file,) = folders.state.rglob("record.json")
    file.write_text(content)

    with pytest.raises(OutsideError, match="damaged") as caught:
        read_record(folders, "d")
    assert caught.value.where == str(file)
