"""`fleet check` beside a real engine's own figures."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from fleet.effects.machine import free_port
from support.fleet_command import fleet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.llama


@pytest.fixture
def weighed(tiny_models: Mapping[str, Path], tmp_path: Path, home: Path) -> Iterator[Path]:
    """Bring up `weighed` and give its log."""
    model = shutil.copy(tiny_models["gemma3"], tmp_path / "weighed.gguf")
    sets = (f"port={free_port()}", "ctx_size=4096", "parallel=2", "threads=1")
    began = fleet("up", model, *(word for each in sets for word in ("--set", each)))
    assert began.code == 0, began
    yield next((home / "state").rglob("*.log"))
    assert fleet("down", "weighed", "--yes").code == 0


def memory_checks() -> dict[str, Any]:
    checks = fleet("check", "weighed", "--json").json["checks"]
    return {
        check["name"].partition("memory, ")[2]: check for check in checks
        if "memory, " in check["name"]
    }  # fmt: skip


def test_each_item_is_as_planned_and_a_gap_is_a_finding(weighed: Path) -> None:
    checks = memory_checks()
    assert {"kv", "weights", "output", "compute CPU", "total host"} <= checks.keys()
    assert all(check["ok"] for check in checks.values()), checks

    with weighed.open("a") as log:
        log.write("llama_kv_cache: size =  900.00 MiB (  4096 cells,   6 layers, 2/2 seqs)\n")

    leaked = memory_checks()["kv"]
    assert not leaked["ok"]
    assert leaked["message"].startswith("90")
    assert fleet("check", "weighed").code == 1
