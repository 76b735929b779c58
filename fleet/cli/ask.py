"""Ask before a serving server is stopped: on a terminal, or by `--yes`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from fleet.cli.output import note

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.deploy.plan_changes import Change


def confirm_changes(*, yes: bool) -> Callable[[tuple[Change, ...]], bool]:
    """Return the question for `UpOptions.confirm`."""

    def ask(changes: tuple[Change, ...]) -> bool:
        if yes:
            return True
        for change in changes:
            note(f"{change.action} {change.server} on {change.host}: {change.why}")
        return confirmed("this stops a serving server; go on?")

    return ask


def confirmed(question: str, *, yes: bool = False) -> bool:
    """Whether the user agrees; without a terminal only `--yes` does."""
    return yes or (sys.stdin.isatty() and typer.confirm(question, err=True))
