"""`fleet diagnose`."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.readable_errors import write_out
from fleet.diagnose.compare_runs import Comparison, compare_runs
from fleet.diagnose.diagnosis import Diagnosis, diagnose_log
from fleet.diagnose.diagnosis_json import comparison_json, diagnosis_json
from fleet.diagnose.diagnosis_text import comparison_text, diagnosis_text
from fleet.diagnose.fix_overlay import fix_overlay
from fleet.effects.chunks import file_chunks
from fleet.effects.files import write_atomically
from fleet.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

app = typer.Typer()
NOT_AS_WANTED = 1
NAMED = "name:"
# what reads a running deployment needs the whole of fleet; a log needs none of it
_RUNNING = "fleet.cli.diagnose_running"
_PAGE = "fleet.report.diagnosis_page"


@app.command()
def diagnose(
    target: Annotated[str, typer.Argument(metavar="LOG|NAME", help="A log, or a deployment")],
    against: Annotated[
        str | None, typer.Option("--against", metavar="LOG|NAME", help="Compare with another")
    ] = None,
    fix_out: Annotated[
        str | None, typer.Option("--fix-out", metavar="FILE", help="Write the fixes as settings")
    ] = None,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write a page to look at")
    ] = None,
    window: Annotated[
        str, typer.Option("--window", metavar="5m", help="How long to watch a deployment")
    ] = "0s",
    hardware: Annotated[
        str | None, typer.Option("--hardware", metavar="NAME", help="Whose log it is")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="The model, for the limit")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer with one JSON document")] = False,
) -> None:
    """Read a log, or a running deployment, and say what holds the server back."""
    found = _diagnosed(target, window, (hardware, model))
    if fix_out is not None:
        write_atomically(Path(fix_out), fix_overlay(found.findings, target))
    if html is not None:
        page = importlib.import_module(_PAGE).diagnosis_page
        write_atomically(Path(html), page(found, title=target))
    if against is not None:
        other = _diagnosed(against, window, (None, None))
        _leave_compared(found, compare_runs(found, other), as_json)
    _print(diagnosis_json(found) if as_json else diagnosis_text(found))
    raise typer.Exit(NOT_AS_WANTED if found.has_error else 0)


def _diagnosed(target: str, window: str, limits: tuple[str | None, str | None]) -> Diagnosis:
    """Diagnose a file, or the deployment of that name; an existing path wins."""
    if target == "-" or (not target.startswith(NAMED) and Path(target).exists()):
        found = diagnose_log(file_chunks(target), target)
    elif not target.startswith(NAMED) and _looks_like_a_file(target):
        raise UserError("no such file", where=target, fix="check the path")
    else:
        running = importlib.import_module(_RUNNING).diagnose_running
        found = running(target.removeprefix(NAMED), window)
    if any(limits):
        found = importlib.import_module(_RUNNING).with_limit(found, *limits)
    return found


def _looks_like_a_file(target: str) -> bool:
    return "/" in target or target.endswith((".log", ".txt", ".gz", ".json", ".jsonl"))


def _leave_compared(found: Diagnosis, comparison: Comparison, as_json: bool) -> None:
    document = diagnosis_json(found) | comparison_json(comparison)
    _print(document if as_json else comparison_text(comparison))
    raise typer.Exit(0 if comparison.comparable else NOT_AS_WANTED)


def _print(answer: Mapping[str, Any] | str) -> None:
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    write_out(text + "\n")
