"""A server that was ready and answers no more is replaced; one that loads never is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from fleet.compiler.launch_config import LaunchConfig, SecretFile
from fleet.deploy.find_hung import replace_hung
from fleet.deploy.generations import Generation, Record, write_generation, write_record
from fleet.deploy.plan_changes import plan_changes
from fleet.deploy.rim import Rim
from fleet.effects.folders import Folders
from fleet.effects.http import NoAnswer
from fleet.errors import OutsideError
from fleet.observe.observation import RunningServer

if TYPE_CHECKING:
    from pathlib import Path

LAUNCH = LaunchConfig(
    deployment="d", server="main", host="local", engine="llama.cpp", build=None,
    program="llama-server", argv=(),
)  # fmt: skip
STARTED = 1_790_000_000.0
SERVER = RunningServer(
    deployment="d", server="main", host="local", state="running", generation=3,
    digest=LAUNCH.digest, started_at=STARTED,
)  # fmt: skip


@dataclass
class Told:
    """A clock that only sleeping moves, and a server that answers as told."""

    answers: list[str]
    passed: float = 0.0

    def health(self) -> str:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def monotonic(self) -> float:
        return self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds


@pytest.mark.parametrize(
    ("answers", "recorded", "ready", "wanted", "action"),
    [
        (["unreachable"], +5, True, "up", "replace"),
        (["unhealthy"], +5, True, "up", "replace"),
        (["unreachable", "unreachable", "ready"], +5, True, "up", "keep"),
        (["loading"], +5, True, "up", "keep"),
        (["unreachable"], -5, True, "up", "keep"),  # started again since, and loading
        (["unreachable"], +5, False, "up", "keep"),
        (["unreachable"], +5, True, "down", "keep"),
    ],
)
def test_only_what_was_ready_and_stays_silent_is_replaced(
    tmp_path: Path, answers: list[str], recorded: int, ready: bool, wanted: Any, action: str,
) -> None:  # fmt: skip
    told: Any = Told(answers)
    rim = Rim(folders=Folders(config=tmp_path, state=tmp_path, cache=tmp_path), clock=told)
    at = datetime.fromtimestamp(STARTED + recorded, UTC).isoformat()
    write_generation(
        rim.folders, "d",
        Generation(number=3, at=at, runtime="embedded", launches=(LAUNCH,), ready=ready),
    )  # fmt: skip
    write_record(
        rim.folders,
        Record(deployment="d", wanted=wanted, runtime="embedded", generation=3, at=at),
    )

    (change,) = replace_hung(plan_changes([LAUNCH], [SERVER]), "d", rim, client=lambda _: told)

    assert change.action == action
    assert ("answers no more" in change.why) == (action == "replace")
    assert told.passed <= 12


def test_a_change_that_replaces_anyway_is_not_waited_for(tmp_path: Path) -> None:
    rim = Rim(folders=Folders(config=tmp_path, state=tmp_path, cache=tmp_path))
    changes = plan_changes([replace(LAUNCH, argv=("-c", "1"))], [SERVER])

    assert replace_hung(changes, "d", rim, client=lambda _: pytest.fail("asked")) == changes


@pytest.mark.parametrize(
    ("said", "action"),
    [
        (None, "keep"),
        (OutsideError("HTTP 401: Invalid API Key"), "replace"),
        (OutsideError("HTTP 503: Loading model"), "keep"),
        (NoAnswer("timed out"), "keep"),
    ],
)
def test_a_server_that_keeps_a_rotated_key_is_replaced(
    tmp_path: Path, said: OutsideError | None, action: str
) -> None:
    class Asked(Told):
        def props(self) -> dict[str, Any]:
            if said is not None:
                raise said
            return {}

    locked = replace(LAUNCH, secrets=(SecretFile(name="api-key", target="/run/secrets/key"),))
    server = replace(SERVER, digest=locked.digest)
    rim = Rim(folders=Folders(config=tmp_path, state=tmp_path, cache=tmp_path))
    client: Any = Asked(["ready"])

    (change,) = replace_hung(plan_changes([locked], [server]), "d", rim, client=lambda _: client)

    assert change.action == action
    assert ("API key" in change.why) == (action == "replace")
