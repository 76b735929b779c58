"""`fleet check`: whether what runs is what was planned."""

from __future__ import annotations

import typer

from fleet.cli.check_rows import answer_checks
from fleet.cli.options import Json, Name
from fleet.cli.status import wanted_now
from fleet.deploy.check_server import check_deployment
from fleet.deploy.rim import Rim

app = typer.Typer()


@app.command()
def check(name: Name, as_json: Json = False) -> None:
    """Compare NAME as it runs with its plan; exit code 1 when something is not as wanted."""
    rim = Rim()
    prepared = wanted_now(name, rim)
    answer_checks(check_deployment(name, rim, prepared=prepared), as_json=as_json)
