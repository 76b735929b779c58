"""An exhaustive grid on the demo model by hand, against `tune` in a quarter of its time.

`tests/benchmarks/run tune_grid [METRIC ...]`, about ten minutes for each of `tg` and `pp`:
every candidate is measured once in random order; then `fleet tune` has a quarter of that time;
then its choice runs 12 ABBA pairs against the best of the grid's leaders, which are measured
again to find out which of them was merely lucky. Bar: a ratio of 0.92 or better.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from fleet.cli.load import load_deployment
from fleet.deploy.prepare import prepare
from fleet.deploy.rim import Rim
from fleet.tune.candidate_space import Ground, candidate_space
from fleet.tune.measure_server import ServerMeasure
from fleet.tune.paired_ratio import Ratio, paired_ratio, robust_deviation
from fleet.tune.speculation_kinds import spelled_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.profiles.kinds import Deployment
    from fleet.tune.candidate_space import Metric
    from fleet.tune.search_space import SearchSpace, Settings

BAR = 0.92
LEADERS, ROUNDS, PAIRS = 4, 3, 12
CELLS = int(os.environ.get("FLEET_GRID_CELLS", "1000"))  # fewer to try it out
RUN_S = 1.0
DEPLOYMENT = {
    "kind": "deployment", "version": 1, "hardware": "auto", "model": "gemma3-270m",
    "engine": "embedded",
}  # fmt: skip
# where each starts, and what keeps the grid between 60 and 100 cells
STARTS: Mapping[Metric, Mapping[str, object]] = {
    "tg": {
        "settings": {"ctx_size": 2048, "threads": 1}, "pinned": {"cache_type_v": "f16"},
    },
    "pp": {
        "settings": {
            "ctx_size": 4096, "threads_batch": 1, "batch_size": 256, "ubatch_size": 64,
        },
        "pinned": {"cache_type_k": "f16", "cache_type_v": "f16"},
    },
}  # fmt: skip
TEXT = " ".join(
    f"Clock {n} strikes {n % 12} times and waits for {n * 7 % 60} minutes." for n in range(400)
)


def main(*words: str) -> None:
    """Print one block for each metric; exit 1 when a bar is missed."""
    held = [compare(metric) for metric in STARTS if metric in words or not words]
    sys.exit(0 if all(held) else 1)


def compare(metric: Metric) -> bool:
    """Run the grid, the tuner, and the pairs for one metric; whether the bar is held."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("CONFIG", "STATE", "CACHE"):
            os.environ[f"XDG_{name}_HOME"] = str(Path(folder) / name.lower())
        profiles = Path(folder) / "config/fleet/profiles"
        profiles.mkdir(parents=True)
        (profiles / "grid.yaml").write_text(
            json.dumps({**DEPLOYMENT, "name": "grid", **STARTS[metric]})
        )
        wanted = load_deployment("grid")
        space = space_of(wanted, metric)
        with measure(wanted, metric) as machine:
            began = time.monotonic()
            values = whole_grid(space, machine)
            took_s = time.monotonic() - began
        print(f"{metric}: {len(values)} configurations in {took_s:.0f} s", flush=True)
        tuned = tune(metric, took_s / 4)
        with measure(wanted, metric) as machine:
            leader = best_leader(values, space, machine)
            chosen = space.settings(chosen_cell(tuned, space))
            print(f"  grid's best of {LEADERS} leaders: {told(leader, space)}")
            print(
                f"  tuned in {tuned['spent_s']:.0f} s ({tuned['gain']:+.1%}): {told(chosen, space)}"
            )
            if chosen == leader:
                print("  the same configuration: ratio 1")
                return True
            ratio = pairs_of(chosen, leader, machine)
    low, high = ratio.interval
    shown = f"{math.exp(ratio.log_ratio):.3f} ({low:.3f} to {high:.3f})"
    print(f"  ratio over {PAIRS} ABBA pairs {shown}, bar {BAR}", flush=True)
    return math.exp(ratio.log_ratio) >= BAR


def space_of(wanted: Deployment, metric: Metric) -> SearchSpace:
    """Return the candidates that `tune` has."""
    prepared = prepare(
        wanted, runtime="embedded", rim=Rim(), progress=lambda _: None, use_tuned=False
    )
    ground = Ground(
        launch=prepared.launches[0], host=prepared.host, build=prepared.build,
        model=prepared.model.facts if prepared.model else None, workload=None,
        pinned=frozenset(wanted.pinned), lossy=True,
    )  # fmt: skip
    return candidate_space(metric, ground).space


def measure(wanted: Deployment, metric: Metric) -> ServerMeasure:
    """Return what measures one candidate, as `tune` does."""
    return ServerMeasure(
        deployment=wanted, metric=metric, rim=Rim(), text=TEXT, context=2048, run_s=RUN_S
    )


def whole_grid(space: SearchSpace, machine: ServerMeasure) -> dict[int, float]:
    """Return the value of each candidate that runs, the default first."""
    cells = range(1, len(space.allowed))
    others = random.Random(1).sample(cells, min(CELLS, len(space.allowed)) - 1)  # noqa: S311
    found = {at: machine(space.settings(space.allowed[at])).value for at in (0, *others)}
    return {at: value for at, value in found.items() if value is not None}


def tune(metric: Metric, budget_s: float) -> Mapping[str, Any]:
    """Return what `fleet tune` answers."""
    words = ["tune", "grid", "--metric", metric, "--lossy", "--trade-offs", "--json"]
    command = [sys.executable, "-m", "fleet", *words, "--budget", f"{budget_s:.0f}s"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    answer: Mapping[str, Any] = json.loads(done.stdout)
    return answer


def chosen_cell(tuned: Mapping[str, Any], space: SearchSpace) -> tuple[int, ...]:
    """Return the candidate whose settings, spelled out, were chosen."""
    chosen = tuned["best"]["settings"]
    return next(cell for cell in space.allowed if spelled_out(space.settings(cell)) == chosen)


def best_leader(
    values: Mapping[int, float], space: SearchSpace, machine: ServerMeasure
) -> Settings:
    """Return the best of the grid's leaders over some fresh rounds."""
    leaders = sorted(values, key=lambda at: -values[at])[:LEADERS]
    fresh: dict[int, list[float]] = {at: [] for at in leaders}
    for turn in range(ROUNDS):
        for at in leaders if turn % 2 else leaders[::-1]:
            fresh[at].append(machine(space.settings(space.allowed[at])).value or 0.0)
    return space.settings(space.allowed[max(leaders, key=lambda at: median(fresh[at]))])


def pairs_of(chosen: Settings, leader: Settings, machine: ServerMeasure) -> Ratio:
    """Return the ratio of `chosen` to `leader` over the pairs, A B B A."""
    runs: list[tuple[int, bool, float]] = []
    for at, ours in enumerate(
        ours for n in range(PAIRS) for ours in ((True, False) if n % 2 else (False, True))
    ):
        value = machine(chosen if ours else leader).value
        if value is not None:
            runs.append((at, ours, math.log(value)))
    noise = max(
        robust_deviation([value for _, ours, value in runs if ours is side])
        for side in (True, False)
    )
    ratio = paired_ratio(runs, noise=max(noise, 0.003), drift=noise / 10)
    assert ratio is not None
    return ratio


def told(settings: Settings, space: SearchSpace) -> str:
    """Return what differs from the start."""
    start = space.settings(space.default)
    return (
        " ".join(f"{name}={value}" for name, value in settings.items() if value != start[name])
        or "as it was"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
