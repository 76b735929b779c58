"""`fleet status`, `logs` and `history`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.load import load_deployment, load_library
from fleet.cli.options import Json, Name, profile_names
from fleet.cli.output import note, print_json, print_table
from fleet.cli.server_rows import server_json
from fleet.deploy.generations import read_generations, read_record
from fleet.deploy.look import Seen, look, names_seen, trials_left, unreadable
from fleet.deploy.prepare import Prepared, prepare
from fleet.deploy.read_logs import read_logs
from fleet.deploy.rim import Rim
from fleet.deploy.trial_leftovers import MARK
from fleet.errors import FleetError, OutsideError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fleet.observe.observation import RunningServer

app = typer.Typer()

NOT_AS_WANTED = 1


@app.command()
def status(
    name: Annotated[
        str | None, typer.Argument(help="A deployment", autocompletion=profile_names("deployment"))
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what runs, and whether it is as wanted; exit code 1 when it is not."""
    rim = Rim()
    names = (name,) if name else names_seen(rim)
    seen = [each for one in names for each in _seen(one, rim, named=name is not None)]
    if as_json:
        print_json({"servers": [seen_json(each) for each in seen]})
    else:
        _print(seen)
    raise typer.Exit(0 if all(each.as_wanted for each in seen) else NOT_AS_WANTED)


@app.command()
def logs(
    name: Name,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the server ends")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the engine's log since the last start; of several servers each line says whose."""
    if follow and as_json:
        raise typer.BadParameter("a log that goes on is no one document: leave out `--follow`")
    servers, lines = read_logs(name, Rim(), follow=follow)
    if as_json:
        print_json(_logs_json(name, servers, lines))
        return
    for server, text in lines:
        whose = f"{server.host}/{server.server}: " if len(servers) > 1 else ""
        sys.stdout.write(f"{whose}{text}\n")
        if follow:
            sys.stdout.flush()


@app.command()
def history(name: Name, as_json: Json = False) -> None:
    """List the generations of NAME that are kept, the newest last."""
    rim = Rim()
    record = read_record(rim.folders, name)
    current = record.generation if record and record.wanted == "up" else None
    kept = [each for each in read_generations(rim.folders, name) if each.ready]
    if not kept and record is None:
        load_deployment(name)  # an unknown name is the user's mistake, a new one has no history
    rows = [
        {
            "generation": each.number,
            "digest": each.digest,
            "at": each.at,
            "current": each.number == current,
        }
        for each in kept
    ]
    if as_json:
        print_json({"generations": rows})
    else:
        columns = ("generation>", "digest", "at", "current")
        print_table(
            columns,
            [
                (made.number, made.digest, _to_the_second(made.at), "*" if row["current"] else "")
                for made, row in zip(kept, rows, strict=True)
            ],
        )


def _to_the_second(at: str) -> str:
    """Return an ISO time in UTC as people read it."""
    return f"{at[:19].replace('T', ' ')} UTC"


def _seen(name: str, rim: Rim, *, named: bool) -> Sequence[Seen]:
    """Return the servers of `name`; of several, what is damaged does not hide the others."""
    try:
        left = trials_left(name, rim)
        profile = (named and not left) or read_record(rim.folders, name) is not None
        prepared = wanted_now(name, rim) if profile else None
        return (*look(name, rim, prepared=prepared), *left)
    except OutsideError as error:
        if named:
            raise
        return (unreadable(name, error),)


def wanted_now(name: str, rim: Rim) -> Prepared | None:
    """Return what the profile says now, None when it cannot be told (said on stderr).

    Raises `UserError` for a name that is neither recorded nor a deployment.
    """
    record = read_record(rim.folders, name)
    if record is None:
        load_deployment(name, library=load_library())
        return None
    if record.wanted == "down" or record.origin is None:
        return None
    origin = record.origin
    try:
        deployment = load_deployment(
            origin.name, profiles=origin.profiles, sets=origin.sets, runtime=record.runtime
        )
        return prepare(deployment, runtime=record.runtime, rim=rim, progress=note, here_only=True)
    except FleetError as error:
        note(f"{name}: its profile does not compile now: {error}")
        return None


def _logs_json(
    name: str, servers: Sequence[RunningServer], lines: Iterable[tuple[RunningServer, str]]
) -> dict[str, object]:
    """Return each server's lines, and the first server's by themselves."""
    told: dict[tuple[str, str], list[str]] = {(each.host, each.server): [] for each in servers}
    for server, text in lines:
        told[server.host, server.server].append(text)
    rows = [{"server": server, "host": host, "lines": one} for (host, server), one in told.items()]
    return {"deployment": name, "server": rows[0]["server"], "lines": rows[0]["lines"],
            "servers": rows}  # fmt: skip


def seen_json(seen: Seen) -> dict[str, object]:
    """Return one server in the contract's shape."""
    return server_json(seen.server, health=seen.health, tuned=seen.tuned, drift=seen.drift)


def _print(seen: Sequence[Seen]) -> None:
    columns = ("deployment", "server", "host", "state", "health", "generation>", "url", "tuned")
    rows = []
    for each in seen:
        server = each.server
        rows.append((
            server.deployment, server.server, server.host, server.state, each.health,
            server.generation, server.url, each.tuned,
        ))  # fmt: skip
    print_table(columns, rows)
    for each in seen:
        for one in each.drift:
            note(f"{each.server.deployment}: {one.setting} is {one.running}, wanted {one.wanted}")
        if each.server.damage:
            note(f"{each.server.deployment}: {each.server.damage}")
        elif each.server.server == MARK:
            name = each.server.deployment
            note(f"{name}: left by a killed `tune` or `bench`; `fleet down {name}` ends it")
        elif each.server.state == "failed":
            note(f"{each.server.deployment}: ended; its log: {each.server.log_path}")
