"""The kinds of failure that fleet reports, each with its exit code.

A `FleetError` says what went wrong, where, and how to mend it. Anything else that
escapes is a bug of ours and is reported by `cli/readable_errors.py` with exit code 70.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable


class FleetError(Exception):
    """Root of all expected failures; `where` is a file:line, host, command or setting."""

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, where: str | None = None, fix: str | None = None) -> None:
        """Keep the three parts apart so that text and JSON can be made from them."""
        super().__init__(message)
        self.message = message
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        """One line: `where: message`."""
        return f"{self.where}: {self.message}" if self.where else self.message

    def as_json(self) -> dict[str, str | int | None]:
        """Return the object that `--json` prints under the key `error`."""
        return {
            "kind": self.kind,
            "message": self.message,
            "where": self.where,
            "fix": self.fix,
            "exit_code": self.exit_code,
        }


class NotAsWanted(FleetError):
    """The question was answered, and the answer is no (exit 1)."""

    kind = "not-as-wanted"
    exit_code = 1


class UserError(FleetError):
    """What the user gave is wrong: profile, name, setting, log, GGUF (exit 3)."""

    kind = "user"
    exit_code = 3


class CannotExpress(UserError):
    """The engine build has no way to say what the profile asks for (exit 3)."""

    kind = "cannot-express"


class DoesNotFit(FleetError):
    """The launch needs more memory than a device or the host has (exit 4)."""

    kind = "does-not-fit"
    exit_code = 4


class OutsideError(FleetError):
    """Something outside fleet said no: podman, SSH, engine, disk, port (exit 5)."""

    kind = "outside"
    exit_code = 5


class LockHeld(OutsideError):
    """Another process holds the lock; `where` names the lock file, the message its owner."""

    kind = "lock-held"


class HostUnreachable(OutsideError):
    """A host did not answer over SSH; `where` is the host's name."""

    kind = "host-unreachable"


class EngineFailed(OutsideError):
    """The engine did not start or died; the message names the classified cause."""

    kind = "engine-failed"


def near_name(name: str, known: Iterable[str]) -> str | None:
    """Return the name of `known` that `name` is most like, None when none is."""
    matches = get_close_matches(name.lower(), list(known), n=1)
    return matches[0] if matches else None


def near_hint(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return the question whether the near name was meant, or `otherwise`."""
    near = near_name(name, known)
    return f"did you mean `{near}`?" if near else otherwise
