"""The words that a deployment is kept by mean the same in any folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleet.cli.load import load_deployment, words_of
from fleet.deploy.generations import Origin, Record, write_record
from fleet.effects.folders import Folders
from fleet.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def test_paths_are_made_absolute(home: Path) -> None:
    (home / "more").mkdir()

    origin, _ = words_of("a.gguf", profiles=["more"], sets=["model=b.gguf", "port=1"])

    assert origin == Origin(
        name=f"{home}/a.gguf", profiles=(f"{home}/more",), sets=(f"model={home}/b.gguf", "port=1")
    )


def test_a_name_without_a_profile_is_what_was_brought_up() -> None:
    with pytest.raises(UserError):
        load_deployment("tiny")
    before = Origin(name="/models/tiny.gguf", sets=("ctx_size=512",))
    record = Record(
        deployment="tiny", wanted="up", runtime="embedded", generation=1, at="now", origin=before
    )
    write_record(Folders(), record)

    found = load_deployment("tiny", sets=["threads=3"])

    assert (found.name, found.model.path) == ("tiny", "/models/tiny.gguf")
    assert (found.settings["ctx_size"].value, found.settings["threads"].value) == (512, 3)
    assert words_of("demo")[0] == Origin(name="demo")
