"""What `--json` prints, key for key, for the verbs that need no server.

Other programs read these documents: a key that goes is a breaking change.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.cli.main import main
from unit.diagnose.epyc_log import epyc_log

AREA = {
    "name", "capacity_mib", "weights_mib", "kv_mib", "state_mib", "compute_mib", "overhead_mib",
    "free_mib",
}  # fmt: skip
CACHE = {"name", "mib", "k_mib", "v_mib", "cells", "layers"}
FIT = {
    "fits", "verdict", "devices", "host", "kv", "state_mib", "output_mib", "needed_mib", "advice",
    "refused",
}  # fmt: skip
SERVER = {
    "name", "host", "engine", "build", "program", "argv", "env", "image", "mounts", "devices",
    "ports", "caps", "cpuset", "digest", "warnings",
}  # fmt: skip
DIAGNOSIS = {
    "engine", "generation", "build", "tasks", "kv_type", "kv_mib", "gpu_layers", "n_ctx",
    "checkpoints", "slot_select", "prompt_cache", "oom", "crash", "vllm", "findings", "verdict",
}  # fmt: skip
TASK = {
    "task", "slot", "prompt_tokens", "processed_tokens", "cached_tokens", "gen_tokens", "pp_tps",
    "tg_tps", "draft_acceptance", "draft_accepted", "draft_generated", "mean_len", "lcp_tokens",
}  # fmt: skip
CHECKPOINTS = {"created", "restored", "erased_invalidated", "erased_old", "forced_full", "max"}
VLLM = {"prefix_hit_rate", "kv_usage", "running", "waiting", "preemptions", "attention_block_size"}
FINDING = {"code", "priority", "level", "cost_s", "message", "fix", "evidence"}
ERROR = {"kind", "message", "where", "fix", "exit_code"}


class Fleet:
    """The program, and what it answers as JSON."""

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self.captured = captured

    def __call__(self, *words: str) -> tuple[int, Any]:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--json"])
        return int(str(ended.value.code)), json.loads(self.captured.readouterr().out)


@pytest.fixture
def fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Fleet:
    monkeypatch.chdir(tmp_path)
    for name in ("CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    return Fleet(capsys)


def each(found: list[dict[str, Any]], keys: set[str]) -> None:
    """Every entry has these keys; an empty list would prove nothing."""
    assert found
    assert all(entry.keys() >= keys for entry in found)


def test_list_and_show(fleet: Fleet) -> None:
    code, listed = fleet("list")
    _, shown = fleet("show", "deepseek-epyc")

    assert code == 0
    assert listed.keys() == {"profiles"}
    each(listed["profiles"], {"kind", "name", "file", "layer"})
    assert shown.keys() == {"deployment", "settings"}
    each(list(shown["settings"].values()), {"value", "layer", "file", "line"})


def test_validate(fleet: Fleet) -> None:
    Path("bad.yaml").write_text("kind: deployment\nversion: 1\nmodle: x\n")

    code, answer = fleet("validate", "bad.yaml")

    assert code == 3
    assert answer.keys() == {"files"}
    each(answer["files"], {"file", "valid", "errors"})
    each(answer["files"][0]["errors"], {"line", "path", "message", "near"})


@pytest.mark.parametrize(
    "name", ["deepseek-epyc", "demo", "kimi-epyc", "qwen-780m", "spark-pair-rpc"]
)
def test_compile(name: str, fleet: Fleet) -> None:
    code, answer = fleet("compile", name)

    assert code == 0
    assert answer.keys() == {"deployment", "servers"}
    each(answer["servers"], SERVER)
    assert all(it["program"] not in it["argv"] for it in answer["servers"])
    for server in answer["servers"]:
        assert all(warning.keys() == {"code", "message"} for warning in server["warnings"])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("deepseek-v3.2-speciale", "--on", "epyc-9175f"), 0),
        (("qwen2.5-72b", "--on", "rtx-3090", "--ctx", "131072"), 4),
    ],
)
def test_fit(words: tuple[str, ...], code: int, fleet: Fleet) -> None:
    ended, answer = fleet("fit", *words)

    assert ended == code
    assert answer.keys() >= FIT
    assert all(device.keys() == AREA for device in answer["devices"])
    assert answer["host"].keys() >= AREA | {"cache_ram_mib", "checkpoints_mib"}
    each(answer["kv"], CACHE)
    assert all(it.keys() == {"set", "fits", "why"} for it in answer["advice"])
    assert answer["fits"] is (code == 0)


def test_fit_of_cases(fleet: Fleet) -> None:
    Path("c.jsonl").write_text('{"id": 7, "model": "deepseek-v3.2", "flags": {"c": 4096}}\n')

    _, answer = fleet("fit", "--cases", "c.jsonl")

    assert answer.keys() == {"id", "kv", "state_mib", "compute_mib", "output_mib", "refused"}


def test_plan_status_history_and_doctor(fleet: Fleet) -> None:
    wanted, plan = fleet("plan", "demo", "--set", "model=qwen2.5-0.5b", "--runtime", "embedded")
    quiet, status = fleet("status")
    _, history = fleet("history", "demo")
    _, doctor = fleet("doctor")

    assert wanted in {1, 3}
    if wanted == 1:
        each(plan["changes"], {"host", "server", "action", "why"})
    assert (quiet, status, history) == (0, {"servers": []}, {"generations": []})
    each(doctor["checks"], {"host", "name", "ok", "message", "fix"})


def test_diagnose(fleet: Fleet) -> None:
    Path("server.log").write_text(epyc_log())

    code, answer = fleet("diagnose", "server.log")

    assert code in {0, 1}
    assert answer.keys() >= DIAGNOSIS
    each(answer["tasks"], TASK)
    assert answer["checkpoints"].keys() >= CHECKPOINTS
    assert answer["vllm"] is None or answer["vllm"].keys() == VLLM
    each(answer["findings"], FINDING)
    for finding in answer["findings"]:
        assert finding["level"] in {"error", "high", "low", "info"}
        assert len(finding["evidence"]) <= 5
        assert all(line.keys() == {"line", "text"} for line in finding["evidence"])


def test_prompts(fleet: Fleet) -> None:
    talk = [{"messages": [{"role": "user", "content": f"the same words {n}"}]} for n in range(3)]
    Path("p.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in talk))

    code, answer = fleet("prompts", "analyze", "p.jsonl")

    assert code == 0
    wanted = {"requests", "common_prefix_tokens", "reusable_tokens", "breaks", "advice"}
    assert answer.keys() >= wanted
    assert all(it.keys() >= {"at_token", "where", "kind", "share"} for it in answer["breaks"])
    assert all(it.keys() >= {"change", "reusable_tokens_after"} for it in answer["advice"])


def test_a_binary_file_holds_no_requests(fleet: Fleet) -> None:
    Path("model.gguf").write_bytes(b"GGUF\x03\0\0\0")

    code, answer = fleet("prompts", "analyze", "model.gguf")

    assert code == 3
    assert answer["error"]["where"] == "model.gguf"


def test_a_program_that_measures_nothing(fleet: Fleet) -> None:
    space = {"parameters": [{"name": "a", "kind": "choice", "values": [1, 2]}], "default": {"a": 1}}
    Path("s.json").write_text(json.dumps(space))

    code, answer = fleet("tune", "external", "--space", "s.json", "--measure", "false")

    assert code in {3, 5}
    assert answer["error"].keys() == ERROR


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("show", "demmo"), 3),
        (("compile", "demo", "--set", "bind=0.0.0.0"), 3),
        (("report", "nowhere"), 3),
        (("down", "never-upped"), 3),
        (("key", "../demo"), 3),
        (("bench", "compare", "a", "b"), 3),
        (("tune", "report", "demo"), 3),
        (("compile",), 2),
        (("compile", "demo", "--nosuch"), 2),
        (("nosuch",), 2),
        (("bench", "demo", "--repeat", "0"), 2),
        (("doctor", "host.invalid"), 1),
    ],
)
def test_an_error_is_one_object_with_the_code_it_exits_with(
    words: tuple[str, ...], code: int, fleet: Fleet
) -> None:
    ended, answer = fleet(*words)

    assert ended == code
    if "error" in answer:
        assert answer["error"].keys() == ERROR
        assert answer["error"]["exit_code"] == code
