"""Speculation on the demo: what `tune` chooses for repeating and for free answers, judged.

`tests/benchmarks/run tune_speculation [TRIALS] [PAIRS]`: each workload is a file of requests.
The choice is measured again in fresh pairs, A B B A: speculation that was chosen against
off, off against each kind with the lengths that looked best in the study. Right is speculation
that is faster than off, and off where no kind is more than 1% faster; undecided is what the
95% interval leaves open. Exit 1 when a choice is wrong, or off for the repeating answers.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from fleet.cli.load import load_deployment
from fleet.deploy.rim import Rim
from fleet.diagnose.prompts.requests import parse_requests
from fleet.tune.captured_requests import CapturedWorkload
from fleet.tune.measure_server import ServerMeasure
from fleet.tune.read_study import MARGIN, read_study
from fleet.tune.recheck import fresh_ratio
from fleet.tune.speculation_kinds import PARAMETER, one_value

if TYPE_CHECKING:
    from fleet.tune.paired_ratio import Ratio

ROOMS = ("Room", "Hall", "Cabin", "Office", "Cellar", "Shop")
THINGS = ("a table, four chairs", "two beds, a red carpet", "a desk, five books", "an oven, a sink")
FREE = ("the sea", "an old clock", "a lost letter", "bread", "the night train", "a garden")
TEXT = " ".join(f"Door {n} leads to room {n * 5 % 70}." for n in range(300))
OFF = "none"
DEPLOYMENT = {
    "kind": "deployment", "version": 1, "name": "spec", "hardware": "auto",
    "model": "gemma3-270m", "engine": "embedded", "port": 18433,
    "settings": {"ctx_size": 2048}, "pinned": {"threads": 1, "flash_attention": "on"},
}  # fmt: skip


def repeating() -> list[dict[str, object]]:
    """Return prompts whose answers go on as they began: lines that come again in fours."""
    return [
        {"prompt": "\n".join(f"{room} {n % 4} has {things} and a lamp." for n in range(16))}
        for room in ROOMS
        for things in THINGS
    ]


def free() -> list[dict[str, object]]:
    """Return prompts whose answers repeat nothing."""
    return [
        {"prompt": f"Story {n}, about {what}. It began when"} for n in range(6) for what in FREE
    ]


def main(trials: str = "24", pairs: str = "8") -> None:
    """Tune for both, judge the choices."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("CONFIG", "STATE", "CACHE"):
            os.environ[f"XDG_{name}_HOME"] = str(Path(folder) / name.lower())
        profiles = Path(folder) / "config/fleet/profiles"
        profiles.mkdir(parents=True)
        (profiles / "spec.yaml").write_text(json.dumps(DEPLOYMENT))
        for name, requests in (("repeating", repeating()), ("free", free())):
            file = Path(folder) / f"{name}.jsonl"
            file.write_text("".join(f"{json.dumps(each)}\n" for each in requests))
            chosen = tune(file, trials)
            found += judge(file, chosen, int(pairs))
            found += ["wrong"] * (name == "repeating" and chosen == OFF)
    sys.exit("wrong" in found)


def tune(file: Path, trials: str) -> str:
    """Return what `fleet tune spec` keeps for the requests of `file`."""
    words = [
        sys.executable, "-m", "fleet", "tune", "spec", "--metric", "tg", "--trials", trials,
        "--workload", str(file), "--fresh", "--json",
    ]  # fmt: skip
    told = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
    chosen = str(one_value(told["best"]["settings"]))
    print(f"{file.stem}: chosen {chosen}, gain {told['gain']:+.1%}, {told['spent_s']:.0f} s")
    if told["profile"]:
        Path(told["profile"]).unlink()
    return chosen


def judge(file: Path, chosen: str, pairs: int) -> list[str]:
    """Measure the choice again and print what is to be said of it."""
    captured = CapturedWorkload(
        name=file.name, requests=parse_requests(file.read_text(), str(file))
    )
    words = []
    with ServerMeasure(
        deployment=load_deployment("spec"), metric="tg", rim=Rim(), text=TEXT, context=2048,
        captured=captured,
    ) as measure:  # fmt: skip
        for on in best_of_each_kind() if chosen == OFF else [chosen]:
            ratio = fresh_ratio(
                measure, {PARAMETER: on}, {PARAMETER: OFF}, pairs=pairs, progress=lambda _: None
            )
            word = said(ratio, on=chosen != OFF)
            low, high = ratio.interval
            print(
                f"  {on}: {math.exp(ratio.log_ratio):.3f} of off, {low:.3f} to {high:.3f}, "
                f"{pairs} pairs: {word}",
                flush=True,
            )
            words.append(word)
    return words


def said(ratio: Ratio, *, on: bool) -> str:
    """Judge the choice by the 95% interval of speculation's ratio to off."""
    low, high = map(math.log, ratio.interval)
    least = 0.0 if on else MARGIN
    if low <= least <= high:
        return "undecided"
    return "right" if on == (low > least) else "wrong"


def best_of_each_kind() -> list[str]:
    """Return each kind of the newest study with the lengths that were fastest there."""
    rates: dict[str, list[float]] = {}
    for trial in read_study(Rim(), "spec", "tg").summary.trials:
        if trial.outcome.value is not None and trial.settings[PARAMETER] != OFF:
            rates.setdefault(str(trial.settings[PARAMETER]), []).append(trial.outcome.value)
    order = sorted(rates, key=lambda value: median(rates[value]))
    return [*{value.split()[0]: value for value in order}.values()]


if __name__ == "__main__":
    main(*sys.argv[1:])
