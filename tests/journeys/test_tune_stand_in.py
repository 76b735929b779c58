"""Studies on stand-in servers that hang, die, lie, or only sleep; killed and gone on with."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from fleet.effects.machine import free_port
from support.stand_in_engine import __file__ as stand_in
from support.stand_in_engine import alive

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DRIVER = Path(__file__).parents[1] / "support/tune_stand_in.py"
KILLS = int(os.environ.get("FLEET_TUNE_KILLS", "4"))  # the benchmarks do twenty
BAR = float(os.environ.get("FLEET_TUNE_BAR", "1"))  # the benchmarks, on a calm machine: 0.65
TRIALS = 6 * KILLS + 6  # more than are run before the last kill


@pytest.fixture(autouse=True)
def _none_is_left(home: Path) -> Iterator[None]:
    yield
    left = stand_ins_below(home)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def stand_ins_below(home: Path) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if stand_in in words and str(home) in words[-1]:
            found.append(process.pid)
    return found


def words(model: Path, home: Path, **options: object) -> list[str]:
    return [sys.executable, str(DRIVER), str(model), str(home / "engines"), json.dumps(options)]


def study(model: Path, home: Path, **options: object) -> dict[str, Any]:
    done = subprocess.run(
        words(model, home, **options), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def trials(home: Path) -> list[dict[str, Any]]:
    (log,) = (home / "state/fleet/tune").glob("*/pp.jsonl")
    events = map(parsed, log.read_text().splitlines())
    return [event["trial"] for event in events if "trial" in event]


def parsed(line: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:  # cut short by a kill
        return {}
    return found


def test_what_hangs_dies_or_lies_is_recorded_with_its_cause(
    tiny_models: Mapping[str, Path], home: Path
) -> None:
    trouble = {
        "ubatch_size=64": "hang", "ubatch_size=128": "die", "ubatch_size=256": "garbage",
        "ubatch_size=1024": "wrong", "ubatch_size=2048": "deaf",
    }  # fmt: skip
    found = study(
        tiny_models["llama"], home, behaviour={"trouble": trouble}, trials=24, patience_s=1.0
    )

    assert found["trials"] <= 24
    assert found["best"]["settings"]["ubatch_size"] == 512
    causes = {t["settings"]["ubatch_size"]: t["failed"] for t in trials(home) if t["failed"]}
    wanted = {
        64: "no answer in time", 128: "[out-of-memory]", 256: "not JSON",
        1024: "wrong output", 2048: "not ready after",
    }  # fmt: skip
    assert causes  # each kind that the search came upon has its own words
    assert all(wanted[size] in cause for size, cause in causes.items()), causes
    assert len(causes) >= 3


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """Give a control group with a memory limit that the kernel enforces."""
    old, new = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    root, limit = (old, "memory.limit_in_bytes") if old.exists() else (new, "memory.max")
    made = root / f"fleet-test-{os.getpid()}"
    try:
        made.mkdir()
        (made / limit).write_text(str(128 << 20))
    except OSError as error:
        pytest.skip(f"no control group with a memory limit can be made here: {error}")
    yield made
    for _ in range(50):  # a process that has just ended still lies in it
        with suppress(OSError):
            made.rmdir()
            break
        time.sleep(0.1)


def test_what_is_killed_for_its_memory_is_recorded(
    tiny_models: Mapping[str, Path], home: Path, cgroup: Path
) -> None:
    behaviour = {"trouble": {"ubatch_size=2048": "eat"}, "cgroup": str(cgroup)}

    found = study(tiny_models["llama"], home, behaviour=behaviour, trials=16)

    assert found["best"]["settings"]["ubatch_size"] == 1024
    failed = [trial for trial in trials(home) if trial["failed"]]
    assert failed
    assert all(trial["settings"]["ubatch_size"] == 2048 for trial in failed), failed
    assert all("engine-failed: [" in trial["failed"] for trial in failed), failed  # of what it died


def test_a_killed_study_loses_at_most_the_running_trial(
    tiny_models: Mapping[str, Path], home: Path
) -> None:
    dice = random.Random(5)  # noqa: S311 - when to kill
    options = {"behaviour": {"sleep_s": 0.02}, "trials": TRIALS}
    kept: list[dict[str, Any]] = []
    for _ in range(KILLS):
        command = words(tiny_models["llama"], home, **options)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
            assert run.stderr is not None
            run.stderr.readline()  # its first trial is over
            time.sleep(dice.uniform(0, 1.0))
            run.kill()
        now = trials(home)
        assert now[: len(kept)] == kept
        assert len(now) > len(kept)
        kept = now

    found = study(tiny_models["llama"], home, **options)

    assert trials(home)[: len(kept)] == kept
    assert found["trials"] == TRIALS
    assert found["best"]["settings"]["ubatch_size"] == 2048
    assert abs(found["gain"] - 1) < 0.2


def test_two_hosts_share_a_study_and_take_less_time(
    tiny_models: Mapping[str, Path], home: Path
) -> None:
    took = {}
    for lanes in (1, 2):
        options = {"behaviour": {"sleep_s": 0.3}, "trials": 14, "lanes": lanes}
        found = study(tiny_models["llama"], home, **options)
        took[lanes] = seconds_of_newest_study(home)
        assert found["best"]["settings"]["ubatch_size"] == 2048
    lanes_used = {trial["lane"].split("/")[0] for trial in trials(home)[-14:]}

    assert lanes_used == {"local", "host1"}
    ratio = took[2] / took[1]
    print(f"\ntwo hosts took {ratio:.2f} of one's time with a stand-in engine")
    assert ratio < BAR


def seconds_of_newest_study(home: Path) -> float:
    (log,) = (home / "state/fleet/tune").glob("*/pp.jsonl")
    events = list(map(parsed, log.read_text().splitlines()))
    began = next(event["at"] for event in reversed(events) if "study" in event)
    at = [datetime.fromisoformat(when) for when in (began, events[-1]["at"])]
    return (at[1] - at[0]).total_seconds()


def serving(home: Path) -> list[int]:
    orders = (home / "engines/host0").glob("fleet-llama-server.json")
    pids = [json.loads(order.read_text())["pid"] for order in orders]
    return [pid for pid in pids if alive(pid)]


@pytest.mark.parametrize("then", ["tune", "up"])
def test_what_was_stopped_for_lack_of_memory_serves_again_after_a_kill(
    tiny_models: Mapping[str, Path], home: Path, then: str
) -> None:
    model, options = tiny_models["llama"], {"behaviour": {}, "trials": 6, "port": free_port()}
    subprocess.run(words(model, home, **options, up=True), check=True)
    (before,) = serving(home)
    command = words(model, home, **options, crowded=True)
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as run:
        assert run.stderr is not None
        next(line for line in run.stderr if line.startswith(b"trial 2"))
        assert serving(home) == []
        run.kill()

    if then == "tune":
        study(model, home, **options)
    else:
        subprocess.run(words(model, home, **options, up=True), check=True)

    (after,) = serving(home)
    assert after != before
    study(model, home, **options)  # ends what the killed one left, and touches nothing else
    assert serving(home) == [after]
    os.kill(after, signal.SIGKILL)


def test_a_host_that_drops_out_costs_its_running_trial_alone(
    tiny_models: Mapping[str, Path], home: Path
) -> None:
    options = {"behaviour": {}, "trials": 10, "lanes": 2, "lost_after": 2}

    found = study(tiny_models["llama"], home, **options)

    assert found["trials"] == 10
    by_lane = [trial["lane"].split("/")[0] for trial in trials(home)]
    assert 1 <= by_lane.count("host1") <= 2
    assert all(trial["failed"] is None for trial in trials(home))


def test_a_second_controller_joins_a_study(tiny_models: Mapping[str, Path], home: Path) -> None:
    options = {"behaviour": {"sleep_s": 0.1}, "trials": 16, "lanes": 3}
    commands = [
        words(tiny_models["llama"], home, **options, on=[host]) for host in ("host1", "host2")
    ]

    with (
        subprocess.Popen(
            commands[0], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as one,
    ):
        assert one.stderr is not None
        next(line for line in one.stderr if line.startswith("trial 1"))
        other = subprocess.run(commands[1], capture_output=True, text=True, check=True, timeout=120)
        told = one.communicate(timeout=120)[0]

    both = [json.loads(each) for each in (told, other.stdout)]
    assert [each["best"]["settings"]["ubatch_size"] for each in both] == [2048, 2048]
    assert {trial["lane"].split("/")[0] for trial in trials(home)} == {"host1", "host2"}
    assert len(trials(home)) <= 17  # one may begin while the other ends the last


def test_a_first_host_that_is_lost_leaves_the_study_to_the_others(
    tiny_models: Mapping[str, Path], home: Path
) -> None:
    options = {"behaviour": {}, "trials": 8, "lanes": 3, "on": ["host1", "host2"]}

    found = study(tiny_models["llama"], home, **options, lost="host1")

    assert found["trials"] == 8
    assert {trial["lane"].split("/")[0] for trial in trials(home)} == {"host2"}
