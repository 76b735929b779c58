"""`fleet tune` on a real engine: from a deployment that starts badly to one that is tuned."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from fleet.cli.load import load_deployment
from fleet.deploy.rim import Rim
from fleet.effects.machine import free_port
from fleet.tune.read_study import read_study
from fleet.tune.tune_deployment import TuneOptions, tune_deployment
from support.fleet_command import Ran, fleet, fleet_words
from tests.journeys.test_up_embedded import servers_below

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.llama

KEYS = {
    "metric", "default", "best", "gain", "provable_gain", "trials", "spent_s", "stopped",
    "profile", "tradeoffs",
}  # fmt: skip


@pytest.fixture
def slow(home: Path, tiny_models: Mapping[str, Path]) -> Iterator[Path]:
    """Give the file of a deployment that reads prompts two tokens at a time, on purpose."""
    folder = home / "config/fleet/profiles"
    folder.mkdir(parents=True)
    model = shutil.copy(tiny_models["llama"], home / "tiny.gguf")
    write(folder / "tiny-model.yaml", kind="model", name="tiny-model", path=str(model))
    path = folder / "slow.yaml"
    write(
        path, kind="deployment", name="slow", hardware="auto", model="tiny-model",
        engine="embedded", port=free_port(),
        settings={"ctx_size": 1024, "threads": 1, "batch_size": 2, "ubatch_size": 2},
        pinned={"threads_batch": 1, "flash_attention": "on"},
    )  # fmt: skip
    yield path
    fleet("down", "slow", "--yes")
    assert servers_below(home) == []


def write(file: Path, **content: object) -> None:
    file.write_text(yaml.safe_dump({"version": 1, **content}))


def tune(*more: str) -> Ran:
    return fleet("tune", "slow", "--metric", "pp", *more)


@pytest.mark.usefixtures("slow")
def test_a_bad_start_is_found_kept_used_and_told_stale(home: Path) -> None:
    assert fleet("up", "slow").code == 0
    pid = fleet("status", "slow", "--json").json["servers"][0]["pid"]

    # this machine may be busy: a guard that noise hides must not decide here
    ran = tune("--trials", "20", "--trade-offs", "--json")

    assert ran.code == 0, ran.err
    assert set(ran.json) == KEYS
    assert ran.json["gain"] > 0.2
    assert ran.json["best"]["settings"]["ubatch_size"] > 2
    assert ran.json["trials"] <= 20
    profile = Path(ran.json["profile"])
    assert profile.parent == home / "config/fleet/profiles/tuned"
    assert "can prove gains above" in ran.err
    assert "best so far" in ran.err
    assert "trials left" in ran.err
    assert fleet("status", "slow", "--json").json["servers"][0]["pid"] == pid

    again = fleet("up", "slow", "--yes")
    assert again.code == 0, again.err
    assert "tuned profile applied: slow-pp" in again.out
    assert tuned_now() == "matches"
    shown = fleet("show", "slow", "--json").json["settings"]["ubatch_size"]
    assert (shown["layer"], shown["file"]) == ("tuned", str(profile))
    running = fleet("status", "slow", "--json").json["servers"][0]
    assert running["drift"] == []

    told = fleet("tune", "report", "slow", "--metric", "pp", "--html", str(home / "page"))
    assert told.code == 0, told.err
    assert "by hand: fleet up slow --set" in told.out
    assert "Every run, in order" in (home / "page/report.html").read_text()

    held = fleet("tune", "slow", "--metric", "pp", "--recheck", "--json")
    assert held.code == 0, held.err
    assert set(held.json) == {"profile", "gain", "ci", "holds"}
    assert held.json["profile"] == "slow-pp"

    kept = yaml.safe_load(profile.read_text())
    write(profile, **{**kept, "build": "b1"})
    assert tuned_now() == "stale"
    assert "does not hold here" in fleet("show", "slow").out


def tuned_now() -> str | None:
    return fleet("status", "slow", "--json").json["servers"][0]["tuned"]


def test_without_a_provable_gain_the_default_stays_and_up_says_so(slow: Path) -> None:
    content = yaml.safe_load(slow.read_text())
    best = {"batch_size": 512, "ubatch_size": 512}
    write(slow, **{**content, "settings": {**content["settings"], **best}})

    # a default and two more runs: nothing can be confirmed with that
    ran = tune("--trials", "3", "--json")

    assert ran.code == 0, ran.err
    assert (ran.json["profile"], ran.json["gain"]) == (None, 0)
    assert ran.json["best"]["settings"] == ran.json["default"]["settings"]
    assert "no provable gain, the default stays" in fleet("up", "slow").out


@pytest.mark.usefixtures("slow")
def test_a_budget_is_kept_within_five_percent() -> None:
    def spent() -> float:
        ran = tune("--budget", "12s", "--fresh", "--json")
        assert ran.code == 0, ran.err
        return float(ran.json["spent_s"])

    # a request cannot be cut short; on a machine that others load, one of three is enough
    assert any(spent() <= 12 * 1.05 for _ in range(3))


@pytest.mark.usefixtures("slow")
def test_term_ends_the_trial_server_and_the_same_command_goes_on(home: Path) -> None:
    words = fleet_words("tune", "slow", "--metric", "pp", "--trials", "6", "--json")
    log = home / "state/fleet/tune/slow/pp.jsonl"
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        next(line for line in run.stderr if line.startswith("trial 2"))
        run.send_signal(signal.SIGTERM)
        assert run.wait(30) == 130
    assert servers_below(home) == []
    before = trials(log)

    ran = tune("--trials", "6", "--json")

    assert ran.code == 0, ran.err
    assert trials(log)[: len(before)] == before
    assert ran.json["trials"] == 6


def trials(log: Path) -> list[object]:
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return [event["trial"] for event in events if "trial" in event]


def test_a_draft_model_is_tried_against_none_and_n_grams(
    slow: Path, tiny_models: Mapping[str, Path], home: Path
) -> None:
    content = yaml.safe_load(slow.read_text())
    drafts = {"draft_model": str(tiny_models["draft"]), "batch_size": 256, "ubatch_size": 64}
    write(slow, **{**content, "settings": {**content["settings"], **drafts}})

    ran = fleet("tune", "slow", "--metric", "tg", "--trials", "6", "--json")

    assert ran.code == 0, ran.err
    events = (home / "state/fleet/tune/slow/tg.jsonl").read_text().splitlines()
    ours = [event["trial"] for event in map(json.loads, events) if "trial" in event]
    assert all(trial["failed"] is None for trial in ours)
    assert all("accepted" in t["figures"] for t in ours if "draft" in t["settings"]["speculation"])
    assert len({trial["settings"]["speculation"].split()[0] for trial in ours}) > 1


@pytest.mark.podman
def test_llama_bench_of_the_image_looks_first_where_loads_are_dear(
    home: Path, tiny_models: Mapping[str, Path], engine_image: str
) -> None:
    folder = home / "config/fleet/profiles"
    folder.mkdir(parents=True)
    write(folder / "m.yaml", kind="model", name="m", path=str(tiny_models["llama"]))
    write(folder / "e.yaml", kind="engine", name="e", engine="llama.cpp", image=engine_image)
    write(
        folder / "boxed.yaml", kind="deployment", name="boxed", hardware="auto", model="m",
        engine="e", settings={"ctx_size": 512, "threads": 1, "ubatch_size": 64},
        pinned={"threads_batch": 1, "batch_size": 256},
    )  # fmt: skip
    options = TuneOptions(metric="pp", trials=4, budget_s=300, dear_load=0.0)

    tuned = tune_deployment(
        load_deployment("boxed"), options=options, rim=Rim(), text="A word. " * 400,
        progress=lambda _: None,
    )  # fmt: skip

    assert len(tuned.summary.trials) == 4
    summary = read_study(Rim(), "boxed", "pp").summary
    hints = {(name, value): ratio for name, value, ratio in summary.hints}
    assert {name for name, _ in hints} == {"ubatch_size", "flash_attention"}
    assert all(abs(ratio) < 3 for ratio in hints.values())
    assert "llama-bench hinted" in fleet("tune", "report", "boxed", "--metric", "pp").out
