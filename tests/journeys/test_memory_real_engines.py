"""The plan of a launch against what real engines print while they start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleet.compiler.memory.compare_with_reality import printed_memory
from fleet.compiler.memory.plan_memory import plan_memory
from fleet.compiler.memory.question import MemoryQuestion
from fleet.observe.read_model import read_model_file
from support.planned_launch import compute_gap, planned, wrong_items
from support.printed_memory import embedded_lines, image_lines, server_lines

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from support.engines import WheelEngine

pytestmark = pytest.mark.llama

EMBEDDED, PACKAGED = 11549, 11669
COMPUTE = 0.05
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
    {"repack": 1},
)
QUANTISED: tuple[dict[str, Any], ...] = (
    {"ctk": "q8_0", "ctv": "q8_0"},
    {"ctk": "bf16", "ctv": "bf16", "np": 2},
    {"ctk": "q4_0", "ctv": "q4_0", "np": 2, "kvu": 1},
)
KNOWN = ("llama", "gemma3", "deepseek2")
RECURRENT = ("lfm2", "mamba2")


def assert_as_planned(lines: list[str], model: Path, flags: Mapping[str, Any], build: int) -> None:
    plan = planned(read_model_file(model), flags, build)
    assert not wrong_items(lines, plan), "".join(lines[-20:])
    # the buffer of recurrent layers is known by the records of real models alone
    if model.stem not in RECURRENT:
        assert compute_gap(lines, plan) <= COMPUTE, (plan, printed_memory(lines))


ALL = [
    (name, flags)
    for name in KNOWN
    for flags in (*COMBINATIONS, *QUANTISED)
    # a latent of 80 elements is no row of blocks of 32
    if name != "deepseek2" or flags.get("ctk", "f16") in {"f16", "bf16"}
] + [(name, flags) for name in RECURRENT for flags in COMBINATIONS[:5]]


# one container runs them all in seconds; the others need a process for each
@pytest.mark.parametrize(("name", "flags"), ALL[::2], ids=str)
def test_embedded_engine_reserves_what_was_planned(
    name: str, flags: dict[str, Any], tiny_models: Mapping[str, Path]
) -> None:
    lines = embedded_lines(tiny_models[name], flags)

    assert_as_planned(lines, tiny_models[name], flags, EMBEDDED)


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


DEMO: tuple[dict[str, Any], ...] = ({"np": 4, "c": 8192}, {"np": 2, "kvu": 1}, {"repack": 1})


@pytest.mark.parametrize("flags", DEMO, ids=str)
def test_the_demo_model_reserves_what_was_planned(flags: dict[str, Any], demo_model: Path) -> None:
    assert_as_planned(embedded_lines(demo_model, flags), demo_model, flags, EMBEDDED)


@pytest.mark.parametrize("flags", COMBINATIONS[:7:2], ids=str)
@pytest.mark.parametrize("name", KNOWN)
def test_an_older_server_reserves_what_was_planned(
    name: str,
    flags: dict[str, Any],
    tiny_models: Mapping[str, Path],
    wheel_engine: WheelEngine,
) -> None:
    lines = server_lines([str(wheel_engine.server)], str(tiny_models[name]), flags)

    assert_as_planned(lines, tiny_models[name], flags, wheel_engine.build)


def test_the_packaged_server_reserves_what_was_planned(
    tiny_models: Mapping[str, Path], engine_image: str
) -> None:
    folder = tiny_models["llama"].parent
    asked = [(tiny_models[name].name, flags) for name, flags in ALL]

    started = image_lines(engine_image, folder, asked)

    assert len(started) == len(ALL)
    for (name, flags), lines in zip(ALL, started, strict=True):
        assert_as_planned(lines, tiny_models[name], flags, PACKAGED)


def test_the_demo_model_in_the_packaged_server(demo_model: Path, engine_image: str) -> None:
    started = image_lines(
        engine_image, demo_model.parent, [(demo_model.name, flags) for flags in DEMO]
    )

    for flags, lines in zip(DEMO, started, strict=True):
        assert_as_planned(lines, demo_model, flags, PACKAGED)
