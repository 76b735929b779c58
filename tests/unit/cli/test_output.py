"""A table on a narrow terminal takes more lines, and leaves nothing out."""

from __future__ import annotations

import io

from rich.console import Console

from fleet.cli.output import table


def test_a_narrow_terminal_loses_no_letter() -> None:
    out = io.StringIO()
    row = ("demo", "server", "local", "http://127.0.0.1:8080")

    Console(file=out, width=24).print(table(("deployment", "server", "host", "url"), [row]))

    letters = out.getvalue().replace("\n", "").replace(" ", "")
    assert "…" not in letters
    assert all(letters.count(letter) for letter in "".join(row))
    assert len(letters) == len("deploymentserverhosturl" + "".join(row))
