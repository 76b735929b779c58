"""Priming on the real embedded engine with a tiny sliding-window model, beside its prediction."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from prefix_variants import LAUNCHES, Size, run, words

from fleet.effects.http import Http
from fleet.effects.machine import free_port
from fleet.observe.server_client import ServerClient
from support.fleet_command import fleet

if TYPE_CHECKING:
    from collections.abc import Mapping

pytest.importorskip("xllamacpp", reason="pip install 'fleet[demo]'")
pytestmark = pytest.mark.llama
SIZE = Size(prefix=120, tail=110, requests=4, others=4)  # words; the model's tokens are letters
NAMED = {launch.name: launch for launch in LAUNCHES}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADS", "1")


@pytest.mark.parametrize("name", ["default", "swa_full", "primed", "chat, primed"])
def test_the_engine_reuses_what_the_rule_predicts(
    name: str, tiny_models: Mapping[str, Path]
) -> None:
    row = run(NAMED[name], tiny_models["gemma3"], SIZE)

    assert abs(row["reused"] - row["predicted"]) <= 0.02 * row["shared"]


def test_priming_makes_the_whole_prefix_reusable(tiny_models: Mapping[str, Path]) -> None:
    before = run(NAMED["default"], tiny_models["gemma3"], SIZE)
    after = run(NAMED["primed"], tiny_models["gemma3"], SIZE)

    assert before["reused"] == 0
    assert after["reused"] >= 0.99 * after["shared"]
    assert after["prime"] == "primed"


def test_priming_says_when_a_message_start_does_it_already(
    tiny_models: Mapping[str, Path],
) -> None:
    row = run(NAMED["chat, primed"], tiny_models["gemma3"], SIZE)

    assert row["prime"] == "not-needed"


def test_a_model_file_alone_counts_tokens(
    tiny_models: Mapping[str, Path],
    home: Path,  # noqa: ARG001 - its folders
    tmp_path: Path,
) -> None:
    captured = tmp_path / "requests.jsonl"
    captured.write_text('{"prompt": "one shared text, then 1"}\n' * 2)

    said = fleet(
        "prompts", "analyze", str(captured), "--model", str(tiny_models["llama"]), "--json"
    )

    assert said.code == 0, said.out
    assert (said.json["tokenizer"], said.json["estimated"]) == ("xllamacpp", False)


def test_the_prefix_survives_a_restart_and_check_keeps_it(
    tiny_models: Mapping[str, Path], home: Path, tmp_path: Path
) -> None:
    text, slots = tmp_path / "prefix.txt", tmp_path / "slots"
    text.write_text(words(SIZE.prefix, 1) + " ")
    slots.mkdir()
    folder = home / "config" / "fleet" / "profiles"
    folder.mkdir(parents=True)
    head = "version: 1\nname: shared"
    (folder / "m.yaml").write_text(f"kind: model\n{head}-model\npath: {tiny_models['gemma3']}\n")
    (folder / "e.yaml").write_text(f"kind: engine\n{head}-engine\nengine: embedded\n")
    (folder / "d.yaml").write_text(
        f"kind: deployment\n{head}\nhardware: auto\nmodel: shared-model\n"
        f"engine: shared-engine\nport: {free_port()}\nshared_prefix:\n  file: {text}\n"
        "settings:\n  ctx_size: 4096\n  parallel: 1\n  threads: 1\n"
        f"  slot_save_path: {slots}/\n"
    )
    try:
        first = fleet("up", "shared", "--json")
        assert first.code == 0, first.out
        assert len(list(slots.iterdir())) == 1
        reused, *rest = prefix_check()["message"].split()
        assert int(reused) >= 735
        assert rest == ["of", "742", "tokens", "reused"]
        url = first.json["servers"][0]["url"]
        forget(url)
        assert prefix_check()["message"].startswith("0 were reused; restored again")
        again = fleet("restart", "shared", "--yes")
        assert again.code == 0, again.err
        assert "restored: " in again.err
        assert prefix_check()["message"].startswith("7")
    finally:
        fleet("down", "shared", "--yes")


SERVED = """\
kind: deployment
version: 1
name: {name}
hardware: auto
model: {name}-model
engine: {name}-engine
port: {port}
shared_prefix:
  {prefix}
settings:
  ctx_size: 4096
  threads: 1
"""


@pytest.mark.parametrize(
    ("prefix", "settings", "outcome", "helps"),
    [
        ("system: PREFIX", "", "not-needed", {}),
        ("file: FILE", "", "held", {}),
        ("file: FILE", "  parallel: 2\n  kv_unified: true\n", "held", {}),
        ("file: FILE", "  cache_prompt: false\n", "cannot-help", {"cache_prompt": True}),
        ("file: FILE", "  swa_checkpoints: 0\n", "cannot-help", {"swa_full": True}),
        ("system: PREFIX", "  chat_template: '{{ bos_token }}hello'\n", "cannot-help", {}),
    ],
)
def test_prime_does_what_the_launch_needs_or_says_what_would(
    prefix: str, settings: str, outcome: str, helps: dict[str, object],
    tiny_models: Mapping[str, Path], home: Path, tmp_path: Path,
) -> None:  # fmt: skip
    text, fix = tmp_path / "prefix.txt", tmp_path / "fix.yaml"
    text.write_text(words(SIZE.prefix, 1) + " ")
    folder = home / "config" / "fleet" / "profiles"
    folder.mkdir(parents=True)
    head = "version: 1\nname: some"
    (folder / "m.yaml").write_text(f"kind: model\n{head}-model\npath: {tiny_models['gemma3']}\n")
    (folder / "e.yaml").write_text(f"kind: engine\n{head}-engine\nengine: embedded\n")
    shared = prefix.replace("FILE", str(text)).replace("PREFIX", words(SIZE.prefix, 1))
    served = SERVED.format(name="some", port=free_port(), prefix=shared)
    (folder / "d.yaml").write_text(served + settings)
    try:
        assert fleet("up", "some", "--json").code == 0
        answer = fleet("prompts", "prime", "some", "--json", "--fix-out", str(fix))
        assert answer.code == 0, answer.out
        said = answer.json
    finally:
        fleet("down", "some", "--yes")

    assert (said["outcome"], said["settings"]) == (outcome, helps), said["why"]
    assert all(name in fix.read_text() for name in helps)
    assert ("template" in said["why"]) is ("chat_template" in settings)


def prefix_check() -> dict[str, str]:
    said = fleet("check", "shared", "--json")
    (found,) = [one for one in said.json["checks"] if "shared prefix" in one["name"]]
    assert found["ok"], found
    return dict(found)


def forget(url: str) -> None:
    ServerClient(url=url, http=Http()).slot_action(0, "erase", "")
