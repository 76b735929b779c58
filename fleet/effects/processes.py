"""Processes of our own: start one that outlives us, know it again, end it."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SAME_START_S = 2.0  # the kernel's boot time, which start times count from, wobbles by a second


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessId:
    """A process that cannot be mistaken for another: numbers are reused, this is not.

    `started` is seconds since the epoch, `marker` a word of its command line.
    """

    pid: int
    started: float
    marker: str


_children: dict[int, subprocess.Popen[bytes]] = {}


@atexit.register
def _let_go() -> None:
    """Tell Python that these children are meant to outlive us, so that it does not warn."""
    for child in _children.values():
        if child.poll() is None:
            child.returncode = 0


def start_detached(
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str],
    keep_open: Sequence[int] = (),
) -> int:
    """Start `argv` in a session of its own, output appended to `log`; return its pid."""
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        child = subprocess.Popen(
            tuple(argv),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env={**os.environ, **env},
            start_new_session=True,
            pass_fds=tuple(keep_open),
        )
    finally:
        os.close(descriptor)
    _children[child.pid] = child
    return child.pid


def exit_code(pid: int) -> int | None:
    """Return the code of a child that has ended (128 + signal as shells say), else None."""
    child = _children.get(pid)
    code = child.poll() if child is not None else None
    return 128 - code if code is not None and code < 0 else code


def identity(pid: int, marker: str) -> ProcessId | None:
    """Return the identity of the live process `pid`, None when it is gone."""
    try:
        return ProcessId(pid=pid, started=psutil.Process(pid).create_time(), marker=marker)
    except psutil.Error:
        return None


def of_words(*words: str) -> ProcessId | None:
    """Return the live process whose command line has all `words`; the last is its marker."""
    for seen in psutil.process_iter():
        with suppress(psutil.Error):
            if set(words) <= set(seen.cmdline()) and seen.status() != psutil.STATUS_ZOMBIE:
                return ProcessId(pid=seen.pid, started=seen.create_time(), marker=words[-1])
    return None


def alive(process: ProcessId) -> bool:
    """Whether exactly this process still runs (a zombie does not)."""
    if exit_code(process.pid) is not None:
        return False
    try:
        seen = psutil.Process(process.pid)
        return (
            seen.status() != psutil.STATUS_ZOMBIE
            and abs(seen.create_time() - process.started) < SAME_START_S
            and process.marker in seen.cmdline()
        )
    except psutil.Error:
        return False


def end(process: ProcessId, *, grace_s: float) -> None:
    """Ask the process to end; after `grace_s` seconds make it. Strangers are left alone."""
    if not alive(process):
        return
    with suppress(psutil.Error):
        seen = psutil.Process(process.pid)
        seen.send_signal(signal.SIGTERM)
        if not _gone(seen, process, grace_s):
            seen.kill()
            _gone(seen, process, grace_s)


def memory_bytes(process: ProcessId) -> int:
    """Return the resident memory of the process, 0 when it is gone."""
    return resident_bytes(process.pid) if alive(process) else 0


def _gone(seen: psutil.Process, process: ProcessId, within_s: float) -> bool:
    child = _children.get(process.pid)
    try:
        if child is not None:
            child.wait(within_s)
        else:
            seen.wait(within_s)
    except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
        return not alive(process)
    return True


def exists(pid: int) -> bool:
    """Whether any process has the number `pid`."""
    return bool(psutil.pid_exists(pid))


def resident_bytes(pid: int) -> int:
    """Return the resident memory of any process, 0 when it cannot be seen."""
    try:
        return int(psutil.Process(pid).memory_info().rss) if pid > 0 else 0
    except psutil.Error:
        return 0
