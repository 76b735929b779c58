"""The numbers of generations on hosts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from fleet.compiler.launch_config import LaunchConfig
from fleet.deploy.bring_up_hosts import _generation
from fleet.deploy.generations import Generation, write_generation
from fleet.deploy.rim import Rim
from fleet.effects.folders import Folders

if TYPE_CHECKING:
    from pathlib import Path

LAUNCH = LaunchConfig(
    deployment="d", server="main", host="a", engine="llama.cpp", build=None,
    program="llama-server", argv=(),
)  # fmt: skip


def test_an_up_that_never_served_uses_no_number_up(tmp_path: Path) -> None:
    rim = Rim(folders=Folders(config=tmp_path, state=tmp_path, cache=tmp_path))
    for number, ready in ((1, True), (2, False)):
        launch = replace(LAUNCH, argv=(str(number),))
        made = Generation(
            number=number, at="now", runtime="ansible", launches=(launch,), ready=ready
        )
        write_generation(rim.folders, "d", made)
    prepared: Any = SimpleNamespace(
        deployment=SimpleNamespace(name="d", tuned=None), launches=(LAUNCH,)
    )
    work: Any = SimpleNamespace(rim=rim)

    assert _generation(prepared, (), work).number == 2


def test_a_generation_that_served_stays_one_when_it_is_begun_again(tmp_path: Path) -> None:
    rim = Rim(folders=Folders(config=tmp_path, state=tmp_path, cache=tmp_path))
    made = Generation(number=3, at="now", runtime="ansible", launches=(LAUNCH,), ready=True)
    write_generation(rim.folders, "d", made)
    prepared: Any = SimpleNamespace(
        deployment=SimpleNamespace(name="d", tuned=None), launches=(LAUNCH,)
    )
    work: Any = SimpleNamespace(rim=rim)

    again = _generation(prepared, (), work)

    assert (again.number, again.ready) == (3, True)
