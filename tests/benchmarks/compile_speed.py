"""Compile 1,000 deployments, parsing included, against reading the same YAML with the C loader.

`compile_speed.py [COUNT]`: interleaved, median of five; at most 12 times is wanted.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import yaml

from fleet.cli.load import load_deployment, load_library
from fleet.compiler.compile_deployment import compile_deployment
from fleet.facts.known_builds import build_facts
from fleet.shipped_files import shipped_folder

ROUNDS = 5
WANTED = 12.0


def main(count: int) -> int:
    """Print both times and their ratio; 1 when it is above what is wanted."""
    text = (shipped_folder("profiles") / "deepseek-epyc.yaml").read_text()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            named = text.replace("name: deepseek-epyc", f"name: many-{number}")
            (Path(folder) / f"many-{number}.yaml").write_text(named)
        pairs = [(_read(Path(folder)), _compile(folder, count)) for _ in range(ROUNDS)]
    ratio = statistics.median(compiled / read for read, compiled in pairs)
    read, compiled = (statistics.median(times) for times in zip(*pairs, strict=True))
    print(f"{count} deployments: read {read:.2f} s, compiled {compiled:.2f} s, {ratio:.1f} times")
    return int(ratio > WANTED)


def _read(folder: Path) -> float:
    start = time.process_time()
    for file in folder.iterdir():
        yaml.load(file.read_bytes(), yaml.CSafeLoader)
    return time.process_time() - start


def _compile(folder: str, count: int) -> float:
    start = time.process_time()
    library = load_library([folder])
    for number in range(count):
        deployment = load_deployment(f"many-{number}", library=library)
        build = build_facts(deployment.engine.engine, deployment.engine.build)
        compile_deployment(deployment, hosts={}, model=None, build=build)
    return time.process_time() - start


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if sys.argv[1:] else 1000))
