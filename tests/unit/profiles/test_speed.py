"""Scaled forms of `tests/benchmarks/profile_speed.py`, with its bars."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "profile_speed.py"
    spec = importlib.util.spec_from_file_location("profile_speed", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_compiling_deployments_takes_a_few_times_their_reading() -> None:
    ratios = benchmark().profile_ratios(count=200, rounds=3)

    assert ratios["parse and resolve"] <= 6
    assert ratios["parse, resolve and compile"] <= 12


def test_commands_start_about_as_fast_as_a_bare_program() -> None:
    ratios = benchmark().command_ratios(rounds=3)

    assert ratios["fleet --help / bare --help"] <= 1.3
    assert ratios["fleet compile / bare no-op"] <= 3
