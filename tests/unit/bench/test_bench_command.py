"""What `fleet bench` asks for and where it writes, before anything is measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))

from turns import turn

from fleet.bench.summarise import summarise
from fleet.cli.bench import _folder, app
from fleet.cli.bench_output import print_conversation

if TYPE_CHECKING:
    import pytest


def test_a_second_run_that_cannot_be_gone_on_with_gets_a_fresh_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("demo-load", "demo-load-2", "demo-load-3"):
        folder = _folder(None, ["demo"], "load")
        assert folder.path.name == name
        folder.write_run({"suite": "load"})
    assert _folder(tmp_path, ["demo"], "load").path == tmp_path
    for _ in range(2):
        folder = _folder(None, ["demo"], "conversation")
        assert folder.path.name == "demo-conversation"
        folder.write_run({"suite": "conversation"})


def test_users_and_rate_are_a_usage_error() -> None:
    words = ["default", "demo", "--suite", "load", "--users", "2", "--rate", "1"]
    assert CliRunner().invoke(app, words).exit_code == 2


def test_the_output_says_what_a_condition_is(capsys: pytest.CaptureFixture[str]) -> None:
    summary = summarise([turn(condition="C0"), turn(condition="C1")])
    print_conversation(summary, {"C0": "no prompt cache", "C1": "prompt cache", "C9": "other"})
    assert "C0: no prompt cache; C1: prompt cache\n" in capsys.readouterr().out
