"""Read two results folders of one suite and compare them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fleet.bench.compare import (
    compare_conversations,
    compare_loads,
    compare_raw,
    compare_windows,
)
from fleet.bench.load_suite import read_load
from fleet.bench.raw_suite import read_raw
from fleet.bench.watch_metrics import read_window
from fleet.errors import NotAsWanted, UserError

if TYPE_CHECKING:
    from fleet.bench.compare import Comparison
    from fleet.bench.results_folder import ResultsFolder


def compare_folders(
    before: ResultsFolder, after: ResultsFolder, *, allow_unequal: bool = False
) -> Comparison:
    """Compare two runs. Raises `NotAsWanted` where that would not be fair, `UserError`."""
    runs = _run(before), _run(after)
    suites = [run["suite"] for run in runs]
    if suites[0] != suites[1]:
        raise NotAsWanted(f"a {suites[0]} run and a {suites[1]} run have nothing in common")
    match suites[0]:
        case "window":
            return compare_windows(
                read_window(before), read_window(after), allow_unequal=allow_unequal
            )
        case "load":
            sides = [
                {**asdict(read_load(folder)), "users": run.get("users"), "rate": run.get("rate")}
                for folder, run in zip((before, after), runs, strict=True)
            ]
            return compare_loads(sides[0], sides[1], allow_unequal=allow_unequal)
        case "raw":
            return compare_raw(read_raw(before), read_raw(after))
        case _:
            return compare_conversations(
                before.turns(), after.turns(), runs=runs, allow_unequal=allow_unequal
            )


def _run(folder: ResultsFolder) -> dict[str, Any]:
    run = folder.read_run()
    if run is None:
        fix = "name the `--out` folder of a bench"
        raise UserError("there are no results here", where=str(folder.path), fix=fix)
    return run
