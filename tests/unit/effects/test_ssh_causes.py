"""What ssh says becomes one sentence with the host's name and a cure."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.effects.ansible import _failure
from fleet.effects.ssh import SshTarget, unreachable

TARGET = SshTarget(name="h1", address="10.0.0.1", user="root", port=2222)


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @", "not the one pinned"),
        ("Host key verification failed.", "not known"),
        ("root@10.0.0.1: Permission denied (publickey).", "refuses the key"),
        ("ssh: connect to host 10.0.0.1 port 2222: Connection refused", "port 2222"),
        ("ssh: Could not resolve hostname h1: Name or service not known", "no address"),
        ("ssh: connect to host 10.0.0.1 port 22: Connection timed out", "no answer"),
        ("ssh: connect to host 10.0.0.1 port 22: No route to host", "no route"),
        ("client_loop: send disconnect: Broken pipe", "connection was lost"),
        ("", "connection was lost"),
    ],
)
def test_each_cause_has_its_words(said: str, word: str) -> None:
    error = unreachable(TARGET, said, Path("/k"))

    assert error.where == "h1"
    assert word in error.message
    assert error.fix


@pytest.mark.parametrize(
    ("result", "word"),
    [
        ({"msg": "write /x: No space left on device"}, "disk is full"),
        ({"module_stderr": "/bin/sh: 1: /usr/bin/python3: not found"}, "no python"),
        ({"stderr": "sh: 1: podman: not found"}, "no podman"),
        (
            {"stderr": "a\nError: something else", "msg": "non-zero"},
            "something else",
        ),
    ],
)
def test_a_failed_task_is_one_sentence(result: dict[str, str], word: str) -> None:
    error = _failure("h1", "Start", result)

    assert error.where == "h1"
    assert "`Start` failed" in error.message
    assert word in error.message
