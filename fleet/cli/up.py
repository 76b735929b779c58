"""`fleet up` and `fleet plan`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.ask import confirm_changes
from fleet.cli.load import load_deployment, words_of
from fleet.cli.options import Json, Name, Profiles, Sets, Yes
from fleet.cli.output import console, note, print_json, print_table
from fleet.cli.progress_line import progress_line
from fleet.cli.server_rows import server_json
from fleet.cli.tuned_words import tuned_words
from fleet.deploy.bring_up import BroughtUp, UpOptions, bring_up
from fleet.deploy.generations import Origin
from fleet.deploy.rim import Rim
from fleet.effects.machine import LOCAL
from fleet.errors import UserError
from fleet.profiles.kinds import RuntimeName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.deploy.await_ready import Ready
    from fleet.deploy.plan_changes import Change

app = typer.Typer()

CHANGES = 1
FORKS = 10
Runtime = Annotated[
    str | None, typer.Option("--runtime", help="embedded, podman or ansible", metavar="RUNTIME")
]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--hosts", metavar="A,B", help="Only these hosts of the deployment"),
]
RUNTIMES: tuple[RuntimeName, ...] = ("embedded", "podman", "ansible")


@app.command()
def up(
    name: Name,
    runtime: Runtime = None,
    hosts: Hosts = None,
    forks: Annotated[int, typer.Option("--forks", min=1, help="Hosts worked on at once")] = FORKS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change")] = False,
    yes: Yes = False,
    profiles: Profiles = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Deploy NAME (or a GGUF file, or hf:ORG/REPO:QUANT), wait until it is ready, verify."""
    asked = _options(name, runtime, profiles, sets, hosts=hosts, forks=forks, dry_run=dry_run)
    done = _bring_up(replace(asked, confirm=confirm_changes(yes=yes)))
    if as_json:
        print_json(brought_up_json(done))
    else:
        _print_brought_up(done, dry_run=dry_run)


@app.command()
def plan(
    name: Name,
    runtime: Runtime = None,
    hosts: Hosts = None,
    profiles: Profiles = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Show what `up` would change; exit code 1 when it would change something."""
    done = _bring_up(
        _options(name, runtime, profiles, sets, hosts=hosts, forks=FORKS, dry_run=True)
    )
    if as_json:
        print_json({"changes": changes_json(done.changes)})
    else:
        print_changes(done.changes)
    raise typer.Exit(CHANGES if any(each.action != "keep" for each in done.changes) else 0)


def changes_json(changes: Sequence[Change]) -> list[dict[str, str]]:
    """Return the changes in the contract's shape."""
    return [
        {"host": each.host, "server": each.server, "action": each.action, "why": each.why}
        for each in changes
    ]


def brought_up_json(done: BroughtUp) -> dict[str, object]:
    """Return what `up` did in the contract's shape."""
    return {
        "deployment": done.deployment,
        "servers": [
            server_json(server, health="ready", tuned="matches" if done.tuned else None)
            for server in done.servers
        ],
        "changes": changes_json(done.changes),
        "seconds": round(done.seconds, 3),
    }


def print_changes(changes: Sequence[Change]) -> None:
    """Print the changes as a table."""
    rows = [(each.host, each.server, each.action, each.why) for each in changes]
    print_table(("host", "server", "action", "why"), rows)


def parse_runtime(word: str | None) -> RuntimeName | None:
    """Return the runtime that `word` names. Raises `UserError`."""
    if word is None:
        return None
    for known in RUNTIMES:
        if word == known:
            return known
    raise UserError(f"no runtime `{word}`", where="--runtime", fix=f"one of {', '.join(RUNTIMES)}")


def _options(
    name: str,
    runtime: str | None,
    profiles: Sequence[str] | None,
    sets: Sequence[str] | None,
    *,
    hosts: Sequence[str] | None,
    forks: int,
    dry_run: bool,
) -> UpOptions:
    return UpOptions(
        runtime=parse_runtime(runtime),
        dry_run=dry_run,
        hosts=tuple(filter(None, ",".join(hosts or ()).split(","))),
        forks=forks,
        origin=Origin(name=name, profiles=tuple(profiles or ()), sets=tuple(sets or ())),
    )


def _bring_up(options: UpOptions) -> BroughtUp:
    said = options.origin or Origin(name="")
    origin, library = words_of(said.name, profiles=said.profiles, sets=said.sets)
    deployment = load_deployment(
        origin.name, sets=origin.sets, runtime=options.runtime, library=library
    )
    options = replace(options, origin=origin)
    with progress_line() as progress:
        done = bring_up(deployment, rim=Rim(), options=options, progress=progress)
    for warning in done.warnings:
        note(f"warning: {warning}")
    return done


def _print_brought_up(done: BroughtUp, *, dry_run: bool) -> None:
    print_changes(done.changes)
    if dry_run:
        return
    for report in done.primed:
        reused = f"{report.reused} of {report.prefix_tokens} tokens reused"
        console.print(f"{report.outcome}: {reused}; {report.why}", markup=False)
    console.print(tuned_words(done.deployment, done.tuned, Rim()), markup=False)
    for ready in done.ready:
        console.print(f"{_of(ready.host)}{ready_words(ready)}", markup=False)
    for server in done.servers:
        if server.url:
            console.print(f"ready: {_of(server.host)}{server.url}", markup=False)


def _of(host: str) -> str:
    """Return the host's name before what is said of it; nothing for this machine."""
    return "" if host == LOCAL else f"{host}: "


def ready_words(ready: Ready) -> str:
    """Return the real context, and the speeds of the first request where one was sent."""
    words = f"context {ready.context} tokens" if ready.context else "context not told"
    request = ready.first_request
    if request is None or not request.prompt_ms or not request.predicted_ms:
        return words
    pp = 1000 * request.prompt_n / request.prompt_ms
    tg = 1000 * request.predicted_n / request.predicted_ms
    return f"{words}, first request: PP {pp:.1f} tok/s, TG {tg:.1f} tok/s"
