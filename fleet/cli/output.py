"""Where commands print: answers on stdout, notes and progress on stderr."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from fleet.cli.readable_errors import drop_stdout, write_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import JustifyMethod

# a pipe has no width: tables are then as wide as their longest lines need
_WIDE = 200


class _Answer(Console):
    """A console that goes on when its reader has left, so that the exit code is the verdict's."""

    def on_broken_pipe(self) -> None:
        """Print no more."""
        drop_stdout()


console = _Answer(highlight=False, width=None if sys.stdout.isatty() else _WIDE)
notes = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else _WIDE)


def print_json(document: Any, *, indent: int | None = None) -> None:  # noqa: ANN401 - any JSON
    """Print one JSON document on stdout."""
    text = json.dumps(document, ensure_ascii=False, default=_plain, indent=indent)
    write_out(text + "\n")


def note(text: str) -> None:
    """Print a line on stderr that is no part of the answer."""
    notes.print(text, markup=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table without frames; columns that end in `>` are aligned to the right."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        justify: JustifyMethod = "right" if column.endswith(">") else "left"
        made.add_column(column.rstrip(">"), justify=justify, overflow="fold")
    for row in rows:
        made.add_row(*("" if cell is None else str(cell) for cell in row))
    return made


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their columns on stdout, `none` when there are no rows.

    Without a name for any column no head is printed.
    """
    made = table(columns, rows)
    made.show_header = any(columns)
    if not made.row_count:
        console.print("none")
        return
    with console.capture() as captured:
        console.print(made, markup=False)
    write_out("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


def progress() -> Progress:
    """Return a progress display on stderr; silent without a terminal."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=notes,
        transient=True,
        disable=not sys.stderr.isatty() or os.environ.get("TERM") == "dumb",
    )


def _plain(value: object) -> str | int | float | list[object]:
    """Return JSON's form of what `json` does not know."""
    if isinstance(value, (frozenset, set)):
        return sorted(value, key=str)
    return str(value)
