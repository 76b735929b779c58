"""`fleet compile` and `fleet render` as another program calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.cli.main import main

RECORDED = Path(__file__).parents[2] / "recorded" / "server_help"
pytestmark = pytest.mark.usefixtures("home")
KEYS = {
    "name", "host", "engine", "build", "program", "argv", "env", "image", "mounts", "devices",
    "ports", "caps", "cpuset", "digest", "warnings",
}  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict]:
    """Return the exit code and the JSON document."""
    code = 0
    try:
        main([*words, "--json"])
    except SystemExit as left:
        code = int(left.code or 0)
    return code, json.loads(capsys.readouterr().out)


def test_every_key_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = run(capsys, "compile", "spark-pair-rpc")

    assert code == 0
    assert [server["name"] for server in answer["servers"]] == ["worker", "head"]
    assert all(server.keys() >= KEYS for server in answer["servers"])


def test_two_runs_print_the_same_bytes() -> None:
    words = [sys.executable, "-m", "fleet", "compile", "deepseek-epyc", "--json"]
    outputs = {subprocess.run(words, capture_output=True, check=True).stdout for _ in range(2)}

    assert len(outputs) == 1


@pytest.mark.parametrize("build", ["b9093", "9093"])
def test_a_build_by_either_name(build: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = run(
        capsys, "compile", "deepseek-epyc", "--set", "engine=llama.cpp", "--build", build
    )

    assert (code, answer["servers"][0]["build"]) == (0, 9093)


def test_a_recorded_help_decides(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--set", "engine=llama.cpp", "--help-file", str(RECORDED / "b11669.txt"))

    code, answer = run(capsys, "compile", "deepseek-epyc", *words)

    (server,) = answer["servers"]
    assert (code, server["build"]) == (0, 11669)
    assert [it["code"] for it in server["warnings"]] == ["build-inferred"]


def test_the_real_help_wins_and_a_difference_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (RECORDED / "b10434.txt").read_text()
    file = tmp_path / "help.txt"
    file.write_text(text.replace("--mlock", "--mlock-old") + "--lazy-mode MODE   from a fork\n")
    words = ("--set", "engine=llama.cpp", "--set", "lazy_mode=on", "--build", "b10434")

    code, answer = run(capsys, "compile", "deepseek-epyc", *words, "--help-file", str(file))

    (server,) = answer["servers"]
    assert code == 0
    assert "--lazy-mode" in server["argv"]
    assert "help-differs" in [it["code"] for it in server["warnings"]]


def test_variables_only_where_the_engine_reads_them(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--set", "engine=llama.cpp", "--build", "b11669", "--as", "env")

    _, answer = run(capsys, "compile", "deepseek-epyc", *words)

    (server,) = answer["servers"]
    assert server["env"]["LLAMA_ARG_CTX_SIZE"] == "16384"
    assert server["env"]["LLAMA_ARG_KV_UNIFIED"] == "0"
    assert server["argv"][:2] == ["-tb", "13"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("deepseek-epyc", "--build", "b9093"), 3),
        (("deepseek-epyc", "--build", "2025-09-29"), 3),
        (("demo", "--build", "b12"), 3),
        (("demo", "--set", "thread=1"), 3),
        (("nothing",), 3),
    ],
)
def test_exit_codes(words: tuple[str, ...], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    found, answer = run(capsys, "compile", *words)

    assert found == code
    assert answer["error"]["exit_code"] == code
    assert answer["error"]["fix"]


def test_renders_only_what_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("deepseek-epyc", "--to", str(tmp_path / "out"), "--only", "quadlet,inventory")

    code, answer = run(capsys, "render", *words)

    assert code == 0
    assert {Path(file).suffix for file in answer["files"]} == {".container", ".yaml"}
    assert all(Path(file).exists() for file in answer["files"])


@pytest.mark.parametrize("kind", ["qadlet", "preset"])
def test_a_kind_that_cannot_be(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = run(capsys, "render", "kimi-epyc", "--to", str(tmp_path / "out"), "--only", kind)

    assert code == 3
    assert not (tmp_path / "out").exists()
