"""What serves again when a start in place of another does not succeed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from fleet.compiler.launch_config import LaunchConfig
from fleet.deploy import local_work
from fleet.deploy.generations import Generation, write_generation
from fleet.deploy.local_work import LocalWork
from fleet.deploy.rim import Rim
from fleet.effects.folders import Folders
from fleet.errors import OutsideError
from fleet.observe.observation import RunningServer

if TYPE_CHECKING:
    from pathlib import Path

LAUNCH = LaunchConfig(
    deployment="d", server="main", host="local", engine="llama.cpp", build=None,
    program="llama-server", argv=(),
)  # fmt: skip


@dataclass
class OneServer:
    """A place for one server, whose next start fails with `trouble`."""

    trouble: BaseException | None
    serves: list[RunningServer] = field(default_factory=list)

    def running(self) -> tuple[RunningServer, ...]:
        return tuple(self.serves)

    def start(self, launch: LaunchConfig, *, generation: int) -> RunningServer:
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble
        self.serves = [
            RunningServer(
                deployment=launch.deployment, server=launch.server, host="local",
                state="running", generation=generation, digest="x",
            )
        ]  # fmt: skip
        return self.serves[0]

    def stop(self, server: RunningServer) -> None:
        self.serves.remove(server)


@pytest.mark.parametrize(
    ("trouble", "next_one", "serves"),
    [
        (KeyboardInterrupt(), 1, [1]),
        (KeyboardInterrupt(), 2, [1]),
        (OutsideError("no"), 2, [1]),
        (OutsideError("no"), 1, []),  # it fails as it failed just now
    ],
)
def test_what_served_before_serves_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: BaseException,
    next_one: int, serves: list[int],
) -> None:  # fmt: skip
    rim = Rim(folders=Folders(config=tmp_path, state=tmp_path, cache=tmp_path))
    both = [
        Generation(number=number, at="", runtime="embedded", launches=(LAUNCH,), ready=True)
        for number in (1, 2)
    ]
    for each in both:
        write_generation(rim.folders, "d", each)
    place: Any = OneServer(None)
    monkeypatch.setattr(local_work, "local_host", lambda *_: place)
    monkeypatch.setattr(local_work, "await_ready", lambda *_, **__: None)
    monkeypatch.setattr(local_work, "port_taken", lambda *_: False)
    work = LocalWork(rim=rim, progress=lambda _: None, host=place, runtime="embedded")
    work.start(LAUNCH, both[0], bound_s=1)
    place.trouble = trouble

    with pytest.raises(type(trouble)):
        work.replace_all(both[next_one - 1], work.mine("d"), bound_s=1, finish=lambda: None)

    assert [each.generation for each in place.serves] == serves


def test_a_port_that_a_deployment_of_our_own_has_is_named_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rim = Rim(folders=Folders(config=tmp_path, state=tmp_path, cache=tmp_path))
    place: Any = OneServer(None)
    place.serves = [
        RunningServer(
            deployment="other", server="main", host="local", state="running", generation=1,
            digest="x", url=f"http://127.0.0.1:{LAUNCH.port}",
        )
    ]  # fmt: skip
    monkeypatch.setattr(local_work, "local_host", lambda *_: place)
    monkeypatch.setattr(local_work, "port_taken", lambda *_: True)
    work = LocalWork(rim=rim, progress=lambda _: None, host=place, runtime="embedded")
    made = Generation(number=1, at="", runtime="embedded", launches=(LAUNCH,))

    with pytest.raises(OutsideError, match="taken by the deployment `other`") as caught:
        work.start(LAUNCH, made, bound_s=1)

    assert "fleet down other" in (caught.value.fix or "")
