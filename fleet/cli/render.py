"""`fleet render`: Containerfiles, units, inventories, presets and runbooks as files to read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.compile import BuildChoice, compile_for
from fleet.cli.load import load_contained
from fleet.cli.options import Json, Name, Profiles, Sets
from fleet.cli.output import print_json
from fleet.diagnose.finding_table import TABLE
from fleet.effects.files import write_atomically
from fleet.errors import UserError
from fleet.render.all_kinds import KINDS, render_kinds
from fleet.render.runbook import Remedy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.render.artefact import Artefact

app = typer.Typer()


@app.command()
def render(
    name: Name,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Where the files go")],
    only: Annotated[
        str | None, typer.Option(metavar="KIND,...", help=f"Of {', '.join(KINDS)}")
    ] = None,
    build: Annotated[str | None, typer.Option(metavar="N", help="Spell for this build")] = None,
    sets: Sets = None,
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """Write Containerfiles, units, inventories, runbooks."""
    deployment = load_contained(name, profiles=profiles or (), sets=sets or ())
    kinds = wanted_kinds(only)
    launches = compile_for(deployment, BuildChoice(build=build))
    remedies = [Remedy(code, row.message, row.fix) for code, row in TABLE.items()]
    artefacts = render_kinds(
        deployment, launches, kinds, strict=only is not None, remedies=remedies
    )
    written = _write(to, artefacts)
    if as_json:
        print_json({"deployment": deployment.name, "files": written})
    else:
        typer.echo("\n".join(written))


def wanted_kinds(only: str | None) -> tuple[str, ...]:
    """Return the kinds that are named, all without names. Raises `UserError`."""
    named = tuple(word.strip() for word in only.split(",")) if only else KINDS
    for kind in named:
        if kind not in KINDS:
            raise UserError(
                f"`{kind}` is nothing fleet renders",
                where="--only",
                fix=f"one of {', '.join(KINDS)}",
            )
    return named


def _write(folder: Path, artefacts: Sequence[Artefact]) -> list[str]:
    """Write each file; return the paths."""
    paths = [folder / artefact.path for artefact in artefacts]
    for path, artefact in zip(paths, artefacts, strict=True):
        write_atomically(path, artefact.text, mode=0o644)
    return [str(path) for path in paths]
