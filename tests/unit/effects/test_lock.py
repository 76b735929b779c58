"""Two fleets at once: the second is told who holds the lock, waits, or gives up."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from fleet.effects.lock import held
from fleet.errors import LockHeld

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """
import sys
from pathlib import Path
from fleet.effects.lock import held
sys.argv = ["fleet", "up", "demo"]
with held(Path({path!r})):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "demo" / "lock"


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER.format(path=str(path))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_learns_who_holds_it(path: Path) -> None:
    with holder(path) as other:
        with pytest.raises(LockHeld, match="`fleet up demo`") as caught, held(path):
            pass
        other.communicate("\n")

    assert str(other.pid) in caught.value.message


def test_the_second_waits_and_is_told_so(path: Path) -> None:
    told: list[str] = []
    with holder(path) as other:

        def end_the_other(text: str) -> None:
            told.append(text)
            other.communicate("\n")

        with held(path, wait_s=20, on_wait=end_the_other):
            assert other.poll() == 0

    assert told == [f"waiting for `fleet up demo` (process {other.pid})"]


def test_a_killed_holder_leaves_it_free(path: Path) -> None:
    with holder(path) as other:
        other.kill()
        other.wait()

        with held(path):
            pass
