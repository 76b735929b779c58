"""`fleet doctor`: what a host is missing, and how to mend it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Annotated, cast

import typer

from fleet.cli.ask import confirmed
from fleet.cli.check_rows import answer_checks
from fleet.cli.options import Json, Yes
from fleet.cli.output import note
from fleet.deploy.doctor import examine, mend
from fleet.deploy.rim import Rim

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fleet.observe.checks import Check

app = typer.Typer()

# other hosts are looked at over SSH, which this machine's own check does without
_OTHER_HOSTS = "fleet.deploy.doctor_hosts"


@app.command()
def doctor(
    hosts: Annotated[
        list[str] | None, typer.Argument(metavar="[HOST]...", help="Hosts, else this machine")
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Say what a host is missing, and the command that mends it; exit code 1 if anything."""
    checks = _examine_hosts(hosts, fix=fix, yes=yes) if hosts else _examine_here(fix=fix, yes=yes)
    answer_checks(checks, as_json=as_json, with_host=True)


def _examine_here(*, fix: bool, yes: bool) -> tuple[Check, ...]:
    rim = Rim()
    checks = examine(rim)
    words = [check.command for check in checks if check.command and not check.ok]
    if not fix or not words:
        return checks
    for command in words:
        note(f"$ {' '.join(command)}")
    if not confirmed("run these commands?", yes=yes):
        return checks
    mend(words, rim)
    return examine(rim)


def _examine_hosts(hosts: Sequence[str], *, fix: bool, yes: bool) -> tuple[Check, ...]:
    look = importlib.import_module(_OTHER_HOSTS).doctor_hosts
    call = cast("Callable[..., tuple[Check, ...]]", look)
    return call(hosts, rim=Rim(), fix=fix, confirm=lambda question: confirmed(question, yes=yes))
