# ruff: noqa: S311 - random numbers of a simulation, not of cryptography
"""Replay the tuner and what people use instead over measured surfaces, with noise added.

    python tests/benchmarks/tune_replay.py FOLDER [--studies 200] [--noise quiet,typical,noisy]
        [--budgets 24,48,96] [--tuners fleet,tpe1,...] [--grids] [--flat | --at-best]
        [--out FILE]

FOLDER holds CSV files with one row a measured cell (`tps_mean`, `test`, settings). A run
costs 1, plus 0.25 when a setting changes, or 1 more when a dear one does. For each tuner,
noise and budget: mean regret to the best cell, its 90th percentile, the share of results
more than 1% worse than the default, claimed minus true gain, the share that adopted another
cell although it is less than 1% better. Where nothing is to be gained every change is useless:
`--flat` keeps only the surfaces with all cells within 1%, `--at-best` draws only defaults
within 1% of the best cell. `--grids` takes made-up surfaces of about a thousand cells instead.
Each study is one line of FILE, written when it ends: the same command goes on where it was
stopped, and prints the table of all that FILE holds.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import random
import statistics
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import optuna

from fleet.tune.run_study import Outcome, Study, run_study
from fleet.tune.search import Search
from fleet.tune.search_space import SearchSpace, Value, make_space

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Key = tuple[Value, ...]
MEASURED = {
    "tps_mean", "tps_sd", "n", "samples", "status", "mem_peak_mib", "dur_s", "total_tps", "size",
    "test", "kind", "n_tokens", "depth",
}  # fmt: skip
OF_THE_SCENARIO = ("model", "table", "column", "PP", "dim")
DEAR = {"backend", "toolbox", "ngl", "n_batch", "kv", "load"}
LEAST_CELLS = 10
SLACK = 1.05
WORTH = 1.01  # a smaller gain is none


@dataclass(frozen=True)
class Surface:
    """A grid with the true value of each cell, None where it fails."""

    name: str
    params: Mapping[str, list[Value]]
    truth: Mapping[Key, float | None]


@dataclass(frozen=True)
class Noise:
    """Standard deviations in log value; outliers make a run slower by up to `outlier`."""

    sd: float
    walk: float = 0.0
    step: float = 0.0
    outliers: float = 0.0
    outlier: float = 0.0


NOISE = {
    "quiet": Noise(sd=0.005),
    "typical": Noise(sd=0.015, walk=0.002, step=0.02, outliers=0.03, outlier=0.15),
    "noisy": Noise(sd=0.04, walk=0.005, step=0.03, outliers=0.06, outlier=0.25),
}


@dataclass
class Machine:
    """Runs cells of a surface with noise and cost, until the budget is spent."""

    surface: Surface
    noise: Noise
    budget: float
    dear: frozenset[str]
    rng: random.Random
    spent: float = 0.0
    costs: list[float] = field(default_factory=list)
    _before: Key | None = None
    _drift: float = 0.0

    def may_run(self) -> bool:
        """Whether the median run still fits the budget."""
        return not self.costs or self.spent + statistics.median(self.costs) <= SLACK * self.budget

    def run(self, key: Key) -> float | None:
        """Return one noisy value, None for a failure."""
        self._drift += self.rng.gauss(0, self.noise.walk)
        if self.rng.random() < self.noise.step:
            self._drift += self.rng.choice([-0.05, 0.05])
        self.costs.append(self._cost(key))
        self.spent += self.costs[-1]
        self._before = key
        truth = self.surface.truth.get(key)
        if not truth:
            return None
        value = truth * math.exp(self._drift + self.rng.gauss(0, self.noise.sd))
        if self.rng.random() < self.noise.outliers:
            value *= 1 - self.rng.uniform(0, self.noise.outlier)
        return value

    def mean_of(self, key: Key, repeats: int) -> float | None:
        """Return the mean of some runs, None when all fail."""
        values = [self.run(key) for _ in range(repeats)]
        good = [value for value in values if value is not None]
        return statistics.fmean(good) if good else None

    def _cost(self, key: Key) -> float:
        if key == self._before:
            return 1.0
        if self._before is None:
            return 2.0
        changed = {
            name
            for name, old, new in zip(self.surface.params, self._before, key, strict=True)
            if old != new
        }
        return 2.0 if changed & self.dear else 1.25


class Tuner(Protocol):
    """Chooses a cell and claims a gain over the default."""

    def __call__(self, machine: Machine, default: Key, seed: int) -> tuple[Key, float]:
        """Return the chosen cell and the claimed gain."""
        ...


def fleet(machine: Machine, default: Key, seed: int) -> tuple[Key, float]:
    """The search of `fleet tune`."""
    names = list(machine.surface.params)
    space: SearchSpace = make_space(
        machine.surface.params,
        dict(zip(names, default, strict=True)),
        dear=[name for name in names if name in machine.dear],
    )
    study = Study(search=Search(space, seed=seed), budget_s=machine.budget)

    def measure(settings: Mapping[str, Value]) -> Outcome:
        value = machine.run(tuple(settings[name] for name in names))
        failed = "failed" if value is None else None
        return Outcome(value=value, failed=failed, seconds=machine.costs[-1])

    run_study(study, measure)
    verdict = study.search.verdict()
    return tuple(space.settings(verdict.cell)[name] for name in names), verdict.gain


def _best_of(
    machine: Machine, keys: Iterator[Key], default: Key, repeats: int
) -> tuple[Key, float]:
    """Take the largest mean of all that is tried, as plain tuners do."""
    base = machine.mean_of(default, repeats) or math.inf
    best = (base, default)
    for key in keys:
        if not machine.may_run():
            break
        value = machine.mean_of(key, repeats)
        if value is not None and value > best[0]:
            best = (value, key)
    return best[1], best[0] / base - 1


def at_random(machine: Machine, default: Key, seed: int, *, repeats: int) -> tuple[Key, float]:
    """Random cells, each measured some times."""
    rng = random.Random(seed)
    cells = [*itertools.product(*machine.surface.params.values())]
    return _best_of(machine, iter(lambda: rng.choice(cells), None), default, repeats)


def tpe(machine: Machine, default: Key, seed: int, *, repeats: int) -> tuple[Key, float]:
    """Optuna's TPE with the default enqueued; failures are told as failures."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    params = machine.surface.params
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    study.enqueue_trial(dict(zip(params, default, strict=True)))
    base, best = math.inf, (-math.inf, default)
    while machine.may_run():
        trial = study.ask()
        key = tuple(trial.suggest_categorical(name, values) for name, values in params.items())
        value = machine.mean_of(key, repeats)
        if value is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        study.tell(trial, value)
        base = value if math.isinf(base) else base
        best = max(best, (value, key), key=lambda each: each[0])
    return best[1], best[0] / base - 1


def greedy(machine: Machine, default: Key, seed: int) -> tuple[Key, float]:
    """One setting at a time from the default, keeping what looks faster."""
    del seed
    base = machine.run(default) or math.inf
    best = (base, default)
    while machine.may_run():
        before = best
        for at, values in enumerate(machine.surface.params.values()):
            for value in values:
                key = (*best[1][:at], value, *best[1][at + 1 :])
                if key == best[1] or not machine.may_run():
                    continue
                found = machine.run(key)
                if found is not None and found > best[0]:
                    best = (found, key)
        if best == before:
            break
    return best[1], best[0] / base - 1


def halving(machine: Machine, default: Key, seed: int) -> tuple[Key, float]:
    """Successive halving of a random third of the budget's runs, the default among them."""
    rng = random.Random(seed)
    cells = [*itertools.product(*machine.surface.params.values())]
    count = min(len(cells), max(int(machine.budget / 4), 2))
    alive = [default, *rng.sample(cells, count)]
    values: dict[Key, list[float]] = {key: [] for key in alive}
    while machine.may_run() and len(alive) > 1:
        for key in alive:
            found = machine.run(key) if machine.may_run() else None
            if found is not None:
                values[key].append(found)
        alive = [key for key in alive if values[key]]
        alive.sort(key=lambda key: -statistics.fmean(values[key]))
        alive = alive[: max(len(alive) // 2, 1)]
    chosen = alive[0] if alive else default
    base = statistics.fmean(values[default]) if values[default] else math.inf
    return chosen, statistics.fmean(values[chosen]) / base - 1 if values[chosen] else 0.0


TUNERS: Mapping[str, Tuner] = {
    "fleet": fleet,
    "tpe1": partial(tpe, repeats=1),
    "tpe2": partial(tpe, repeats=2),
    "random2": partial(at_random, repeats=2),
    "greedy": greedy,
    "halving": halving,
}


@dataclass(frozen=True)
class Result:
    """One study judged against the truth, in percent."""

    regret: float
    worse: bool
    bragging: float
    useless: bool


def study_of(
    surface: Surface, tuner: Tuner, noise: Noise, budget: float, seed: int, *, at_best: bool
) -> Result:
    """Run one study from a default drawn by `seed`, one of the best if so, and judge it."""
    rng = random.Random(seed)
    good = sorted((value, str(key), key) for key, value in surface.truth.items() if value)
    drawn = [each for each in good if each[0] > good[-1][0] / WORTH] if at_best else good
    default = rng.choice(drawn)[2]
    dear = frozenset(name for name in surface.params if name in DEAR and rng.random() < 0.5)
    machine = Machine(
        surface=surface, noise=noise, budget=budget, dear=dear, rng=random.Random(seed + 1)
    )
    chosen, claimed = tuner(machine, default, seed)
    truth = surface.truth.get(chosen) or 0.0
    base = surface.truth[default] or math.nan
    return Result(
        regret=100 * (1 - truth / good[-1][0]),
        worse=truth < 0.99 * base,
        bragging=100 * (claimed - (truth / base - 1)),
        useless=chosen != default and truth < WORTH * base,
    )


def read_surfaces(folder: Path) -> list[Surface]:
    """Read every CSV of the folder: one surface for each model and test with enough cells."""
    found = []
    for path in sorted(folder.glob("*.csv")):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        rows = [*csv.DictReader(lines)]
        settings = [name for name in rows[0] if name not in {*MEASURED, *OF_THE_SCENARIO}]
        groups: dict[str, list[dict[str, str]]] = {}
        for row in rows:
            test = row["test"].rsplit(" B", 1)[0]
            name = "/".join(
                [path.stem, test, row["kind"], *(row.get(k, "") for k in OF_THE_SCENARIO)]
            )
            groups.setdefault(name, []).append(row)
        found += [_surface(name, group, settings) for name, group in groups.items()]
    return [
        each for each in found if sum(v is not None for v in each.truth.values()) >= LEAST_CELLS
    ]


def _surface(name: str, rows: list[dict[str, str]], settings: list[str]) -> Surface:
    used = [key for key in settings if len({row[key] for row in rows}) > 1]
    truth: dict[Key, list[float | None]] = {}
    for row in rows:
        worked = row["status"] == "ok" and row["tps_mean"] not in {"", "0"}
        key = tuple(_number(row[setting]) for setting in used)
        truth.setdefault(key, []).append(float(row["tps_mean"]) if worked else None)
    means = {
        key: None if None in values else statistics.fmean(v for v in values if v is not None)
        for key, values in truth.items()
    }
    params = {
        setting: sorted({key[at] for key in means}, key=lambda v: (isinstance(v, str), v))
        for at, setting in enumerate(used)
    }
    return Surface(name=name, params=params, truth=means)


def _number(word: str) -> Value:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def made_up(seed: int) -> Surface:
    """Make a grid of 1,152 cells: peaks, plateaus, pairs, rough cells, forbidden corners."""
    rng = random.Random(seed)
    params: dict[str, list[Value]] = {
        "threads": [1, 2, 4, 6, 8, 12, 16, 24], "ubatch": [64, 128, 256, 512, 1024, 2048],
        "fa": ["off", "on"], "kv": ["f16", "q8_0", "q4_0"], "poll": [0, 50],
        "load": ["mmap", "none"],
    }  # fmt: skip
    names = list(params)
    effects = {
        name: _effect(len(values), rng, peak=len(values) > 3) for name, values in params.items()
    }
    pairs = {
        (a, b): [[rng.gauss(0, 0.04) for _ in params[b]] for _ in params[a]]
        for a, b in itertools.combinations(names, 2)
        if rng.random() < 0.4
    }
    truth: dict[Key, float | None] = {}
    for indexes in itertools.product(*(range(len(params[name])) for name in names)):
        at = dict(zip(names, indexes, strict=True))
        key = tuple(params[name][at[name]] for name in names)
        log = sum(effects[name][index] for name, index in at.items()) + rng.gauss(0, 0.006)
        log += sum(table[at[a]][at[b]] for (a, b), table in pairs.items())
        quantised_without = key[2] == "off" and key[3] != "f16"
        truth[key] = None if quantised_without else 100 * math.exp(log)
    return Surface(name=f"grid-{seed}", params=params, truth=truth)


def _effect(count: int, rng: random.Random, *, peak: bool) -> list[float]:
    if not peak:
        size = rng.choice([0.003, 0.02, 0.1, 0.3])
        return [rng.gauss(0, size) for _ in range(count)]
    where, size, sharp = rng.random(), rng.choice([0.02, 0.1, 0.3, 1.0]), rng.uniform(0.5, 2)
    return [-size * abs(2 * (at / (count - 1) - where)) ** sharp for at in range(count)]


Row = tuple[str, float, str]  # noise, budget, tuner


@dataclass
class Ledger:
    """The results of each row by the number of the study, and the file that keeps them."""

    path: Path | None
    rows: dict[Row, dict[int, Result]] = field(default_factory=lambda: defaultdict(dict))

    def read(self) -> None:
        """Take in what an earlier start wrote; a line cut short is passed over."""
        for line in self.path.read_text().splitlines() if self.path and self.path.exists() else ():
            try:
                noise, budget, tuner, number, result = json.loads(line)
            except ValueError:
                continue
            self.rows[noise, budget, tuner][number] = Result(**result)

    def add(self, row: Row, number: int, result: Result) -> None:
        """Keep one result."""
        self.rows[row][number] = result
        if self.path:
            with self.path.open("a") as file:
                file.write(json.dumps([*row, number, asdict(result)]) + "\n")

    def told(self, row: Row) -> str:
        """Return the row of the table."""
        noise, budget, tuner = row
        results = [*self.rows[row].values()]
        regrets = sorted(each.regret for each in results)
        mean = statistics.fmean
        return (
            f"{noise:8} {budget:5.0f} {tuner:8} {len(results):6} {mean(regrets):8.2f} "
            f"{regrets[int(0.9 * len(regrets))]:8.2f} "
            f"{100 * mean(each.worse for each in results):8.2f} "
            f"{mean(each.bragging for each in results):+9.2f} "
            f"{100 * mean(each.useless for each in results):8.2f}"
        )


def run_studies(
    ledger: Ledger, row: Row, studies: int, surfaces: Sequence[Surface], *, at_best: bool
) -> None:
    """Run those of the first `studies` of a row that the ledger lacks."""
    noise, budget, tuner = row
    for number in range(studies):
        if number not in ledger.rows[row]:
            surface = surfaces[number % len(surfaces)]
            result = study_of(
                surface, TUNERS[tuner], NOISE[noise], budget, seed=7919 * number, at_best=at_best
            )
            ledger.add(row, number, result)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--noise", default="quiet,typical,noisy")
    parser.add_argument("--budgets", default="24,48,96")
    parser.add_argument("--tuners", default=",".join(TUNERS))
    parser.add_argument("--grids", action="store_true")
    parser.add_argument("--flat", action="store_true")
    parser.add_argument("--at-best", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    surfaces = [made_up(seed) for seed in range(30)] if asked.grids else read_surfaces(asked.folder)
    if asked.flat:
        surfaces = [each for each in surfaces if _is_flat(each)]
    random.Random(5).shuffle(surfaces)
    ledger = Ledger(path=asked.out)
    ledger.read()
    print(f"{len(surfaces)} surfaces; all but studies in percent")
    print("noise   budget tuner    studies   regret      p90    worse  claim-true  useless")
    for noise in asked.noise.split(","):
        for budget in map(float, asked.budgets.split(",")):
            for tuner in asked.tuners.split(","):
                row = (noise, budget, tuner)
                run_studies(ledger, row, asked.studies, surfaces, at_best=asked.at_best)
                print(ledger.told(row), flush=True)


def _is_flat(surface: Surface) -> bool:
    values = [value for value in surface.truth.values() if value]
    return max(values) < WORTH * min(values)


if __name__ == "__main__":
    main()
