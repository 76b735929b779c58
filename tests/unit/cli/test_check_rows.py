"""Checks of several hosts say whose they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import typer

from fleet.cli.check_rows import answer_checks
from fleet.observe.checks import Check

ROOM = Check(name="disk", ok=False, message="2 GiB free", fix="free some", host="a")


def test_of_several_hosts_each_row_and_cure_names_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit):
        answer_checks([ROOM, replace(ROOM, ok=True, host="b")], as_json=False, with_host=True)

    said = capsys.readouterr()
    assert [line.split()[:3] for line in said.out.splitlines()] == [
        ["host", "check", "found"], ["NO", "a", "disk"], ["ok", "b", "disk"],
    ]  # fmt: skip
    assert said.err == "a: disk: free some\n"


def test_of_one_host_its_name_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        answer_checks([ROOM], as_json=False, with_host=True)

    said = capsys.readouterr()
    assert said.out.splitlines()[1].split()[:2] == ["NO", "disk"]
    assert said.err == "disk: free some\n"
