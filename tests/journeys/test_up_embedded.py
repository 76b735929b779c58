"""From `up` to `down` on the embedded runtime, and everything that can go wrong between."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from fleet.deploy.model_files import read_model
from fleet.effects.commands import LocalCommands
from fleet.effects.installed import embedded_build
from fleet.effects.machine import LOCAL, free_port
from fleet.facts.known_builds import build_facts
from fleet.observe.probe_host import probe_host
from support.fleet_command import Ran, fleet, fleet_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.llama


@pytest.fixture
def model(tiny_models: Mapping[str, Path], tmp_path: Path) -> Path:
    """Give a copy of the tiny model under a name of its own, which names its deployment."""
    return Path(shutil.copy(tiny_models["llama"], tmp_path / "tiny.gguf"))


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture(autouse=True)
def _nothing_is_left(home: Path) -> Iterator[None]:
    yield
    fleet("down", "tiny", "--yes")
    left = servers_below(home)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def up(model: Path, port: int, *more: str) -> Ran:
    return fleet(
        "up", str(model), "--set", f"port={port}", "--set", "ctx_size=512", "--set", "threads=1",
        *more, "--json",
    )  # fmt: skip


def servers_below(home: Path) -> list[int]:
    """Return the embedded servers whose state lies below `home`."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "fleet.effects.embedded_server" in words and str(home) in words[-1]:
            found.append(process.pid)
    return found


def test_the_demo_comes_up_answers_and_leaves_nothing(home: Path, port: int) -> None:
    # one thread: two wait for each other where other work runs
    sets = ("--set", f"port={port}", "--set", "ctx_size=2048", "--set", "threads=1")
    began = fleet("up", "demo", *sets)
    assert began.code == 0, began.err
    assert f"http://127.0.0.1:{port}" in began.out
    assert "context 2048 tokens" in began.out
    assert "PP" in began.out
    assert "TG" in began.out
    reused, possible = re.search(r"primed: (\d+) of (\d+) tokens reused", began.out).groups()
    assert int(reused) > 0.95 * int(possible)

    said = fleet("status", "demo", "--json")
    assert said.code == 0
    (server,) = said.json["servers"]
    assert (server["state"], server["health"], server["drift"]) == ("running", "ready", [])

    again = fleet("up", "demo", *sets, "--json")
    assert [change["action"] for change in again.json["changes"]] == ["keep"]
    assert again.json["servers"][0]["pid"] == server["pid"]

    assert fleet("down", "demo", "--yes").code == 0
    assert servers_below(home) == []
    assert fleet("status", "--json").json == {"servers": []}


def test_a_change_asks_then_replaces_and_rolls_back(model: Path, port: int) -> None:
    first = up(model, port)
    assert first.code == 0, first.out
    unasked = up(model, port, "--set", "batch_size=256")
    assert unasked.code == 1
    assert "--yes" in unasked.error["fix"]
    assert fleet("status", "tiny", "--json").json["servers"][0]["generation"] == 1

    changed = up(model, port, "--set", "batch_size=256", "--yes")
    assert changed.json["changes"][0]["action"] == "replace"
    assert "batch_size" in changed.json["changes"][0]["why"]
    assert changed.json["servers"][0]["generation"] == 2

    back = fleet("rollback", "tiny", "--yes", "--json")
    assert back.json["generation"] == 1
    history = fleet("history", "tiny", "--json").json["generations"]
    assert [(each["generation"], each["current"]) for each in history] == [(1, True), (2, False)]
    drift = fleet("status", "tiny", "--json")
    assert drift.code == 1
    assert {each["setting"] for each in drift.json["servers"][0]["drift"]} == {"batch_size"}
    forth = fleet("plan", "tiny", "--json")  # known by its name since it was brought up
    assert forth.code == 1
    assert "batch_size" in forth.json["changes"][0]["why"]


def test_plan_and_dry_run_change_nothing(model: Path, port: int, home: Path) -> None:
    words = ("--set", f"port={port}", "--set", "ctx_size=512")
    planned = fleet("plan", str(model), *words, "--json")
    assert planned.code == 1
    assert planned.json["changes"][0]["action"] == "start"
    dry = fleet("up", str(model), *words, "--dry-run", "--json")
    assert dry.json["changes"] == planned.json["changes"]

    assert servers_below(home) == []
    assert not (home / "state").exists()


def test_a_start_that_fails_puts_the_old_generation_back(
    model: Path, port: int, tiny_models: Mapping[str, Path]
) -> None:
    assert up(model, port).code == 0
    other = tiny_models["other-vocabulary"]

    failed = up(
        model, port, "--yes", "--set", f"draft_model={other}", "--set", "speculation=draft-simple"
    )

    assert failed.code == 5, failed.out
    assert failed.error["kind"] == "engine-failed"
    assert ".log" in failed.error["message"]
    assert "generation 1 serves again" in failed.error["message"]
    (server,) = fleet("status", "tiny", "--json").json["servers"]
    assert (server["generation"], server["health"]) == (1, "ready")

    again = fleet("up", "tiny", "--set", "batch_size=256", "--yes", "--json")
    assert again.code == 0, again.out
    assert again.json["servers"][0]["generation"] == 2  # the one that failed took no number


def test_a_taken_port_is_named_with_who_has_it(model: Path, home: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        failed = up(model, taken.getsockname()[1])

    assert failed.code == 5
    assert "is taken by" in failed.error["message"]
    assert str(os.getpid()) in failed.error["message"]
    assert servers_below(home) == []


def missing(model: Path) -> None:
    model.unlink()


def truncated(model: Path) -> None:
    whole = model.read_bytes()
    model.write_bytes(whole[: len(whole) // 2])


def no_gguf(model: Path) -> None:
    model.write_bytes(b"PK\3\4" + b"\0" * 4096)


def empty(model: Path) -> None:
    model.write_bytes(b"")


@pytest.mark.parametrize("damage", [missing, truncated, no_gguf, empty])
def test_a_bad_model_is_refused_before_anything_starts(
    damage: object, model: Path, port: int, home: Path
) -> None:
    damage(model)  # type: ignore[operator]

    failed = up(model, port)

    assert failed.code == 3, failed.out
    assert str(model) in str(failed.error["where"])
    assert failed.error["fix"]
    assert servers_below(home) == []


def test_a_split_model_with_a_part_missing_is_refused(
    tiny_models: Mapping[str, Path], tmp_path: Path, port: int
) -> None:
    first = tiny_models["split"]
    folder = tmp_path / "split"
    folder.mkdir()
    copied = Path(shutil.copy(first, folder / first.name))

    failed = up(copied, port)

    assert failed.code == 3, failed.out
    assert "missing" in failed.error["message"]


def test_two_at_once_do_not_disturb_each_other(model: Path, port: int, home: Path) -> None:
    words = (
        "up", str(model), "--set", f"port={port}", "--set", "ctx_size=512", "--set", "threads=1",
        "--json",
    )  # fmt: skip
    both = [
        subprocess.Popen(
            fleet_words(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    ends = [process.communicate(timeout=120) for process in both]

    assert [process.returncode for process in both] == [0, 0], ends
    actions = sorted(json.loads(out)["changes"][0]["action"] for out, _ in ends)
    assert actions == ["keep", "start"]
    assert len(servers_below(home)) == 1


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_killed_server_is_told_and_comes_back(model: Path, port: int) -> None:
    pid = up(model, port).json["servers"][0]["pid"]

    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 20
    while _lives(pid) and time.monotonic() < until:
        time.sleep(0.02)

    said = fleet("status", "tiny", "--json")
    assert said.code == 1
    assert said.json["servers"][0]["state"] == "failed"
    checked = fleet("check", "tiny", "--json")
    assert checked.code == 1
    assert not checked.json["checks"][0]["ok"]
    assert "killed" in checked.json["checks"][0]["message"]  # seen by nobody who still lives
    again = up(model, port)  # nothing serves, so nothing is asked
    assert again.code == 0, again.out
    assert again.json["servers"][0]["health"] == "ready"


def test_a_stale_pid_is_not_mistaken_for_the_server(model: Path, port: int, home: Path) -> None:
    pid = up(model, port).json["servers"][0]["pid"]
    os.kill(pid, signal.SIGKILL)
    (signed,) = (home / "state" / "fleet" / "servers").glob("*/process.json")
    signed.write_text(json.dumps({**json.loads(signed.read_text()), "pid": os.getpid()}))

    assert fleet("status", "tiny", "--json").json["servers"][0]["state"] == "failed"
    assert up(model, port).code == 0  # and this test still runs


def test_a_damaged_record_is_named_with_a_cure(model: Path, port: int, home: Path) -> None:
    assert up(model, port).code == 0
    record = home / "state" / "fleet" / "deployments" / "tiny" / "record.json"
    whole = record.read_text()
    record.write_text(whole[:20])

    failed = fleet("status", "tiny", "--json")

    assert failed.code == 5
    assert failed.error["where"] == str(record)
    assert "mv " in failed.error["fix"]
    every = fleet("status", "--json")
    assert every.code == 1
    assert [each["state"] for each in every.json["servers"]] == ["unknown"]
    assert str(record) in fleet("status").err
    record.write_text(whole)


def test_an_unreadable_key_file_is_refused(model: Path, port: int, home: Path) -> None:
    keys = home / "config" / "fleet" / "keys"
    keys.mkdir(parents=True)
    (keys / "tiny.key").write_text("secret")
    (keys / "tiny.key").chmod(0o644)

    failed = up(model, port, "--set", "api_key=true")

    assert failed.code == 3, failed.out
    assert "chmod 600" in failed.error["fix"]
    assert "secret" not in failed.out


def test_a_key_is_asked_for_and_shown_by_one_command_only(
    model: Path, port: int, home: Path
) -> None:
    done = up(model, port, "--set", "api_key=true")
    assert done.code == 0, done.out

    key = fleet("key", "tiny").out.strip()

    assert len(key) > 30
    assert fleet("check", "tiny").code == 0
    assert key not in done.out + done.err + fleet("logs", "tiny").out
    assert key not in fleet("status", "--json").out
    holders = [path for path in home.rglob("*") if path.is_file() and key in _text(path)]
    assert [path.name for path in holders] == ["tiny.key"]
    assert holders[0].stat().st_mode & 0o777 == 0o600

    assert fleet("key", "tiny", "--rotate").out.strip() != key
    assert "its API key was changed" in up(model, port, "--set", "api_key=true").err
    assert up(model, port, "--set", "api_key=true", "--yes").code == 0
    assert fleet("check", "tiny").code == 0


def test_a_full_disk_is_one_sentence_and_starts_nothing(
    model: Path, port: int, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("a tiny file system is mounted by root")
    full = tmp_path / "full"
    full.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(full)], check=False
    )
    if mounted.returncode:
        pytest.skip("this machine does not allow mounts")
    try:
        (full / "filler").write_bytes(b"\0" * (44 * 1024))
        words = ("up", str(model), "--set", f"port={port}", "--set", "ctx_size=512", "--json")
        failed = fleet(*words, env={"XDG_STATE_HOME": str(full)})

        assert failed.code == 5, failed.out
        assert "No space left" in failed.error["message"]
        assert servers_below(full) == []
    finally:
        for pid in servers_below(full):
            os.kill(pid, signal.SIGKILL)
        subprocess.run(["umount", "--lazy", str(full)], check=True)


def test_killed_at_any_moment_the_next_up_converges(model: Path, port: int, home: Path) -> None:
    words = (
        "up", str(model), "--set", f"port={port}", "--set", "ctx_size=512", "--set", "threads=1",
        "--yes", "--json",
    )  # fmt: skip
    began = time.monotonic()
    assert fleet(*words).code == 0
    whole = time.monotonic() - began  # on this machine, as loaded as it is
    moments = random.Random(11)  # noqa: S311 - moments, not secrets
    for round_ in range(10):
        batch = ("--set", f"batch_size={64 + 32 * (round_ % 2)}")
        process = subprocess.Popen(
            fleet_words(*words, *batch), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(moments.uniform(0.2, 1.1) * whole)
        process.kill()
        process.wait()

        if round_ % 3 == 2:  # what one kill leaves meets the next one
            done = fleet(*words, *batch)

            assert done.code == 0, done.out
            assert len(servers_below(home)) == 1
    assert fleet(*words, *batch).code == 0
    assert len(servers_below(home)) == 1
    assert fleet("status", "tiny").code == 0


def test_a_tuned_profile_applies_where_it_was_measured_and_nowhere_else(
    model: Path, port: int, home: Path
) -> None:
    here = probe_host(LocalCommands(), LOCAL).fingerprint
    build = build_facts("embedded", embedded_build()).name
    tuned = home / "config" / "fleet" / "profiles" / "tuned" / "tiny.yaml"
    tuned.parent.mkdir(parents=True)
    text = (
        "kind: tuned\nversion: 1\nname: tiny-tg\ndeployment: tiny\nmetric: tg\n"
        f"fingerprint: {here}\nbuild: {build}\nmodel_digest: {read_model(model).digest}\n"
        "date: 2026-01-01T00:00:00Z\nsettings:\n  batch_size: 96\n  ubatch_size: 32\n"
    )
    tuned.write_text(text)
    sets = (
        "--set", f"port={port}", "--set", "ctx_size=512", "--set", "ubatch_size=64",
        "--set", "threads=1",
    )  # fmt: skip

    done = fleet("up", str(model), *sets)

    assert done.code == 0, done.err
    assert "tuned profile applied: tiny-tg" in done.out
    said = fleet("status", "tiny", "--json")
    assert (said.code, said.json["servers"][0]["tuned"]) == (0, "matches")
    (order,) = (home / "state" / "fleet" / "servers").glob("*/order.json")
    attributes = json.loads(order.read_text())["attributes"]
    assert (attributes["n_batch"], attributes["n_ubatch"]) == (96, 64)  # --set stays on top

    tuned.write_text(text.replace(f"build: {build}", "build: b1"))

    said = fleet("status", "tiny", "--json")
    assert said.json["servers"][0]["tuned"] == "stale"
    assert {each["setting"] for each in said.json["servers"][0]["drift"]} == {"batch_size"}
    assert said.code == 1
    back = fleet("up", str(model), *sets, "--yes")
    assert "no tuned profile applies" in back.out
    assert "replace" in back.out


def test_status_says_what_is_wanted_at_each_step(model: Path, port: int) -> None:
    assert fleet("status").code == 0
    assert fleet("status", "demo", "--json").json == {"servers": []}
    assert fleet("status", "nobody").code == 3
    assert up(model, port).code == 0
    assert fleet("status", "tiny").code == 0
    assert fleet("down", "tiny", "--yes").code == 0
    assert fleet("status", "tiny", "--json").json == {"servers": []}
    assert fleet("status").code == 0


def test_down_ends_the_recorder_and_frees_the_port(model: Path, port: int, home: Path) -> None:
    assert up(model, port, "--set", "api_key=true").code == 0
    assert fleet("prompts", "capture", "tiny", "on", "--json").json["on"]

    assert fleet("down", "tiny", "--yes").code == 0

    ours = [each for each in psutil.process_iter(["cmdline"]) if _mentions(each, home)]
    assert ours == []
    with closing(socket.create_server(("127.0.0.1", port))):
        pass


def test_the_log_is_one_document_where_json_is_asked_for(model: Path, port: int) -> None:
    assert up(model, port).code == 0

    said = fleet("logs", "tiny", "--json").json

    assert any("model loaded" in line for line in said["lines"])
    assert said["deployment"] == "tiny"
    assert fleet("logs", "tiny", "--json", "-f").code == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("demmo",), 3, "demo"),
        (("demo", "--set", "ctx_sise=1"), 3, "ctx_size"),
        (("demo", "--set", "ctx_size=8kk"), 3, "ctx_size"),
        (("demo", "--set", "ctx_size=99999999"), 3, "ctx_size"),
        (("demo", "--set", "port=99999"), 3, "port"),
        (("demo", "--set", "cache_type_k=q9_9"), 3, "cache_type_k"),
        (("demo", "--set", "cache_type_v=q8_0", "--set", "flash_attention=off"), 3, "flash"),
        (("demo", "--runtime", "qemu"), 3, "embedded"),
        (("demo", "--hosts", "a,b"), 3, "--hosts"),
        (("deepseek-epyc", "--runtime", "embedded"), 3, "--runtime podman"),
        (("demo", "--set", "engine=llama.cpp", "--runtime", "embedded"), 3, "--runtime podman"),
        (("/nowhere.gguf",), 3, "/nowhere.gguf"),
    ],
)
def test_what_is_wrong_is_said_before_anything_happens(
    words: tuple[str, ...], code: int, said: str, home: Path
) -> None:
    failed = fleet("up", *words, "--json")

    assert failed.code == code, failed.out
    assert said in json.dumps(failed.error)
    assert failed.error["fix"] or "is above" in failed.error["message"]
    assert servers_below(home) == []
    assert not list((home / "state").glob("fleet/deployments/*/*.json"))


def _mentions(process: psutil.Process, home: Path) -> bool:
    return any(str(home) in word for word in process.info["cmdline"] or ())


def _text(path: Path) -> str:
    return path.read_text(errors="replace")
