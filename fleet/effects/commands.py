"""Run a program, here or (with another implementation) on a host over SSH."""

from __future__ import annotations

import logging
import shlex
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fleet.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Sequence

_log = logging.getLogger(__name__)

NOT_FOUND = 127
NOT_ALLOWED = 126
TIMED_OUT = 124
LAST_LINES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandResult:
    """What a command left behind; codes 124, 126 and 127 mean what a shell means by them."""

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """Whether the command ended with 0."""
        return self.code == 0

    def checked(self, *, fix: str | None = None) -> CommandResult:
        """Return itself, or raise `OutsideError` with the command and its last lines."""
        if self.ok:
            return self
        said = (self.stderr or self.stdout).strip().splitlines()[-LAST_LINES:]
        message = f"`{' '.join(self.argv)}` ended with {self.code}: " + "\n".join(said)
        raise OutsideError(message, fix=fix)


class Commands(Protocol):
    """Where commands run."""

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, timeout_s: float | None = None
    ) -> CommandResult:
        """Run `argv` to its end and return what it said; never raises for its exit code."""
        ...


class LocalCommands:
    """Commands on this machine."""

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, timeout_s: float | None = None
    ) -> CommandResult:
        """Run `argv` here; a missing program is code 127, a time-out 124."""
        words = tuple(argv)
        _log.info("run %s", shlex.join(words))  # no secret is ever in an argv
        try:
            done = subprocess.run(
                words,
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except FileNotFoundError:
            return _failed(words, NOT_FOUND, f"{words[0]}: not found")
        except PermissionError:
            return _failed(words, NOT_ALLOWED, f"{words[0]}: permission denied")
        except subprocess.TimeoutExpired:
            return _failed(words, TIMED_OUT, f"{words[0]}: no answer within {timeout_s} s")
        return CommandResult(
            argv=words, code=done.returncode, stdout=done.stdout, stderr=done.stderr
        )


def _failed(argv: tuple[str, ...], code: int, stderr: str) -> CommandResult:
    return CommandResult(argv=argv, code=code, stdout="", stderr=stderr)
