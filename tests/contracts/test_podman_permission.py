"""A podman that this user may not use is one clear error, by a real socket and a real program."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = 65534
# loads all modules as the user who may read them, then asks as one who may do nothing
ASK = f"""
import json, os
from fleet.effects.podman_socket import open_podman
from fleet.errors import FleetError
def ask():
    try:
        open_podman().get("info")
    except FleetError as error:
        return [error.kind, error.exit_code, error.message, error.where, error.fix]
wanted = {{name: os.environ.pop(name) for name in ("PATH", "CONTAINER_HOST")}}
os.environ["PATH"] = "/nonexistent"
ask()
os.environ.update(wanted)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
print(json.dumps(ask()))
"""


def ask_as_nobody(**variables: str) -> list[Any]:
    environment = {**os.environ, "PATH": "/usr/bin:/bin", "CONTAINER_HOST": "", **variables}
    words = [sys.executable, "-c", ASK]
    return list(json.loads(subprocess.check_output(words, env=environment, text=True)))


@pytest.fixture
def open_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder that every user may enter, and all above it too."""
    folder = tmp_path_factory.mktemp("open")
    above = [path for path in folder.parents if path.is_relative_to(tmp_path_factory.getbasetemp())]
    for path in (folder, *above, tmp_path_factory.getbasetemp().parent):
        path.chmod(0o755)
    return folder


def test_a_socket_of_somebody_else(open_folder: Path) -> None:
    path = open_folder / "podman.sock"

    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(path))
        listening.listen()
        path.chmod(0)
        kind, code, message, where, fix = ask_as_nobody(CONTAINER_HOST=f"unix://{path}")

    assert (kind, code, where) == ("podman", 5, "CONTAINER_HOST")
    assert message.startswith("podman is not allowed to do this")
    assert str(path) in message
    assert "socket of your own" in fix


def test_a_program_that_may_not_be_run(open_folder: Path) -> None:
    (open_folder / "podman").write_text("#!/bin/sh\n")
    (open_folder / "podman").chmod(0o644)

    kind, code, message, _, fix = ask_as_nobody(PATH=str(open_folder))

    assert (kind, code, message) == ("podman", 5, "podman may not be run by this user")
    assert fix
