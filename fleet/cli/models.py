"""`fleet models list`, `pull`, `rm`, and `fleet prune`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.ask import confirmed
from fleet.cli.load import load_library
from fleet.cli.options import Json, Profiles, Yes
from fleet.cli.output import console, note, print_json, print_table
from fleet.cli.progress_line import progress_line
from fleet.deploy.model_files import ensure_model
from fleet.deploy.model_shelf import models as shelf
from fleet.deploy.model_shelf import prunable, removable_model, remove, unused_models
from fleet.deploy.rim import Rim
from fleet.errors import NotAsWanted
from fleet.profiles.kinds import ModelProfile
from fleet.profiles.model_file import is_model, model_of
from fleet.sizes import ByteSize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.deploy.model_shelf import ShelfItem


app = typer.Typer()
models = typer.Typer(no_args_is_help=True, help="List, fetch and remove models")
app.add_typer(models, name="models")

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="A model, or hf:ORG/REPO:QUANT")]


@models.command("list")
def list_models(as_json: Json = False) -> None:
    """List the models that fleet fetched, with sizes."""
    found = shelf(Rim())
    if as_json:
        print_json({"models": [_json(item) for item in found]})
    else:
        _print(found)


@models.command("pull")
def pull(name: ModelName, profiles: Profiles = None, as_json: Json = False) -> None:
    """Fetch MODEL, going on where an earlier fetch was cut, and check it."""
    rim = Rim()
    with progress_line() as progress:
        found = ensure_model(_profile(name, profiles or []), rim=rim, progress=progress)
    if as_json:
        files = [str(file) for file in found.files]
        print_json(
            {"model": name, "files": files, "bytes": int(found.size), "digest": found.digest}
        )
    else:
        console.print(f"{found.path} ({found.size})", markup=False)


@models.command("rm")
def rm(name: ModelName, yes: Yes = False, as_json: Json = False) -> None:
    """Remove a model that fleet fetched."""
    rim = Rim()
    gone = removable_model(name, rim)
    if not confirmed(f"remove the model {name}?", yes=yes):
        raise NotAsWanted("nothing was removed", where=name, fix="say `--yes` to do it")
    remove(gone, rim)
    if as_json:
        print_json({"removed": [_json(gone)]})
    else:
        console.print(f"removed {gone.name} ({gone.size})", markup=False)


@app.command()
def prune(
    with_models: Annotated[
        bool, typer.Option("--models/--keep-models", help="Also models that nothing up uses")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Remove what fleet made and nothing needs: old generations, partial files, images.

    Models are listed and stay, without `--models`: they would have to be fetched again.
    """
    rim = Rim()
    items = prunable(rim, with_models=with_models)
    kept = () if with_models else unused_models(rim)
    if not as_json:
        _print(items)
        _say_kept(kept)
    total = ByteSize(sum(item.size for item in items))
    if items and not confirmed(f"remove these, {total}?", yes=yes):
        raise NotAsWanted("nothing was removed", fix="say `--yes` to do it")
    for item in items:
        remove(item, rim)
    if as_json:
        rows = [_json(item) for item in kept]
        print_json({"removed": [_json(item) for item in items], "kept": rows})
    else:
        console.print(f"removed {len(items)} item(s), {total}", markup=False)


def _say_kept(models: Sequence[ShelfItem]) -> None:
    for each in models:
        note(f"kept: model {each.name} ({each.size}), which nothing that is up uses")
    if models:
        total = ByteSize(sum(each.size for each in models))
        note(f"`fleet prune --models` would remove these too ({total})")


def _profile(name: str, profiles: Sequence[str]) -> ModelProfile:
    library = load_library(profiles)
    if is_model(name) and not library.has("model", name):
        return model_of(name)
    return library.find(ModelProfile, name)


def _json(item: ShelfItem) -> dict[str, Any]:
    return {
        "kind": item.kind, "name": item.name, "bytes": int(item.size),
        "path": str(item.path) if item.path else None, "used_by": list(item.used_by),
    }  # fmt: skip


def _print(items: Sequence[ShelfItem]) -> None:
    rows = [(each.kind, each.name, each.size, ", ".join(each.used_by)) for each in items]
    print_table(("kind", "name", "size>", "used by"), rows)
