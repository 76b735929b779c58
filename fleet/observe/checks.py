"""One question with its answer: what `check` and `doctor` print; pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """`message` says what was found, `fix` what mends it when `ok` is False.

    `command` is set where the mending is a command that may be run as it stands.
    """

    name: str
    ok: bool
    message: str
    fix: str | None = None
    host: str | None = None
    command: tuple[str, ...] = ()
