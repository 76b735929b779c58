"""A program that is started once and spoken to in lines on its stdin and stdout."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from fleet.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PATIENCE_S = 5.0


class SpokenProcess:
    """One line in, one line out; stderr is the user's own."""

    def __init__(self, process: subprocess.Popen[str], where: str) -> None:
        """Take over a process with open pipes; `where` names it in errors."""
        self._process = process
        self._where = where

    def say(self, line: str) -> None:
        """Send one line. Raises `OutsideError` when the program has ended."""
        assert self._process.stdin is not None  # noqa: S101 - opened with a pipe
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None

    def hear(self) -> str:
        """Return the next line. Raises `OutsideError` at the end of the output."""
        assert self._process.stdout is not None  # noqa: S101 - opened with a pipe
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        return line

    def _ended(self) -> OutsideError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE_S)
        code = self._process.poll()
        how = "closed its output" if code is None else f"ended with code {code}"
        return OutsideError(f"the program {how} before it was told to end", where=self._where)


@contextmanager
def spoken_process(argv: Sequence[str]) -> Iterator[SpokenProcess]:
    """Start `argv` without a shell and end it on leaving, by force after some seconds.

    Raises `OutsideError` when it cannot be started.
    """
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
            errors="replace",
        )  # fmt: skip
    except OSError as error:
        raise OutsideError(f"cannot be started: {error.strerror}", where=argv[0]) from None
    try:
        yield SpokenProcess(process, argv[0])
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Close its stdin, wait, then ask it to end, then make it."""
    for act in (_close_stdin, subprocess.Popen.terminate, subprocess.Popen.kill):
        act(process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
            break
    if process.stdout is not None:
        process.stdout.close()


def _close_stdin(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
