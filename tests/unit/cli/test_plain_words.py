"""What commands say in words: true, and of the thing that was asked about."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from support.fleet_command import fleet

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def test_a_key_that_no_server_asks_for_is_called_so() -> None:
    made = fleet("key", "demo", "--rotate")

    assert made.code == 0
    assert "no server asks for it yet" in made.err
    assert "old key" not in made.err


def test_a_file_where_a_folder_is_wanted_is_the_users_mistake(home: Path) -> None:
    (home / "there").write_text("x")

    for words in (("render", "demo", "--to"), ("bench", "demo", "--out")):
        failed = fleet(*words, "there", "--json")
        assert failed.code == 3, failed.out
        assert "is a file" in failed.error["message"]
        assert failed.error["where"].endswith("there")


@pytest.mark.parametrize("words", [("validate",), ("diagnose",)])
def test_what_may_have_no_end_is_no_profile_and_no_log(home: Path, words: tuple[str]) -> None:
    os.mkfifo(home / "pipe.log")

    for file in (str(home / "pipe.log"), "/dev/zero"):
        failed = fleet(*words, file)
        assert failed.code == 3, failed.out
        assert "no ordinary file" in failed.out + failed.err


def test_init_says_what_it_hides() -> None:
    words = ("--model", "gemma3-270m", "--on", "auto")

    hides, new = fleet("init", "demo", *words), fleet("init", "mine", *words)

    assert (hides.code, new.code) == (0, 0), hides.err
    assert "hides the deployment `demo`" in hides.err
    assert "hides" not in new.err


def test_a_model_that_is_none_is_refused_where_it_is_named(home: Path) -> None:
    (home / "empty.gguf").touch()
    (home / "requests.txt").write_text("hello")

    compiled = fleet("compile", "empty.gguf", "--json")
    read = fleet("prompts", "analyze", "requests.txt", "--model", "/nope", "--json")
    gone = fleet("models", "rm", "nope", "--json")

    assert (compiled.code, read.code, gone.code) == (3, 3, 3)
    assert read.error["message"] == "no such file"
    assert "--yes" not in gone.error["fix"]
