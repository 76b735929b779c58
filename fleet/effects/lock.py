"""One fleet at a time changes a deployment; the other one learns who holds it."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from fleet.errors import LockHeld, OutsideError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextmanager
def held(
    path: Path, *, wait_s: float = 0.0, on_wait: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Hold the lock file `path`; the kernel frees it when this process ends, however it ends.

    A second holder is told to `on_wait` and waited for at most `wait_s` seconds.
    Raises `LockHeld` naming the owner.
    """
    lock = _lock(path)
    try:
        _acquire(lock, path, wait_s, on_wait)
    except OSError as error:
        message = f"cannot lock: {error.strerror or error}"
        fix = "check the folder's owner, mode and free space"
        raise OutsideError(message, where=str(path), fix=fix) from None
    try:
        _write_owner(path)
        yield
    finally:
        lock.release()


def owner(path: Path) -> str:
    """Say who holds `path`: the command and its process."""
    try:
        said = json.loads(_owner_file(path).read_text())
        return f"`{said['command']}` (process {said['pid']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another fleet"


def _lock(path: Path) -> FileLock:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutsideError(
            f"cannot make the folder: {error.strerror}", where=str(path.parent)
        ) from None
    return FileLock(path)


def _acquire(
    lock: FileLock, path: Path, wait_s: float, on_wait: Callable[[str], None] | None
) -> None:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if on_wait is not None and wait_s > 0:
            on_wait(f"waiting for {owner(path)}")
    else:
        return
    try:
        lock.acquire(timeout=wait_s)
    except Timeout:
        message = f"{owner(path)} is at work on this deployment"
        raise LockHeld(message, where=str(path), fix="wait until it has ended") from None


def _write_owner(path: Path) -> None:
    command = " ".join(["fleet", *sys.argv[1:3]])
    _owner_file(path).write_text(json.dumps({"pid": os.getpid(), "command": command}))


def _owner_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.owner")
