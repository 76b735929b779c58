"""`fleet report`: a page of a results folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleet.cli.options import Json
from fleet.cli.output import console, print_json
from fleet.errors import UserError

app = typer.Typer()


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Of a bench, or of tune studies")],
    as_json: Json = False,
) -> None:
    """Write DIR/report.html, .md, .csv and DIR/plots/, and print the page's path."""
    if not folder.is_dir():
        fix = "name the `--out` folder of a bench, or that of a study"
        raise UserError("no such folder", where=str(folder), fix=fix)
    from fleet.report.write_report import write_report  # noqa: PLC0415 - it draws: an optional extra

    written = write_report(folder)
    if as_json:
        print_json({
            "html": str(written.html),
            "bytes": written.bytes,
            "seconds": round(written.seconds, 3),
            "files": [str(file) for file in written.files],
        })  # fmt: skip
    else:
        console.print(str(written.html), markup=False, soft_wrap=True)
