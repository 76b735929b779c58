"""The plan of a launch against what real engines print while they start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleet.compiler.memory.compare_with_reality import planned_memory, printed_memory
from fleet.compiler.memory.plan_memory import plan_memory
from fleet.compiler.memory.question import MemoryQuestion
from fleet.observe.read_model import read_model_file
from support.printed_memory import DEFAULTS, embedded_lines, server_lines

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from support.engines import WheelEngine

pytestmark = pytest.mark.llama

SMALLEST = 0.35  # MiB of inputs and norms that are no share of a tiny model's buffer
COMBINATIONS: tuple[dict[str, Any], ...] = (
    {},
    {"c": 8192, "ub": 256},
    {"c": 5000, "np": 3},
    {"np": 4},
    {"np": 4, "kvu": 1},
    {"np": 2, "kvu": 1, "ub": 1024},
    {"np": 2, "ub": 2048, "c": 8192},
    {"fa": 0},
    {"swa_full": 1},
    {"swa_full": 1, "np": 2, "c": 6000},
)
QUANTISED: tuple[dict[str, Any], ...] = (
    {"ctk": "q8_0", "ctv": "q8_0"},
    {"ctk": "bf16", "ctv": "bf16", "np": 2},
    {"ctk": "q4_0", "ctv": "q4_0", "np": 2, "kvu": 1},
)


def planned(model: Path, flags: Mapping[str, Any], build: int) -> dict[str, float]:
    f = {**DEFAULTS, **flags}
    question = MemoryQuestion(
        model=read_model_file(model),
        context=f["c"],
        parallel=f["np"],
        unified=bool(f["kvu"]),
        ubatch=f["ub"],
        type_k=f["ctk"],
        type_v=f["ctv"],
        flash_attention=bool(f["fa"]),
        swa_full=bool(f["swa_full"]),
        devices=0,
        build=build,
        no_repack=True,
        backend="cpu",
    )
    return planned_memory(plan_memory(question))


def assert_as_planned(lines: list[str], plan: Mapping[str, float], compute: float) -> None:
    actual = printed_memory(lines)
    assert {"kv", "output", "weights", "compute CPU"} <= actual.keys(), "".join(lines[-20:])
    for item in ("kv", "output", "weights"):
        # figures are printed with two digits, one rounding for each cache
        assert plan[item] == pytest.approx(actual[item], abs=0.011), item
    off = abs(plan["compute CPU"] - actual["compute CPU"])
    assert off <= max(compute * actual["compute CPU"], SMALLEST), (plan, actual)


ALL = [
    (name, flags)
    for name in ("llama", "gemma3", "deepseek2")
    for flags in (*COMBINATIONS, *QUANTISED)
    # a latent of 80 elements is no row of blocks of 32
    if name != "deepseek2" or flags.get("ctk", "f16") in {"f16", "bf16"}
]


@pytest.mark.parametrize(("name", "flags"), ALL, ids=str)
def test_embedded_engine_reserves_what_was_planned(
    name: str, flags: dict[str, Any], tiny_models: Mapping[str, Path]
) -> None:
    model = tiny_models[name]

    lines = embedded_lines(model, flags)

    assert_as_planned(lines, planned(model, flags, 11549), 0.05)


@pytest.mark.parametrize(
    "flags", [{"ctk": "q8_0", "ctv": "q8_0"}, {"ctk": "q4_0", "ctv": "q4_0"}], ids=str
)
def test_what_is_refused_the_engine_refuses(
    flags: dict[str, Any], tiny_models: Mapping[str, Path]
) -> None:
    question = MemoryQuestion(
        model=read_model_file(tiny_models["deepseek2"]),
        context=4096,
        type_k=flags["ctk"],
        type_v=flags["ctv"],
        devices=0,
    )

    lines = embedded_lines(tiny_models["deepseek2"], flags)

    assert "80 elements" in str(plan_memory(question).refused)
    assert "compute CPU" not in printed_memory(lines)


@pytest.mark.parametrize("flags", [{}, {"np": 4, "c": 8192}, {"np": 2, "kvu": 1}], ids=str)
def test_the_demo_model_reserves_what_was_planned(flags: dict[str, Any], demo_model: Path) -> None:
    lines = embedded_lines(demo_model, flags)

    assert_as_planned(lines, planned(demo_model, flags, 11549), 0.05)


@pytest.mark.parametrize("flags", COMBINATIONS[:7], ids=str)
@pytest.mark.parametrize("name", ["llama", "gemma3", "deepseek2"])
def test_an_older_server_reserves_what_was_planned(
    name: str,
    flags: dict[str, Any],
    tiny_models: Mapping[str, Path],
    wheel_engine: WheelEngine,
) -> None:
    model = tiny_models[name]

    lines = server_lines([str(wheel_engine.server)], str(model), flags)

    assert_as_planned(lines, planned(model, flags, wheel_engine.build), 0.05)
