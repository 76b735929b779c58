"""`fleet list`, `show`, `validate`, `schema` and `init`: profiles as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.load import load_deployment, load_library
from fleet.cli.options import Json, Name, Profiles, Sets, kind_names, profile_names
from fleet.cli.output import console, print_json, print_table
from fleet.cli.validate_files import validate_files
from fleet.effects.files import write_atomically
from fleet.effects.folders import config_folder
from fleet.errors import UserError
from fleet.profiles.json_schema import json_schema
from fleet.profiles.kinds import KINDS, Kind
from fleet.profiles.parse_profile import EXAMPLE
from fleet.profiles.problems import near_name
from fleet.profiles.write_deployment import new_deployment

if TYPE_CHECKING:
    from fleet.cli.validate_files import CheckedFile
    from fleet.profiles.kinds import Deployment

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
def show(
    name: Name,
    why: Annotated[bool, typer.Option("--why", help="With the layer and line of each")] = False,
    sets: Sets = None,
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """Show a deployment's resolved settings, and why they are so."""
    deployment = load_deployment(name, profiles=profiles or (), sets=sets or ())
    if as_json:
        print_json({"deployment": deployment.name, "settings": _settings_json(deployment)})
        return
    _print_deployment(deployment)
    _print_settings(deployment, why=why)


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
    text = new_deployment(load_library(profiles or ()), name=name, model=model, hardware=hardware)
    if target.exists():
        fix = "edit it, or write another with `--to FILE`"
        raise UserError("exists already", where=str(target), fix=fix)
    write_atomically(target, text)
    if as_json:
        print_json({"deployment": name, "file": str(target)})
    else:
        console.print(f"wrote {target}", markup=False)


def _kind(word: str) -> Kind:
    for kind in KINDS:
        if word in (kind, f"{kind}s"):
            return kind
    near = near_name(word, KINDS)
    fix = f"did you mean `{near}`?" if near else f"kinds: {', '.join(KINDS)}"
    raise UserError(f"no kind of profile is called `{word}`", fix=fix)


def _settings_json(deployment: Deployment) -> dict[str, dict[str, object]]:
    return {
        name: {
            "value": setting.value,
            "layer": setting.layer,
            "file": setting.place.file,
            "line": setting.place.line,
        }
        for name, setting in deployment.settings.items()
    }


def _print_deployment(deployment: Deployment) -> None:
    workload = deployment.workload.name if deployment.workload else None
    rows = [
        ("deployment", deployment.name, deployment.place),
        ("hardware", deployment.hardware.name, deployment.hardware.place),
        ("model", deployment.model.name, deployment.model.place),
        ("engine", deployment.engine.name, deployment.engine.place),
        ("workload", workload, deployment.workload.place if deployment.workload else None),
        ("hosts", ", ".join(host.name for host in deployment.hosts) or "this machine", None),
        *(
            ("tuned", f"{tuned.name} for {tuned.build} on host {tuned.fingerprint}", tuned.place)
            for tuned in deployment.tuned_candidates
        ),
    ]
    print_table(("", "", ""), (row for row in rows if row[1]))


def _print_settings(deployment: Deployment, *, why: bool) -> None:
    columns = ("setting", "value", "layer", "from") if why else ("setting", "value")
    rows = (
        (name, _shown(setting.value), setting.layer, setting.place)[: len(columns)]
        for name, setting in deployment.settings.items()
    )
    console.print()
    print_table(columns, rows)


def _shown(value: object) -> str:
    """Return a value as YAML writes it; an unset one is left to the engine."""
    if value is None:
        return "(left to the engine)"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _print_checked(checked: tuple[CheckedFile, ...]) -> None:
    for each in checked:
        for problem in each.problems:
            hint = f" ({problem.hint})" if problem.hint else ""
            console.print(f"{each.file}:{problem.line}: {problem}{hint}", markup=False)
    bad = sum(1 for each in checked if each.problems)
    console.print(f"{len(checked)} files, {bad} with errors", markup=False)
