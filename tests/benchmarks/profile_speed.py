"""How long profiles take: a thousand deployments against PyYAML's C loader, and the commands.

`python tests/benchmarks/profile_speed.py` prints ratios; all parts are interleaved in one run.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import yaml

from fleet.cli.load import load_library
from fleet.compiler.compile_deployment import compile_deployment
from fleet.facts.known_builds import build_facts
from fleet.profiles.library import ProfileLibrary, ProfileSource
from fleet.profiles.resolve_deployment import resolve_deployment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fleet.profiles.kinds import Deployment

DEPLOYMENTS = 1000
ROUNDS = 7
COMMAND_ROUNDS = 20

TEXT = """\
# deployment {index} of a fleet
kind: deployment
version: 1
name: chat-{index}
hardware: epyc-9175f
model: deepseek-v3.2-speciale
engine: ik_llama.cpp
workload: chat
port: {port}
settings:
  threads: {threads}
  threads_batch: {threads}
  ctx_size: 16384
  parallel: 1
  batch_size: 2048
  ubatch_size: 512
  flash_attention: on
  cache_type_k: q8_0
  cache_type_v: q8_0
"""

BARE = """\
import typer
app = typer.Typer()
@app.command()
def one(name: str = "x") -> None:
    "One."
@app.command()
def two(name: str = "x") -> None:
    "Two."
app()
"""


def texts(count: int) -> list[bytes]:
    """Return deployments, each a little different."""
    return [
        TEXT.format(index=index, port=10_000 + index, threads=1 + index % 16).encode()
        for index in range(count)
    ]


def read_with_c_loader(files: list[bytes]) -> None:
    """Read the YAML alone: what everything is compared with."""
    for content in files:
        yaml.load(content, Loader=yaml.CSafeLoader)


def resolved(files: list[bytes]) -> Iterator[Deployment]:
    """Read, check and resolve all of them against the shipped profiles."""
    shipped = load_library().sources
    written = (
        ProfileSource(file=f"fleet/chat-{index}.yaml", layer="user", content=content)
        for index, content in enumerate(files)
    )
    library = ProfileLibrary([*written, *shipped])
    for index in range(len(files)):
        yield resolve_deployment(library, f"chat-{index}")


def compile_all(files: list[bytes]) -> int:
    """Do that and compile them for their engine's build; return how many launches there are."""
    build = build_facts("ik_llama.cpp", None)
    return sum(
        len(compile_deployment(each, hosts={}, model=None, build=build)) for each in resolved(files)
    )


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of `work`."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def medians(parts: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return each part's median over interleaved rounds."""
    taken: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(rounds):
        for name, work in parts.items():
            taken[name].append(seconds(work))
    return {name: statistics.median(times) for name, times in taken.items()}


def profile_ratios(count: int = DEPLOYMENTS, rounds: int = ROUNDS) -> dict[str, float]:
    """Return how many times the C loader's time resolving and compiling take."""
    files = texts(count)
    found = medians(
        {
            "read": lambda: read_with_c_loader(files),
            "parse and resolve": lambda: list(resolved(files)),
            "parse, resolve and compile": lambda: compile_all(files),
        },
        rounds,
    )
    return {name: took / found["read"] for name, took in found.items() if name != "read"}


def command_ratios(rounds: int = COMMAND_ROUNDS) -> dict[str, float]:
    """Return `--help`, `show` and `compile` against a bare two-command typer program."""
    with TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.py"
        bare.write_text(BARE)
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}

        def run(*words: str) -> Callable[[], object]:
            return lambda: subprocess.run(
                [sys.executable, *words], env=environment, capture_output=True, check=True
            )

        found = medians(
            {
                "bare --help": run(str(bare), "--help"),
                "fleet --help": run("-m", "fleet", "--help"),
                "bare one": run(str(bare), "one"),
                "fleet show": run("-m", "fleet", "show", "deepseek-epyc", "--json"),
                "fleet compile": run("-m", "fleet", "compile", "deepseek-epyc", "--json"),
            },
            rounds,
        )
    return {
        "fleet --help / bare --help": found["fleet --help"] / found["bare --help"],
        "fleet show / bare no-op": found["fleet show"] / found["bare one"],
        "fleet compile / bare no-op": found["fleet compile"] / found["bare one"],
    }


def main() -> None:
    """Print the ratios."""
    for name, ratio in profile_ratios().items():
        print(f"{name} {DEPLOYMENTS} deployments / C loader: {ratio:.2f}")
    for name, ratio in command_ratios().items():
        print(f"{name}: {ratio:.2f}")


if __name__ == "__main__":
    main()
