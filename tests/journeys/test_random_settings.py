"""Random valid settings start the real engine; the long run is in `tests/benchmarks/`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import random_settings

pytestmark = [pytest.mark.llama, pytest.mark.slow]


@pytest.mark.usefixtures("wheel_engine")
def test_start_the_older_engine() -> None:
    counts = random_settings.run(random_settings.wheel(), 12, seed=3)

    assert counts["wrong"] == 0


@pytest.mark.podman
@pytest.mark.usefixtures("engine_image")
def test_start_the_packaged_engine() -> None:
    with random_settings.packaged() as engine:
        counts = random_settings.run(engine, 12, seed=4)

    assert counts["wrong"] == 0
