"""`fleet key`: the one command that prints an API key."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.load import load_deployment
from fleet.cli.options import Json, Name
from fleet.cli.output import note, print_json
from fleet.deploy.api_keys import read_key, rotate_key
from fleet.deploy.generations import read_generations, read_record
from fleet.deploy.rim import Rim
from fleet.errors import UserError

if TYPE_CHECKING:
    from fleet.effects.folders import Folders

app = typer.Typer()


@app.command()
def key(
    name: Name,
    rotate: Annotated[bool, typer.Option("--rotate", help="Make a new key")] = False,
    as_json: Json = False,
) -> None:
    """Print the API key of NAME, or make a new one."""
    folders = Rim().folders
    serves_with = _serves_with_key(name, folders)
    found = rotate_key(folders, name) if rotate else read_key(folders, name)
    if found is None:
        fix = "write `api_key: true` into the deployment and `fleet up`, or `--rotate` to make one"
        raise UserError("there is no API key", where=name, fix=fix)
    if rotate:
        note(
            f"a running server keeps the old key until `fleet restart {name}`"
            if serves_with
            else f"no server asks for it yet: write `api_key: true` and `fleet up {name}`"
        )
    if as_json:
        print_json({"deployment": name, "key": found})
    else:
        sys.stdout.write(f"{found}\n")


def _serves_with_key(name: str, folders: Folders) -> bool:
    """Whether what was brought up asks for a key. Raises `UserError` for an unknown name."""
    record = read_record(folders, name)
    if record is None:
        load_deployment(name)  # an unknown name is the user's mistake
        return False
    made = next((g for g in read_generations(folders, name) if g.number == record.generation), None)
    return made is not None and any(launch.secrets for launch in made.launches)
