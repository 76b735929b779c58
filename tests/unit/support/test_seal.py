"""The seal on pure tests holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.pure
def test_reading_a_file_breaks_the_seal() -> None:
    with pytest.raises(AssertionError, match="touched the outside"):
        Path("/etc/hostname").read_text()


@pytest.mark.pure
def test_starting_a_process_breaks_the_seal() -> None:
    with pytest.raises(AssertionError, match="touched the outside"):
        subprocess.run([sys.executable, "-V"], check=False)
