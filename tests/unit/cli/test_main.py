from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from fleet.cli.main import asks_json, main, take_verbosity
from fleet.cli.readable_errors import readable_errors
from fleet.cli.verbs import VERBS
from fleet.errors import DoesNotFit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def fleet(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fleet", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def ended(
    work: Callable[[], object], capsys: pytest.CaptureFixture[str], *, as_json: bool = True
) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped, readable_errors(as_json=as_json, words=["up", "x"]):
        work()
    out, err = capsys.readouterr()
    return int(str(stopped.value.code)), out, err


def raising(error: BaseException) -> Callable[[], object]:
    def work() -> None:
        raise error

    return work


def test_help_names_every_verb() -> None:
    answer = fleet("--help")

    assert answer.returncode == 0
    assert all(f"\n  {verb} " in answer.stdout for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_its_own_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([verb, "-h"])

    assert stopped.value.code == 0
    assert f"Usage: fleet {verb} " in capsys.readouterr().out


def test_help_loads_no_verb() -> None:
    code = (
        "import sys, fleet.cli.main as m\ntry: m.main(['--help'])\nexcept SystemExit: pass\n"
        "print([n for n in sys.modules if 'yaml' in n or 'rich' in n])"
    )
    listed = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert listed.stdout.rstrip().endswith("[]")


@pytest.mark.parametrize(
    ("words", "left", "level"),
    [
        (["-v", "up", "x"], ["up", "x"], 1),
        (["up", "x", "-vv"], ["up", "x"], 2),
        (["up", "--verbose", "x", "-v"], ["up", "x"], 2),
        (["tune", "external", "--", "-v"], ["tune", "external", "--", "-v"], 0),
    ],
)
def test_verbosity_may_stand_anywhere(words: list[str], left: list[str], level: int) -> None:
    assert take_verbosity(words) == (left, level)


def test_json_is_asked_for_before_the_double_dash_only() -> None:
    assert asks_json(["show", "--json"])
    assert not asks_json(["show", "--", "--json"])


def test_an_expected_failure_has_its_parts_and_code(capsys: pytest.CaptureFixture[str]) -> None:
    error = DoesNotFit("needs 26.1 GiB", where="GPU 0", fix="set `ctx_size: 16384`")

    code, out, _ = ended(raising(error), capsys)
    _, text, err = ended(raising(error), capsys, as_json=False)

    assert code == 4
    assert json.loads(out)["error"] == {
        "kind": "does-not-fit", "message": "needs 26.1 GiB", "where": "GPU 0",
        "fix": "set `ctx_size: 16384`", "exit_code": 4,
    }  # fmt: skip
    assert text == ""
    assert err == "error: GPU 0: needs 26.1 GiB\n\nhint: set `ctx_size: 16384`\n"


def test_a_bug_writes_a_log_and_names_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    code, out, _ = ended(raising(ZeroDivisionError("oops")), capsys)

    error = json.loads(out)["error"]
    assert (code, error["kind"]) == (70, "bug")
    with open(error["where"], encoding="utf-8") as log:  # noqa: PTH123 - as the user would
        assert "ZeroDivisionError: oops" in log.read()


@pytest.mark.parametrize(
    ("library", "extra"),
    [("optuna", "tune"), ("matplotlib.pyplot", "report"), ("xllamacpp", "demo")],
)
def test_a_missing_extra_says_what_to_install(
    library: str, extra: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = ended(raising(ModuleNotFoundError("gone", name=library)), capsys)

    assert code == 5
    assert f"fleet[{extra}]" in json.loads(out)["error"]["fix"]


def test_ctrl_c_is_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(raising(KeyboardInterrupt()), capsys)[0] == 130


def test_a_disk_error_is_the_outsides(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ended(raising(OSError(28, "No space left on device", "/x")), capsys)

    assert code == 5
    assert json.loads(out)["error"]["where"] == "/x"


def test_a_pipe_that_closes_is_no_failure() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "fleet", "schema", "deployment"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()

    assert b"Traceback" not in said
    assert b"Exception" not in said


def _opened_when_read(fifo: Path) -> int:
    """Open a pipe for writing as soon as somebody reads it."""
    until = time.monotonic() + 60
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.02)


def _interrupted(process: subprocess.Popen[str]) -> str:
    """Send Ctrl-C until it is heeded: Python misses one just before it begins to read."""
    for _ in range(6):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=10)[1]
    raise AssertionError("Ctrl-C was not heeded")


def test_a_real_ctrl_c_ends_with_130(tmp_path: Path) -> None:
    fifo = tmp_path / "p.yaml"
    os.mkfifo(fifo)
    with subprocess.Popen(
        [sys.executable, "-m", "fleet", "fit", "--cases", str(fifo)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    ) as process:  # fmt: skip
        end = _opened_when_read(fifo)  # it now waits for what comes through the pipe
        try:
            err = _interrupted(process)
        finally:
            os.close(end)

    assert process.returncode == 130
    assert "Traceback" not in err


def test_output_for_a_pipe_has_no_colours() -> None:
    for environment in ({}, {"NO_COLOR": "1"}, {"FORCE_COLOR": "1", "NO_COLOR": "1"}):
        answer = fleet("list", "hardware", **environment)
        assert answer.returncode == 0
        assert "\x1b[3" not in answer.stdout


def test_completes_verbs_and_names() -> None:
    def complete(line: str) -> list[str]:
        words = line.split(" ")
        answer = fleet(
            _FLEET_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1)
        )
        return answer.stdout.split()

    assert complete("fleet va") == ["validate"]
    assert complete("fleet show deepseek-epyc-") == ["deepseek-epyc-original"]
    assert complete("fleet init x --on dgx-spark-") == ["dgx-spark-pair"]
    assert len(complete("fleet ")) == len(VERBS)
