"""`fleet show`: a deployment with its profiles, and where each setting comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.compile import BuildChoice, compile_for
from fleet.cli.load import load_deployment
from fleet.cli.options import Json, Name, Profiles, Sets
from fleet.cli.output import console, note, print_json, print_table
from fleet.compiler.compile_deployment import runtime_of
from fleet.deploy.prepare import prepare
from fleet.deploy.rim import Rim
from fleet.errors import FleetError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.profiles.kinds import Deployment

app = typer.Typer()


@app.command()
def show(
    name: Name,
    why: Annotated[bool, typer.Option("--why", help="With the layer and line of each")] = False,
    sets: Sets = None,
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """Show a deployment's resolved settings, and why they are so."""
    deployment = _tuned(load_deployment(name, profiles=profiles or (), sets=sets or ()))
    if as_json:
        print_json({"deployment": deployment.name, "settings": _settings_json(deployment)})
        return
    print_table(("", "", ""), _head(deployment))
    console.print()
    columns = ("setting", "value", "layer", "from") if why else ("setting", "value")
    rows = [*_written(deployment), *_completed(deployment)]
    print_table(columns, (row[: len(columns)] for row in sorted(rows)))


def _tuned(deployment: Deployment) -> Deployment:
    """Return the deployment with the tuned profile that holds on this machine, if one does."""
    if deployment.hosts or not deployment.tuned_candidates:
        return deployment
    runtime = runtime_of(deployment)
    try:
        found = prepare(
            deployment, runtime=runtime, rim=Rim(), progress=lambda _: None, here_only=True
        )
    except FleetError as error:
        note(f"whether a tuned profile holds here is not known: {error}")
        return deployment
    return replace(deployment, settings=found.deployment.settings, tuned=found.deployment.tuned)


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


def _head(deployment: Deployment) -> Iterator[tuple[object, ...]]:
    """Yield what was chosen, and the file that says it."""
    yield "deployment", deployment.name, deployment.place
    for kind in ("hardware", "model", "engine", "workload"):
        profile = getattr(deployment, kind)
        if profile is not None:
            yield kind, profile.name, profile.place
    yield "hosts", ", ".join(host.name for host in deployment.hosts) or "this machine", None
    for tuned in deployment.tuned_candidates:
        holds = "" if tuned == deployment.tuned else ", does not hold here"
        told = f"{tuned.name} for {tuned.build} on host {tuned.fingerprint}{holds}"
        yield "tuned", told, tuned.place


def _written(deployment: Deployment) -> Iterator[tuple[str, str, str, str]]:
    for name, setting in deployment.settings.items():
        yield name, _shown(setting.value), setting.layer, str(setting.place)


def _completed(deployment: Deployment) -> Iterator[tuple[str, str, str, str]]:
    """Yield what fleet adds for this engine, build and host where no layer says anything."""
    try:
        launches = compile_for(deployment, BuildChoice())
    except FleetError as error:
        note(f"does not compile: {error}" + (f" ({error.fix})" if error.fix else ""))
        return
    for name, value in launches[-1].settings:
        if name not in deployment.settings:
            yield name, _shown(value), "default", "fleet, for this engine and host"


def _shown(value: object) -> str:
    """Return a value as YAML writes it; an unset one is left to the engine."""
    if value is None:
        return "(left to the engine)"
    return str(value).lower() if isinstance(value, bool) else str(value)
