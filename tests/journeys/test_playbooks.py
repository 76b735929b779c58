"""The playbooks are ones that Ansible and its linter accept, and that explain themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.shipped_files import shipped_folder

pytestmark = pytest.mark.ansible

PLAYBOOKS = sorted(shipped_folder("playbooks").glob("*.yml"))
BESIDE = Path(sys.executable).parent


def said(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of this environment, with a home of its own."""
    variables = {
        **os.environ, "PATH": f"{BESIDE}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"), "NO_COLOR": "1",
    }  # fmt: skip
    return subprocess.run(
        words, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )


def test_ansible_can_read_each(tmp_path: Path) -> None:
    done = said(tmp_path, "ansible-playbook", "--syntax-check", "-i", "host,", *map(str, PLAYBOOKS))

    assert len(PLAYBOOKS) >= 7
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_linter_has_nothing_to_say(tmp_path: Path) -> None:
    if shutil.which("ansible-lint", path=str(BESIDE)) is None:
        pytest.skip("ansible-lint is not installed: pip install ansible-lint")
    for file in PLAYBOOKS:
        shutil.copy(file, tmp_path)

    done = said(tmp_path, "ansible-lint", "--offline", "--profile=production", "-q")

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", PLAYBOOKS, ids=lambda file: file.stem)
def test_each_says_what_it_does_and_how_it_is_run_by_hand(file: Path) -> None:
    head = file.read_text().partition("---\n")[0]

    assert head.startswith("# ")
    assert f"ansible-playbook -i HOST, {file.name}" in head
