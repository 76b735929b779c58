"""`fleet tune external` with a real program on the other side of the pipe."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from tests.support.fleet_command import fleet

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import json, random, sys
rng = random.Random(1)
for line in sys.stdin:
    heard = json.loads(line)
    if heard.get("end"):
        break
    n = heard["settings"]["threads"]
    reply = {"value": 100 * n ** 0.5 * rng.gauss(1, 0.01)} if n < 16 else {"failed": "oom"}
    print(json.dumps({**reply, "seconds": 1.25}), flush=True)
"""
SPACE = {"params": {"threads": [1, 2, 4, 8, 16]}, "default": {"threads": 1}, "load": []}


def _asked(folder: Path, program: str) -> tuple[str, ...]:
    (folder / "space.json").write_text(json.dumps(SPACE))
    (folder / "measure.py").write_text(program)
    command = f"{sys.executable} '{folder / 'measure.py'}'"
    return ("tune", "external", "--space", str(folder / "space.json"), "--measure", command)


def test_finds_the_best_within_the_budget(tmp_path: Path) -> None:
    ran = fleet(*_asked(tmp_path, PROGRAM), "--budget-seconds", "24", "--seed", "3", "--json")

    assert ran.code == 0, ran.err
    assert set(ran.json) == {"chosen", "claimed_gain", "evaluations", "seconds"}
    assert ran.json["chosen"] == {"threads": 8}
    assert abs(ran.json["claimed_gain"] - 1.83) < 0.15
    assert ran.json["seconds"] == 1.25 * ran.json["evaluations"] <= 24 * 1.05


def test_a_program_that_leaves_early_is_exit_5(tmp_path: Path) -> None:
    ran = fleet(*_asked(tmp_path, "print('hello')"), "--json")

    assert ran.code == 5
    assert ran.error["exit_code"] == 5


def test_a_space_that_is_none_is_exit_3(tmp_path: Path) -> None:
    asked = _asked(tmp_path, PROGRAM)
    (tmp_path / "space.json").write_text("{")
    ran = fleet(*asked, "--json")

    assert ran.code == 3
