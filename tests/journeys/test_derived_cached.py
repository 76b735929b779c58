"""The cached tokens read or derived from a real engine's log are those that it told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from derived_cached import run

if TYPE_CHECKING:
    from collections.abc import Mapping

pytest.importorskip("xllamacpp", reason="pip install 'fleet[demo]'")
pytestmark = pytest.mark.llama


@pytest.mark.parametrize("model", ["gemma3", "llama"])
def test_every_request_of_a_mixed_log_agrees(model: str, tiny_models: Mapping[str, Path]) -> None:
    told, read = run("b11549", tiny_models[model], 14)

    assert sorted(read) == sorted(told)
    assert any(cached for cached, _, _ in told)
