"""Plans against three real engines, over every model and flag: memory_engines.py [ENGINE ...].

Caches, state, output and weights must be what the engine prints; the compute buffer within
5% where the architecture's rule is known. Engines: embedded, wheel, package.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fleet.compiler.memory.plan_memory import plan_memory
from fleet.compiler.memory.question import MemoryQuestion
from fleet.observe.read_model import read_model_file
from support import engines, models, podman_env
from support.planned_launch import compute_gap, planned, wrong_items
from support.printed_memory import embedded_lines, image_lines, server_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fleet.facts.model_facts import ModelFacts

Flags = dict[str, Any]
Asked = tuple[str, Flags]
NAMES = ("llama", "gemma3", "deepseek2", "lfm2", "mamba2")
COMPUTE = 0.05


def combinations() -> Iterator[Flags]:
    """Yield contexts and batches against slots and pools, then types, windows, no flash."""
    shapes = ({}, {"c": 8192, "ub": 256}, {"c": 5000}, {"ub": 1024}, {"c": 8192, "ub": 2048},
              {"c": 12288, "b": 512, "ub": 512})  # fmt: skip
    pools = ({}, {"np": 2}, {"np": 3}, {"np": 4, "kvu": 1}, {"np": 8})
    for shape, pool in itertools.product(shapes, pools):
        yield {**shape, **pool}
    for kind, pool in itertools.product(("q8_0", "bf16", "q4_0"), ({}, {"np": 2}, {"np": 4})):
        yield {"ctk": kind, "ctv": kind, **pool}
    for pool in ({}, {"np": 2}, {"np": 2, "kvu": 1}):
        yield {"fa": 0, **pool}
        yield {"swa_full": 1, "c": 6000, **pool}
    yield {"repack": 1}
    yield {"repack": 1, "np": 4}


def valid(model: ModelFacts, flags: Flags) -> bool:
    """Leave out what the engine refuses; that is told elsewhere."""
    question = MemoryQuestion(
        model=model, context=4096, type_k=flags.get("ctk", "f16"), type_v=flags.get("ctv", "f16")
    )
    return plan_memory(question).refused is None


def embedded(folder: Path, asked: Sequence[Asked]) -> list[list[str]]:
    return [embedded_lines(folder / name, flags) for name, flags in asked]


def wheel(folder: Path, asked: Sequence[Asked]) -> list[list[str]]:
    return [_of_the_wheel(str(folder / name), flags) for name, flags in asked]


def _of_the_wheel(model: str, flags: Flags) -> list[str]:
    """Start again a few times: this program dies now and then with a quantised cache."""
    program, lines = [str(engines.wheel_engine().server)], list[str]()
    for _ in range(4):
        lines = server_lines(program, model, flags)
        if any("compute buffer size" in line for line in lines):
            break
    return lines


def package(folder: Path, asked: Sequence[Asked]) -> list[list[str]]:
    image = podman_env.ensure_engine_image()
    os.environ |= podman_env.podman_environment()
    return image_lines(image, folder, asked)


ENGINES: dict[str, tuple[int, Callable[[Path, Sequence[Asked]], list[list[str]]]]] = {
    "embedded": (11549, embedded), "wheel": (10434, wheel), "package": (11669, package),
}  # fmt: skip


def judge(name: str, folder: Path, asked: Sequence[Asked], facts: dict[str, ModelFacts]) -> int:
    """Start all, print what is not as planned, and return how many those are."""
    build, start = ENGINES[name]
    wrong, gaps = 0, []
    for (model, flags), lines in zip(asked, start(folder, asked), strict=True):
        plan = planned(facts[model], flags, build)
        off = wrong_items(lines, plan)
        gaps.append(0.0 if "printed" in off else compute_gap(lines, plan))
        if off:
            print(f"  {name} {model} {flags}: {off}")
        wrong += bool(off)
    print(f"{name} b{build}: {len(asked)} starts, {wrong} wrong", flush=True)
    for model in facts:
        own = [gap for (asked_of, _), gap in zip(asked, gaps, strict=True) if asked_of == model]
        near = sum(gap <= COMPUTE for gap in own) / len(own)
        print(f"  {model}: compute median {median(own):.2%}, within 5% {near:.1%}", flush=True)
    return wrong


def main(names: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        tiny = models.tiny_models()
        for name in NAMES:
            shutil.copy(tiny[name], folder / f"{name}.gguf")
        shutil.copy(models.demo_model(), folder / "gemma-270m.gguf")
        facts = {path.name: read_model_file(path) for path in sorted(folder.iterdir())}
        asked = [(n, f) for n, m in facts.items() for f in combinations() if valid(m, f)]
        return sum(judge(name, folder, asked, facts) for name in names or ENGINES)


if __name__ == "__main__":
    raise SystemExit(1 if main(sys.argv[1:]) else 0)
