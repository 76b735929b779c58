"""`fleet tune`: search for the best settings, on a deployment or on any program."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli.default_command import DefaultCommand
from fleet.cli.options import Json
from fleet.cli.output import console, print_json
from fleet.cli.progress_line import progress_line
from fleet.effects.files import read_text
from fleet.effects.spoken_process import spoken_process
from fleet.errors import UserError
from fleet.tune.measure_external import parse_command, tune_external
from fleet.tune.search_space import parse_space

app = typer.Typer(cls=DefaultCommand, help="Measure and keep the best settings")


@app.callback()
def tune() -> None:
    """Search the best settings of a deployment, or of anything that can be measured."""


@app.command()
def external(
    space: Annotated[Path, typer.Option(metavar="SPACE.json", help="Parameters and default")],
    measure: Annotated[str, typer.Option(metavar="COMMAND", help="Answers JSON lines")],
    budget_seconds: Annotated[float | None, typer.Option(min=0, help="Of measuring")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Same seed and replies, same study")] = 0,
    as_json: Json = False,
) -> None:
    """Search the best settings of anything that answers JSON lines."""
    made = parse_space(_read_json(space), where=str(space))
    with progress_line() as tell, spoken_process(parse_command(measure)) as program:
        result = tune_external(
            made, program, budget_s=budget_seconds, seed=seed, elapsed=time.monotonic, tell=tell
        )
    if as_json:
        print_json(result.as_json())
        return
    console.print(f"chosen: {json.dumps(result.chosen)}", markup=False)
    console.print(f"gain over the default: {result.claimed_gain:+.1%} ({result.verdict.why})")
    console.print(f"{result.evaluations} runs, {result.seconds:.1f} s of measuring")


def _read_json(path: Path) -> object:
    try:
        return json.loads(read_text(path))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except ValueError as error:
        raise UserError(f"is no JSON: {error}", where=str(path)) from None
