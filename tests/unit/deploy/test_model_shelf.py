"""What lies on the shelf is told also where a record is damaged, and nothing it may need goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from fleet.compiler.launch_config import LaunchConfig
from fleet.deploy.generations import Generation, Record, write_generation, write_record
from fleet.deploy.model_shelf import models, prunable
from fleet.deploy.rim import Rim
from fleet.effects.commands import CommandResult
from fleet.effects.folders import Folders

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class NoPodman:
    def run(self, argv: tuple[str, ...], **_: object) -> CommandResult:
        return CommandResult(argv=argv, code=127, stdout="", stderr="not found")


@pytest.fixture
def rim(tmp_path: Path) -> Rim:
    commands: Any = NoPodman()
    folders = Folders(config=tmp_path / "c", state=tmp_path / "s", cache=tmp_path / "k")
    rim = Rim(folders=folders, commands=commands)
    for name in ("kept", "whole"):
        model = rim.folders.cache / "models" / name / "m.gguf"
        model.parent.mkdir(parents=True)
        model.write_bytes(b"GGUF")
        launch = LaunchConfig(
            deployment=name, server="main", host="local", engine="llama.cpp", build=None,
            program="llama-server", argv=(), model_path=str(model),
        )  # fmt: skip
        for number in range(1, 5):
            made = Generation(
                number=number, at="now", runtime="embedded", launches=(launch,), ready=True
            )
            write_generation(folders, name, made)
        write_record(
            folders,
            Record(deployment=name, wanted="down", runtime="embedded", generation=4, at="now"),
        )
    return rim


def test_a_damaged_record_may_be_up_with_all_it_ever_ran(rim: Rim) -> None:
    (rim.folders.state / "deployments/kept/record.json").write_text("{")

    assert {item.name: item.used_by for item in models(rim)} == {
        "kept": ("kept",), "whole": (),
    }  # fmt: skip
    assert [item.name for item in prunable(rim, with_models=True)] == [
        "whole, generation 1", "whole, generation 2", "whole",
    ]  # fmt: skip


def test_a_damaged_generation_hides_no_other(rim: Rim) -> None:
    (rim.folders.state / "deployments/whole/generations/000003.json").write_text("[]")

    names = [item.name for item in prunable(rim, with_models=False)]

    assert names == [
        "kept, generation 1", "kept, generation 2", "whole, generation 1",
    ]  # fmt: skip
