"""From `up` to `down` in containers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleet.effects.machine import free_port
from support.fleet_command import Ran, fleet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.podman
BOXED = f"boxed-{os.getpid()}"  # two runs at once share one podman


@pytest.fixture
def words(
    tiny_models: Mapping[str, Path], tmp_path: Path, home: Path, engine_image: str
) -> tuple[str, ...]:
    """Write a deployment `boxed` of the tiny model in the engine's image."""
    model = Path(shutil.copy(tiny_models["llama"], tmp_path / "tiny.gguf"))
    folder = home / "config" / "fleet" / "profiles"
    folder.mkdir(parents=True)
    head = "version: 1\nname: "
    (folder / "m.yaml").write_text(f"kind: model\n{head}boxed-model\npath: {model}\n")
    (folder / "e.yaml").write_text(
        f"kind: engine\n{head}boxed-engine\nengine: llama.cpp\nimage: {engine_image}\n"
    )
    (folder / "d.yaml").write_text(
        f"kind: deployment\n{head}{BOXED}\nhardware: auto\nmodel: boxed-model\n"
        f"engine: boxed-engine\nport: {free_port()}\nsettings:\n  ctx_size: 512\n  threads: 1\n"
    )
    return (BOXED,)


@pytest.fixture(autouse=True)
def _nothing_is_left(home: Path) -> Iterator[None]:  # noqa: ARG001 - before the folders go
    yield
    fleet("down", BOXED, "--yes")
    assert f"fleet-{BOXED}" not in podman("ps", "--all", "--format", "{{.Names}}")


def podman(*words: str) -> str:
    return subprocess.run(["podman", *words], capture_output=True, text=True, check=True).stdout


def up(*words: str) -> Ran:
    return fleet("up", *words, "--json")


def test_up_status_change_rollback_down(words: tuple[str, ...]) -> None:
    first = up(*words)
    assert first.code == 0, first.out
    (server,) = first.json["servers"]
    assert (server["health"], server["generation"]) == ("ready", 1)
    assert server["container"]
    again = up(*words)
    assert [change["action"] for change in again.json["changes"]] == ["keep"]

    changed = up(*words, "--set", "batch_size=128", "--yes")
    assert changed.json["servers"][0]["generation"] == 2
    assert changed.json["servers"][0]["container"] != server["container"]
    assert fleet("check", BOXED).code == 0
    assert fleet("rollback", BOXED, "--yes", "--json").json["generation"] == 1

    assert fleet("down", BOXED, "--yes").code == 0
    assert fleet("status", BOXED, "--json").json == {"servers": []}
    assert "model loaded" in fleet("logs", BOXED).out


def test_a_container_of_others_under_the_name_is_left_alone(
    words: tuple[str, ...], engine_image: str
) -> None:
    name = f"fleet-{BOXED}-server"
    podman("create", "--name", name, engine_image, "sleep", "1")
    try:
        failed = up(*words)

        assert failed.code == 5
        assert "fleet did not make" in failed.error["message"]
        assert name in podman("ps", "--all", "--format", "{{.Names}}")
    finally:
        podman("rm", "--force", name)


def test_a_container_removed_behind_our_back_is_told_and_made_again(
    words: tuple[str, ...],
) -> None:
    assert up(*words).code == 0
    podman("rm", "--force", f"fleet-{BOXED}-server")

    said = fleet("status", BOXED, "--json")

    assert said.code == 1
    assert said.json["servers"][0]["state"] == "stopped"
    assert up(*words).json["changes"][0]["action"] == "start"


def test_without_podman_the_cause_and_a_way_out_are_named(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    for program in ("sh", "cat", "uname"):
        (bare / program).symlink_to(shutil.which(program) or program)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(bare))
        failed = up(*words)

    assert failed.code == 5, failed.out
    assert "podman is not installed" in failed.error["message"]
    assert "embedded" in failed.error["fix"]
