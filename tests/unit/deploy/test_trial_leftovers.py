"""What a killed `tune` or `bench` left is shown and ended; a living one's is left alone."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from fleet.deploy.bring_up import take_down
from fleet.deploy.look import names_seen, trials_left
from fleet.deploy.rim import Rim
from fleet.effects.folders import Folders
from fleet.errors import UserError
from fleet.observe.observation import RunningServer

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = 2**30  # above every process number
LEFT = f"d-trial-{NOBODY}-1"


@dataclass
class Servers:
    """A place where servers run until they are stopped."""

    names: list[str] = field(
        default_factory=lambda: [LEFT, f"d-trial-{os.getpid()}-1", f"e-trial-{NOBODY}-1"]
    )

    def running(self) -> tuple[RunningServer, ...]:
        return tuple(
            RunningServer(
                deployment=name, server="server", host="local", state="running", generation=0,
                digest="",
            )
            for name in self.names
        )  # fmt: skip

    def stop(self, server: RunningServer) -> None:
        self.names.remove(server.deployment)


@pytest.fixture
def place() -> Servers:
    return Servers()


@pytest.fixture
def rim(tmp_path: Path, place: Servers) -> Rim:
    hosts: Any = {"embedded": place}
    return Rim(folders=Folders(config=tmp_path, state=tmp_path, cache=tmp_path), hosts=hosts)


def test_down_ends_what_is_left_of_the_deployment_alone(rim: Rim, place: Servers) -> None:
    ended = take_down("d", rim=rim, progress=lambda _: None)

    assert [each.deployment for each in ended] == [LEFT]
    assert len(place.names) == 2
    assert LEFT not in place.names
    with pytest.raises(UserError, match="nothing of that name"):
        take_down("d", rim=rim, progress=lambda _: None)


def test_status_shows_it_under_the_name_of_the_deployment(rim: Rim) -> None:
    (seen,) = trials_left("d", rim)

    assert (seen.server.deployment, seen.server.server) == ("d", "trial")
    assert not seen.as_wanted
    assert {"d", "e"} <= set(names_seen(rim))
