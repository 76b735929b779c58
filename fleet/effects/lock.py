"""One fleet at a time changes a deployment; the other one learns who holds it."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from fleet.effects.files import file_for_folder
from fleet.errors import LockHeld, OutsideError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOOK_S = 0.05


@contextmanager
def held(
    path: Path, *, wait_s: float = 0.0, on_wait: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Hold the lock file `path`; the kernel frees it when this process ends, however it ends.

    A second holder is told to `on_wait` and waited for at most `wait_s` seconds.
    Raises `LockHeld` naming the owner, `UserError` where a file is in place of the folder.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if (wrong := file_for_folder(path, error)) is not None:
            raise wrong from None
        message = f"cannot lock: {error.strerror or error}"
        fix = "check the folder's owner, mode and free space"
        raise OutsideError(message, where=str(path), fix=fix) from None
    try:
        _acquire(lock, path, wait_s, on_wait)
        _write_owner(path)
        yield
    finally:
        os.close(lock)  # and with it the lock


def owner(path: Path) -> str:
    """Say who holds `path`: the command and its process."""
    try:
        said = json.loads(_owner_file(path).read_text())
        return f"`{said['command']}` (process {said['pid']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another fleet"


def _acquire(lock: int, path: Path, wait_s: float, on_wait: Callable[[str], None] | None) -> None:
    if _taken(lock):
        return
    if on_wait is not None and wait_s > 0:
        time.sleep(LOOK_S)  # whoever has just taken it writes its name after that
        on_wait(f"waiting for {owner(path)}")
    until = time.monotonic() + wait_s
    while not _taken(lock):
        if time.monotonic() >= until:
            message = f"{owner(path)} is at work here"
            raise LockHeld(message, where=str(path), fix="wait until it has ended")
        time.sleep(LOOK_S)


def _taken(lock: int) -> bool:
    """Whether the lock is ours now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_owner(path: Path) -> None:
    command = " ".join(["fleet", *sys.argv[1:3]])
    with suppress(OSError):  # a full disk: who needs it says so, the lock holds without
        _owner_file(path).write_text(json.dumps({"pid": os.getpid(), "command": command}))


def _owner_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.owner")
