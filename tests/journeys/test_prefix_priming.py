"""Priming on the real embedded engine with a tiny sliding-window model, beside its prediction."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from prefix_variants import LAUNCHES, run

if TYPE_CHECKING:
    from collections.abc import Mapping

pytest.importorskip("xllamacpp", reason="pip install 'fleet[demo]'")
pytestmark = pytest.mark.llama
PREFIX, TAIL, REQUESTS = 120, 110, 4  # words; the model's tokens are letters
NAMED = {launch.name: launch for launch in LAUNCHES}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADS", "1")


@pytest.mark.parametrize("name", ["default", "swa_full", "primed", "chat, primed"])
def test_the_engine_reuses_what_the_rule_predicts(
    name: str, tiny_models: Mapping[str, Path]
) -> None:
    row = run(NAMED[name], tiny_models["gemma3"], PREFIX, TAIL, REQUESTS)

    assert abs(row["reused"] - row["predicted"]) <= 0.02 * row["shared"]


def test_priming_makes_the_whole_prefix_reusable(tiny_models: Mapping[str, Path]) -> None:
    before = run(NAMED["default"], tiny_models["gemma3"], PREFIX, TAIL, REQUESTS)
    after = run(NAMED["primed"], tiny_models["gemma3"], PREFIX, TAIL, REQUESTS)

    assert before["reused"] == 0
    assert after["reused"] >= 0.99 * after["shared"]
    assert after["prime"] == "primed"


def test_priming_says_when_a_message_start_does_it_already(
    tiny_models: Mapping[str, Path],
) -> None:
    row = run(NAMED["chat, primed"], tiny_models["gemma3"], PREFIX, TAIL, REQUESTS)

    assert row["prime"] == "not-needed"
