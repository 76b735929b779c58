"""`fleet list`, `validate`, `schema` and `init`: profiles as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.load import absolute_model, load_library
from fleet.cli.options import Json, Profiles, kind_names, profile_names
from fleet.cli.output import console, note, print_json, print_table
from fleet.cli.validate_files import validate_files
from fleet.effects.files import write_atomically
from fleet.effects.folders import config_folder
from fleet.errors import UserError, near_hint
from fleet.profiles.json_schema import json_schema
from fleet.profiles.kinds import KINDS, Kind
from fleet.profiles.model_file import is_model
from fleet.profiles.parse_profile import EXAMPLE
from fleet.profiles.write_deployment import new_deployment

if TYPE_CHECKING:
    from fleet.cli.validate_files import CheckedFile

app = typer.Typer()

INVALID = 3


@app.command("list")
def list_profiles(
    kind: Annotated[
        str | None, typer.Argument(help="Only this kind", autocompletion=kind_names)
    ] = None,
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """List profiles and where each comes from."""
    wanted = None if kind is None else _kind(kind)
    entries = load_library(profiles or ()).entries(wanted)
    if as_json:
        keys = ("kind", "name", "file", "layer")
        print_json({"profiles": [{key: getattr(entry, key) for key in keys} for entry in entries]})
        return
    rows = ((entry.kind, entry.name, entry.layer, entry.file) for entry in entries)
    print_table(("kind", "name", "layer", "file"), rows)


@app.command()
def validate(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="Profile files; none means all")
    ] = None,
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """Check profile files, all errors at once."""
    checked = validate_files(files or (), profiles or ())
    if as_json:
        print_json({"files": [each.as_json() for each in checked]})
    else:
        _print_checked(checked)
    if any(each.problems for each in checked):
        raise typer.Exit(INVALID)


@app.command()
def schema(
    kind: Annotated[str, typer.Argument(help="A kind of profile", autocompletion=kind_names)],
    as_json: Json = False,
) -> None:
    """Print the JSON schema of a profile kind, for editors."""
    document = json_schema(kind if kind == EXAMPLE else _kind(kind))
    print_json(document, indent=None if as_json else 2)


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="Name of the new deployment")],
    model: Annotated[
        str,
        typer.Option(
            help="A model profile, a GGUF file or `hf:ORG/REPO:QUANT`",
            autocompletion=profile_names("model"),
        ),
    ],
    hardware: Annotated[
        str,
        typer.Option("--on", help="A hardware profile", autocompletion=profile_names("hardware")),
    ],
    to: Annotated[Path | None, typer.Option(help="File to write")] = None,
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """Write a deployment file to go on from."""
    target = to or config_folder() / "profiles" / f"{name}.yaml"
    library = load_library(profiles or ())
    written = absolute_model(model) if is_model(model) else model
    known = library.entries("deployment")
    before = next((each for each in known if each.name == name), None)
    text = new_deployment(library, name=name, model=written, hardware=hardware)
    if target.exists():
        fix = "edit it, or write another with `--to FILE`"
        raise UserError("exists already", where=str(target), fix=fix)
    write_atomically(target, text)
    if as_json:
        print_json({"deployment": name, "file": str(target)})
    else:
        console.print(f"wrote {target}", markup=False)
    if before is not None:
        note(f"it hides the deployment `{name}` of {before.file}")


def _kind(word: str) -> Kind:
    for kind in KINDS:
        if word in (kind, f"{kind}s"):
            return kind
    fix = near_hint(word, KINDS, f"kinds: {', '.join(KINDS)}")
    raise UserError(f"no kind of profile is called `{word}`", fix=fix)


def _print_checked(checked: tuple[CheckedFile, ...]) -> None:
    for each in checked:
        for problem in each.problems:
            hint = f" ({problem.hint})" if problem.hint else ""
            console.print(f"{each.file}:{problem.line}: {problem}{hint}", markup=False)
    bad = sum(1 for each in checked if each.problems)
    console.print(f"{len(checked)} files, {bad} with errors", markup=False)
