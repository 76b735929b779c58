"""What a second host saves of a study's time, with the real engine, one core a host.

`tests/benchmarks/run tune_hosts` runs it: it prints the ratio, and has no bar (aim 0.85).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from support.town import NAME, Town, town_of_two

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@pytest.fixture
def town(
    podman: Mapping[str, str], engine_image: str, tiny_models: Mapping[str, Path], tmp_path: Path
) -> Iterator[Town]:
    model = tiny_models["llama"]
    with town_of_two(tmp_path, podman=podman, model=model, image=engine_image) as made:
        yield made


def test_how_much_time_the_second_host_saves(town: Town) -> None:
    assert town.fleet("up", NAME)[0] == 0  # the model gets there
    took = {}
    for hosts in ("h1", "h1,h2"):
        began = time.monotonic()
        words = ("--metric", "pp", "--trials", "16", "--hosts", hosts, "--fresh")
        code, told = town.fleet("tune", NAME, *words, "--set", "threads_batch=1")
        took[hosts] = time.monotonic() - began
        assert (code, told.get("trials")) == (0, 16), told

    print(f"\ntwo hosts took {took['h1,h2'] / took['h1']:.2f} of one's time with the real engine")
