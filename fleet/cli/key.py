"""`fleet key`: the one command that prints an API key."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fleet.cli.load import load_deployment
from fleet.cli.options import Json, Name
from fleet.cli.output import note, print_json
from fleet.deploy.api_keys import read_key, rotate_key
from fleet.deploy.generations import read_record
from fleet.deploy.rim import Rim
from fleet.errors import UserError

app = typer.Typer()


@app.command()
def key(
    name: Name,
    rotate: Annotated[bool, typer.Option("--rotate", help="Make a new key")] = False,
    as_json: Json = False,
) -> None:
    """Print the API key of NAME, or make a new one."""
    folders = Rim().folders
    if read_record(folders, name) is None:
        load_deployment(name)  # an unknown name is the user's mistake
    found = rotate_key(folders, name) if rotate else read_key(folders, name)
    if found is None:
        fix = "write `api_key: true` into the deployment and `fleet up`, or `--rotate` to make one"
        raise UserError("there is no API key", where=name, fix=fix)
    if rotate:
        note(f"a running server keeps the old key until `fleet restart {name}`")
    if as_json:
        print_json({"deployment": name, "key": found})
    else:
        sys.stdout.write(f"{found}\n")
