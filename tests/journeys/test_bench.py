"""Benches as a user runs them, on a real engine with a tiny model."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest

from fleet.effects.machine import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = [pytest.mark.llama, pytest.mark.slow]

WORKLOAD = """\
kind: workload
version: 1
name: small
prompt_tokens: 300
shared_prefix_tokens: 200
generated_tokens: 6
users: 2
"""


def fleet(*words: str, code: int = 0) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "fleet", *words, "--json"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def town(home: Path, tiny_models: Mapping[str, Path]) -> str:
    """Name of a deployment of a tiny sliding-window model."""
    profiles = home / "config" / "fleet" / "profiles"
    profiles.mkdir(parents=True)
    model = tiny_models["gemma3"]
    (profiles / "tiny.yaml").write_text(f"kind: model\nversion: 1\nname: tiny\npath: {model}\n")
    (profiles / "small.yaml").write_text(WORKLOAD)
    (profiles / "town.yaml").write_text(
        "kind: deployment\nversion: 1\nname: town\nhardware: auto\nmodel: tiny\nengine: embedded\n"
        f"port: {free_port()}\nsettings:\n  ctx_size: 4096\n  parallel: 1\n  threads: 2\n"
    )
    return "town"


def turns_of(out: Path) -> list[dict[str, Any]]:
    file = out / "turns.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def engines_of(home: Path) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(str(home) in word for word in process.info["cmdline"] or ())
        and "fleet.effects.embedded_server" in (process.info["cmdline"] or ())
    ]


def test_killed_and_gone_on_with_every_turn_is_there_once(town: str, home: Path) -> None:
    out = home / "out"
    words = ("bench", town, "--conversation", "P0", "--limit-turns", "3", "--generate", "4",
             "--out", str(out))  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet", *words],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    while len(turns_of(out)) < 4 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(turns_of(out)) < 12

    answer = fleet(*words)

    turns = turns_of(out)
    assert len(turns) == len({(t["condition"], t["turn"]) for t in turns}) == 12
    assert engines_of(home) == []
    totals = {each["condition"]: each for each in answer["conditions"]}
    assert totals["C0"]["cached_tokens"] == 0
    assert totals["C1"]["processed_tokens"] < totals["C0"]["processed_tokens"] / 2
    assert totals["C3"]["processed_tokens"] < totals["C1"]["processed_tokens"]
    whole = {t: {x["processed_tokens"] + x["cached_tokens"] for x in turns if x["turn"] == t}
             for t in (1, 2, 3)}  # fmt: skip
    assert all(len(sizes) == 1 for sizes in whole.values()), "all conditions read the same prompts"
    assert fleet("report", str(out))["html"] == str(out / "report.html")


def test_another_ask_for_the_same_folder_is_refused(town: str, home: Path) -> None:
    words = ("bench", town, "--conversation", "P0", "--limit-turns", "1", "--only", "C1",
             "--out", str(home / "out"))  # fmt: skip
    fleet(*words, "--generate", "2")

    error = fleet(*words, "--generate", "3", code=3)["error"]

    assert "another run" in error["message"]


def test_a_turn_beyond_the_context_is_named(town: str, home: Path) -> None:
    error = fleet(
        "bench", town, "--conversation", "P0", "--only", "C1", "--generate", "4000",
        "--out", str(home / "out"), code=3,
    )["error"]  # fmt: skip

    assert "turn 1 of P0" in error["message"]


def test_a_window_with_a_restart_in_the_middle(town: str, home: Path) -> None:
    url = fleet("up", town, "--yes")["servers"][0]["url"]
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            body = {"prompt": f"{time.monotonic()} " + "word " * 40, "n_predict": 4}
            try:
                httpx.post(f"{url}/completion", json=body, timeout=20)
            except httpx.HTTPError:
                time.sleep(0.05)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        watch = subprocess.Popen(
            [sys.executable, "-m", "fleet", "bench", town, "--suite", "window", "--window", "12s",
             "--out", str(home / "w"), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        while not (home / "w" / "snapshots.jsonl").exists() and watch.poll() is None:
            time.sleep(0.05)
        time.sleep(3)
        fleet("restart", town, "--yes")
        said, _ = watch.communicate(timeout=60)
    finally:
        stop.set()
        asking.join()
        fleet("down", town, "--yes")
    window = json.loads(said)

    assert window["restarts"] == 1
    assert window["prompt_tokens"] > 0
    assert window["generated_tokens"] > 0
    assert {"reuse", "prompt rate (computed)"} <= {stat["name"] for stat in window["stats"]}
    assert fleet("report", str(home / "w"))["bytes"] > 1000
    same = fleet("bench", "compare", str(home / "w"), str(home / "w"))
    assert {row["change"] for row in same["rows"]} <= {0.0, None}


def test_load_from_a_number_of_users_and_as_a_stream(town: str, home: Path) -> None:
    users = fleet("bench", town, "--suite", "load", "--workload", "small", "--requests", "6",
                  "--out", str(home / "u"), "--set", "parallel=2")  # fmt: skip
    stream = fleet("bench", town, "--suite", "load", "--workload", "small", "--requests", "6",
                   "--rate", "8", "--out", str(home / "s"), "--set", "parallel=2")  # fmt: skip

    for found in (users, stream):
        assert (found["requests"], found["failed"]) == (6, 0)
        assert found["throughput"] > 0
        assert found["generated_tokens"] == 36
        assert found["ttft_ms"][0] <= found["ttft_ms"][2]
    assert fleet("report", str(home / "u"))["bytes"] > 1000
    fleet("bench", "compare", str(home / "u"), str(home / "s"), code=0)


def test_only_what_the_bench_started_is_ended(town: str, home: Path) -> None:
    fleet("up", town, "--yes")
    before = engines_of(home)
    try:
        fleet("bench", town, "--conversation", "P1", "--limit-turns", "1", "--only", "C1",
              "--generate", "2", "--out", str(home / "out"))  # fmt: skip

        assert engines_of(home) == before
        assert len(before) == 1
    finally:
        fleet("down", town, "--yes")


@pytest.mark.podman
def test_llama_bench_of_the_image(
    home: Path, tiny_models: Mapping[str, Path], engine_image: str
) -> None:
    profiles = home / "config" / "fleet" / "profiles"
    profiles.mkdir(parents=True)
    model = tiny_models["llama"]
    (profiles / "tiny.yaml").write_text(f"kind: model\nversion: 1\nname: tiny\npath: {model}\n")
    (profiles / "image.yaml").write_text(
        f"kind: engine\nversion: 1\nname: image\nengine: llama.cpp\nimage: {engine_image}\n"
    )
    (profiles / "raw.yaml").write_text(
        "kind: deployment\nversion: 1\nname: raw\nhardware: auto\nmodel: tiny\nengine: image\n"
        "settings:\n  threads: 2\n"
    )

    found = fleet("bench", "raw", "--suite", "raw", "--out", str(home / "r"))

    assert [(row["prompt"], row["generated"]) for row in found["rows"]] == [(512, 0), (0, 128)]
    assert all(row["mean"] > 0 and len(row["samples"]) == 5 for row in found["rows"])
    assert found["rows"][0]["settings"]["n_threads"] == 2
    assert fleet("report", str(home / "r"))["bytes"] > 1000
