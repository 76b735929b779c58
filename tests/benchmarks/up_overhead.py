"""What `fleet up` takes beyond the engine's own start, and the memory of the command.

    python tests/benchmarks/up_overhead.py [embedded|podman ...] [--pairs 10]

Pairs are interleaved: the engine alone from start to /health 200, then `fleet up` of the same
launch, already built, priming off. The median of the differences counts (bars: 1.5 s embedded,
2.5 s podman), and the peak resident memory of the command (bar: 120 MB).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from support import models, podman_env
from support.fleet_command import fleet, fleet_words
from support.free_port import free_port

BARS_S = {"embedded": 1.5, "podman": 2.5}
BAR_MB = 120


def main() -> int:
    """Measure the runtimes named and print a table; 1 when a bar is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("runtimes", nargs="*", default=list(BARS_S))
    parser.add_argument("--pairs", type=int, default=10)
    asked = parser.parse_args()
    if "podman" in asked.runtimes:  # before the folders change: image and storage are kept
        os.environ.update(podman_env.podman_environment())
        podman_env.ensure_engine_image()
    model = models.demo_model()
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("CONFIG", "STATE", "CACHE"):
            os.environ[f"XDG_{kind}_HOME"] = f"{folder}/{kind.lower()}"
        # as installed: compiled once, also where the machine does not keep bytecode
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
        missed = [name for name in asked.runtimes if not measure(name, asked.pairs, model)]
    return 1 if missed else 0


def measure(runtime: str, pairs: int, model: Path) -> bool:
    """Print what one runtime takes; whether it keeps its bars."""
    words = deployment_words(runtime, model)
    from_fleet = fleet("up", *words, "--yes")
    assert from_fleet.code == 0, from_fleet.err  # built, fetched, remembered
    fleet("down", "bench-up", "--yes")
    alone, whole, peaks = [], [], []
    for _ in range(pairs):
        alone.append(engine_alone(runtime))
        seconds, peak = run_measured(["up", *words])
        whole.append(seconds)
        peaks.append(peak)
        fleet("down", "bench-up", "--yes")
    overs = [b - a for a, b in zip(alone, whole, strict=True)]
    over = median(overs)
    print(
        f"{runtime}: engine {median(alone):.2f} s, fleet up {median(whole):.2f} s, "
        f"over {over:.2f} s (least {min(overs):.2f}, bar {BARS_S[runtime]}), "
        f"peak {max(peaks):.0f} MB (bar {BAR_MB})"
    )
    return over <= BARS_S[runtime] and max(peaks) < BAR_MB


def deployment_words(runtime: str, model: Path) -> list[str]:
    """Write a deployment without a shared prefix and return the words for `up`."""
    folder = Path(os.environ["XDG_CONFIG_HOME"]) / "fleet" / "profiles"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench-model.yaml").write_text(
        f"kind: model\nversion: 1\nname: bench-model\npath: {model}\n"
    )
    image = ""
    if runtime == "podman":
        image = f"image: {podman_env.ENGINE_IMAGE}\n"
    (folder / "bench-engine.yaml").write_text(
        f"kind: engine\nversion: 1\nname: bench-engine\n{image}"
        f"engine: {'llama.cpp' if runtime == 'podman' else 'embedded'}\n"
    )
    (folder / "bench-up.yaml").write_text(
        "kind: deployment\nversion: 1\nname: bench-up\nhardware: auto\nmodel: bench-model\n"
        f"engine: bench-engine\nport: {free_port()}\nsettings:\n  ctx_size: 2048\n  parallel: 1\n"
        "  threads: 1\n"  # two that wait for each other measure what else runs here
    )
    return ["bench-up", "--runtime", runtime]


ENGINE_ALONE = """
import json, sys, time
from fleet.cli.load import load_deployment
from fleet.deploy.find_hosts import local_host
from fleet.deploy.generations import read_generations
from fleet.deploy.rim import Rim
from fleet.observe.server_client import ServerClient
rim = Rim()
host = local_host(sys.argv[1], rim)
launch = read_generations(rim.folders, "bench-up")[-1].launches[0]
began = time.monotonic()
server = host.start(launch, generation=9)
client = ServerClient(url=server.url, http=rim.http)
while client.health() != "ready":
    time.sleep(0.01)
print(time.monotonic() - began)
host.stop(server)
"""


def engine_alone(runtime: str) -> float:
    """Start the same launch without any of `up`; return seconds to /health 200."""
    done = subprocess.run(
        [sys.executable, "-c", ENGINE_ALONE, runtime], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def run_measured(words: list[str]) -> tuple[float, float]:
    """Return seconds and peak resident MB of one `fleet` command."""
    began = time.monotonic()
    process = subprocess.Popen(fleet_words(*words), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return seconds, usage.ru_maxrss / 1000


if __name__ == "__main__":
    sys.exit(main())
