"""`fleet down`, `restart` and `rollback`: found by record, not by flag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.ask import confirmed
from fleet.cli.load import load_deployment
from fleet.cli.options import Json, Name, Yes
from fleet.cli.output import console, note, print_json
from fleet.cli.progress_line import progress_line
from fleet.cli.server_rows import server_json
from fleet.deploy.bring_up import start_generation, take_down
from fleet.deploy.generations import current_generation, earlier_generation, generation
from fleet.deploy.look import look
from fleet.deploy.prime_running import prime_running
from fleet.deploy.rim import Rim
from fleet.errors import FleetError, NotAsWanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.deploy.bring_up import Progress
    from fleet.observe.observation import RunningServer

app = typer.Typer()


@app.command()
def down(name: Name, yes: Yes = False, as_json: Json = False) -> None:
    """Stop and remove the servers of NAME; its generations, logs and model stay."""
    rim = Rim()
    _agree(name, rim, yes=yes)
    with progress_line() as progress:
        ended = take_down(name, rim=rim, progress=progress)
    if as_json:
        print_json({"deployment": name, "stopped": [server.server for server in ended]})
    else:
        console.print(f"{name}: stopped {len(ended)} server(s)", markup=False)


@app.command()
def restart(name: Name, yes: Yes = False, as_json: Json = False) -> None:
    """Stop NAME and start the same generation again."""
    rim = Rim()
    _agree(name, rim, yes=yes)
    _start(name, current_generation(rim.folders, name).number, rim, as_json=as_json)


@app.command()
def rollback(
    name: Name,
    to: Annotated[int | None, typer.Option("--to", help="The generation to start again")] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Start an earlier generation of NAME again, by default the one before."""
    rim = Rim()
    number = to if to is not None else earlier_generation(rim.folders, name).number
    made = generation(rim.folders, name, number)
    _agree(name, rim, yes=yes)
    _start(name, made.number, rim, as_json=as_json)


def _start(name: str, number: int, rim: Rim, *, as_json: bool) -> None:
    made = generation(rim.folders, name, number)
    with progress_line() as progress:
        start_generation(name, made, rim=rim, progress=progress)
        seen = look(name, rim)
        _prime(name, [each.server for each in seen], rim, progress)
    if as_json:
        servers = [server_json(e.server, health=e.health, tuned=e.tuned) for e in seen]
        print_json({"deployment": name, "generation": number, "servers": servers})
    else:
        urls = ", ".join(each.server.url or each.server.server for each in seen)
        console.print(f"{name}: generation {number} serves at {urls}", markup=False)


def _prime(name: str, servers: Sequence[RunningServer], rim: Rim, progress: Progress) -> None:
    """Prime what answers anew; a server that serves without its prefix is only slower."""
    try:
        deployment = load_deployment(name)
        if deployment.shared_prefix is None:
            return
        for server in servers:
            if server.url:
                progress("priming the shared prefix")
                report = prime_running(deployment, server, rim, look_before=False)
                reused = f"{report.reused} of {report.prefix_tokens} tokens reused"
                note(f"{report.outcome}: {reused}; {report.why}")
    except FleetError as error:
        note(f"not primed: {error}")


def _agree(name: str, rim: Rim, *, yes: bool) -> None:
    """Ask before a serving server is stopped. Raises `NotAsWanted`."""
    serving = [each for each in look(name, rim) if each.health in {"ready", "loading"}]
    if serving and not confirmed(f"this stops {name}, which serves; go on?", yes=yes):
        raise NotAsWanted(
            "this would stop a serving server", where=name, fix="say `--yes` to do it"
        )
