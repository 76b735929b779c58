"""One line on stderr that says what goes on, replaced by the next."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fleet.cli.output import note, progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.deploy.bring_up import Progress


@contextmanager
def progress_line() -> Iterator[Progress]:
    """Yield the function that replaces the line; without a terminal each step is told once."""
    if not sys.stderr.isatty():
        yield _steps_only()
        return
    with progress() as display:
        task = display.add_task("", total=None)
        yield lambda text: display.update(task, description=text)


def _steps_only() -> Progress:
    told: set[str] = set()

    def tell(text: str) -> None:
        # "loading main: 12 s" is told once, not every second
        step = text.split(":", maxsplit=1)[0]
        if step not in told:
            told.add(step)
            note(text)

    return tell
