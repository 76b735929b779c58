from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from fleet.cli.fit import app
from fleet.errors import FleetError, UserError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def run(*words: str) -> tuple[int, Any]:
    result = CliRunner().invoke(app, [*words, "--json"])
    if isinstance(result.exception, FleetError):
        return result.exception.exit_code, result.exception
    return result.exit_code, json.loads(result.stdout)


def test_what_fits_is_exit_0_with_the_whole_plan() -> None:
    code, answer = run("qwen2.5-7b", "--on", "gpu-8gb", "--ctx", "32768")

    assert (code, answer["fits"], answer["verdict"], answer["advice"]) == (0, True, "fits", [])
    (device,) = answer["devices"]
    parts = ("weights_mib", "kv_mib", "state_mib", "compute_mib", "overhead_mib", "free_mib")
    assert sum(device[part] for part in parts) == pytest.approx(device["capacity_mib"], abs=0.01)
    assert answer["kv"][0]["cells"] == 32768
    assert {"cache_ram_mib", "checkpoints_mib", "weights_mib"} <= answer["host"].keys()


def test_what_does_not_fit_is_exit_4_with_advice() -> None:
    code, answer = run("llama3.1-8b", "--on", "gpu-8gb", "--ctx", "32768")

    assert (code, answer["fits"]) == (4, False)
    assert [next(iter(each["set"])) for each in answer["advice"]][:2] == [
        "ctx_size", "cache_type_k",
    ]  # fmt: skip


def test_what_the_engine_refuses_is_exit_4_and_said() -> None:
    code, answer = run("kimi-k2", "--on", "epyc-9175f", "--ctx", "8192", "--cache-type-k", "q8_0")

    assert code == 4
    assert "same" in answer["refused"]


def test_tight_fits() -> None:
    words = ("--cache-type-k", "q8_0", "--cache-type-v", "q8_0", "--ctx", "32768")

    code, answer = run("gemma4-12b", "--on", "gpu-8gb", *words)

    assert (code, answer["fits"], answer["verdict"]) == (0, True, "tight")


def test_one_memory_for_cpu_and_gpu_carries_both() -> None:
    _, answer = run("gpt-oss-120b", "--on", "dgx-spark", "--quant", "MXFP4", "--ctx", "131072")

    host, (gpu,) = answer["host"], answer["devices"]
    assert answer["fits"]
    used = sum(gpu[k] for k in ("weights_mib", "kv_mib", "compute_mib", "overhead_mib"))
    assert host["free_mib"] < host["capacity_mib"] - used


def test_two_hosts_share_the_layers() -> None:
    _, answer = run("qwen3-235b-a22b", "--on", "dgx-spark-pair", "--ctx", "131072")

    assert answer["fits"]
    assert len(answer["devices"]) == 2
    assert all(device["weights_mib"] > 50_000 for device in answer["devices"])


def test_a_file_is_exact(tiny_models: Mapping[str, Path]) -> None:
    code, answer = run("--gguf", str(tiny_models["split"]), "--on", "gpu-8gb", "--max-ctx")

    assert (code, answer["tier"], answer["ctx"]) == (0, "file", 8192)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("lama3.1-8b", "--on", "gpu-8gb"), "no model or architecture"),
        (("llama3.1-8b", "--on", "gpu-9gb"), "gpu-9gb"),
        (("llama3.1-8b",), "--on HARDWARE"),
        (("llama3.1-8b", "--on", "gpu-8gb", "--quant", "Q9"), "Q9"),
        (("llama3.1-8b", "--on", "gpu-8gb", "--ctx", "-5"), "-5 tokens"),
        (("llama3.1-8b", "--on", "gpu-8gb", "--parallel", "0"), "not positive"),
        (("llama3.1-8b", "--on", "gpu-8gb", "--flash-attn", "maybe"), "on, off or auto"),
        (("llama3.1-8b", "--on", "gpu-8gb", "--gpu-layers", "some"), "no number of layers"),
        (("llama3.1-8b", "--on", "gpu-8gb", "--build", "new"), "no build"),
        (("--gguf", "nowhere.gguf", "--on", "gpu-8gb"), "no such model file"),
        (("--cases", "nowhere.jsonl"), "no such file of cases"),
    ],
)
def test_what_the_user_gave_wrong_is_exit_3(words: tuple[str, ...], says: str) -> None:
    code, error = run(*words)

    assert code == 3
    assert says in str(error)


def test_many_questions_are_a_line_each(tmp_path: Path) -> None:
    questions = [
        {"id": "a", "model": "gemma3-27b", "flags": {"c": 32768, "np": 4, "kvu": True}},
        {"id": "b", "model": "mamba2-2.7b", "flags": {"c": 8192, "ndev": 0}},
        {"id": "c", "model": "kimi-k2", "flags": {"ctk": "q8_0"}},
    ]
    file = tmp_path / "cases.jsonl"
    file.write_text("\n".join(json.dumps(each) for each in questions) + "\n\n")

    result = CliRunner().invoke(app, ["--cases", str(file)])

    first, second, third = map(json.loads, result.stdout.splitlines())
    assert [cache["name"] for cache in first["kv"]] == ["kv", "swa"]
    assert (second["kv"], list(second["compute_mib"])) == ([], ["CPU"])
    assert second["state_mib"] == pytest.approx(163.94, abs=0.01)
    assert third["refused"]


def test_a_wrong_line_is_answered_too_and_the_exit_code_is_3(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text('{"id": 1, "model": "qwen3-8b"}\nnope\n{"id": 3, "model": "qwen3-8b", '
                    '"flags": {"np": 0}}\n{"id": 4, "model": "qwen3-8b"}\n')  # fmt: skip

    result = CliRunner().invoke(app, ["--cases", str(file)])

    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, None, 3, 4]
    assert ["error" in answer for answer in answers] == [False, True, True, False]
    assert isinstance(result.exception, FleetError)
    assert "cases.jsonl:2" in str(result.exception)


def test_people_see_a_bar_for_each_device() -> None:
    result = CliRunner().invoke(app, ["qwen3-8b", "--on", "gpu-8gb", "--ctx", "8192"])

    assert "fits" in result.stdout
    assert "GPU0 WWW" in result.stdout


def test_a_plot_is_written(tmp_path: Path) -> None:
    file = tmp_path / "memory.svg"

    CliRunner().invoke(app, ["qwen3-8b", "--on", "gpu-8gb", "--ctx", "8192", "--plot", str(file)])

    assert "edge of memory" in file.read_text()


def test_a_plot_of_another_kind_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "memory.pdf"

    result = CliRunner().invoke(app, ["qwen3-8b", "--on", "gpu-8gb", "--plot", str(file)])

    assert isinstance(result.exception, UserError)
    assert not file.exists()


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("deepseek-v4-flash --quant UD-Q4_K_XL --ctx 131072", "fits"),
        ("minimax-m2 --quant UD-Q4_K_XL --ctx 131072", "fits"),
        ("qwen3.5-397b-a17b --quant Q3_K_M --ctx 131072", "fits"),
        ("qwen3.5-397b-a17b --quant Q4_K_M --ctx 131072", "no"),
        ("glm-4.6 --quant Q4_K_M --ctx 32768", "no"),
        ("deepseek-v3.2 --quant Q2_K --ctx 32768", "no"),
    ],
)
def test_a_pair_of_sparks_holds_two_hundred_gib(words: str, verdict: str) -> None:
    result = CliRunner().invoke(app, [*words.split(), "--on", "dgx-spark-pair", "--json"])

    assert json.loads(result.stdout)["verdict"] == verdict


def test_where_no_setting_helps_that_is_said() -> None:
    words = ["kimi-k3", "--on", "dgx-spark-pair", "--quant", "UD-IQ1_M", "--ctx", "8192"]

    assert "no setting makes it fit" in CliRunner().invoke(app, words).stdout


def test_cases_come_through_a_pipe_too() -> None:
    reads, writes = os.pipe()
    os.write(writes, b'{"id": "a", "model": "llama3.1-8b", "flags": {"c": 8192}}\n')
    os.close(writes)

    result = CliRunner().invoke(app, ["--cases", f"/dev/fd/{reads}"])

    os.close(reads)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["id"] == "a"


def test_what_no_engine_knows_is_the_users_mistake() -> None:
    code, error = run("qwen2.5-7b", "--on", "gpu-8gb", "--cache-type-k", "foo")

    assert (code, error.where) == (3, "--cache-type-k")
    words = ["qwen2.5-7b", "--on", "gpu-8gb", "--draft-tokens", "-4"]
    assert CliRunner().invoke(app, words).exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("qwen2.5-7b", "--on", "epyc-9175f", "--max-ctx"), "was trained for"),
        (("llama3.1-8b", "--on", "gpu-8gb", "--max-ctx"), ""),
        (("qwen2.5-7b", "--on", "gpu-8gb", "--ctx", "4096", "--cpu-moe", "all"), "no experts of"),
    ],
)
def test_what_bounds_the_answer_besides_memory_is_noted(words: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(app, [*words, "--json"])

    assert json.loads(result.stdout)["refused"] is None
    assert said in result.stderr
    assert bool(said) == bool(result.stderr)
