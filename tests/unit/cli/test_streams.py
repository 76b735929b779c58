from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FLEET = f"{sys.executable} -m fleet"


def shell(line: str) -> tuple[int, str, str]:
    done = subprocess.run(
        ["/bin/bash", "-c", f"set -o pipefail; {line}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("words", ["list", "compile deepseek-epyc --json"])
def test_a_reader_that_leaves_ends_the_program_well(words: str) -> None:
    assert shell(f"{FLEET} {words} | head -c 1 >/dev/null") == (0, "", "")


@pytest.mark.parametrize("more", ["", " --json"])
def test_a_verdict_keeps_its_code_when_its_reader_leaves(more: str) -> None:
    words = f"fit llama3.1-8b --on gpu-8gb --ctx 32768{more}"
    assert shell(f"{FLEET} {words} | true; exit ${{PIPESTATUS[0]}}") == (4, "", "")


@pytest.mark.parametrize("closed", ["<&- >/dev/null", ">&-", "2>&- >/dev/null", "<&- >&- 2>&-"])
def test_runs_without_a_stream(closed: str) -> None:
    assert shell(f"{FLEET} list {closed}") == (0, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a full disk to write")
@pytest.mark.parametrize("words", ["list", "list --json"])
def test_a_full_disk_behind_stdout_is_an_outside_error(words: str) -> None:
    code, _, err = shell(f"{FLEET} {words} >/dev/full")

    assert code == 5
    assert "Traceback" not in err


def test_an_error_without_stderr_keeps_its_code() -> None:
    code, out, _ = shell(f"{FLEET} show nosuch --json 2>&-")

    assert code == 3
    assert json.loads(out)["error"]["kind"] == "user"


def test_an_interrupt_while_modules_load_leaves_no_traceback() -> None:
    code, out, err = shell(f"timeout --preserve-status -s INT 0.2 {FLEET} doctor")

    assert "Traceback" not in out + err
    assert code in {0, 1, 130}  # a fast machine may have answered
