"""Start the real llama-server with random valid settings, hundreds of times.

Each must be refused by the compiler or start, answer /health and one completion, and show
in /props the context that was planned. `random_settings.py [COUNT] [SEED] [ENGINE ...]`.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from fleet.compiler.compile_deployment import compile_deployment
from fleet.compiler.planned_context import longest_context, planned_slot_context
from fleet.errors import UserError
from fleet.facts.gguf_header import read_header
from fleet.facts.known_builds import build_facts
from fleet.facts.model_from_gguf import model_facts_from_gguf
from fleet.facts.parse_help import parse_help
from support import engines, models, podman_env
from support.random_settings import deployment_of, random_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.facts.build_facts import BuildFacts
    from fleet.facts.model_facts import ModelFacts

READY_S = 120.0
ANSWER_S = 120.0  # a busy machine is slow, not wrong
# threads that wait without spinning: other work on the machine does not stall them
PATIENT = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
ALL_TYPES = ("f16", "f32", "bf16", "q8_0", "q4_0", "q5_1")
# this wheel's kernels for quantized caches need instructions that not every CPU has
PLAIN_TYPES = ("f16", "f32", "bf16")
PROMPT = "The quick brown fox jumps over the lazy dog. " * 2


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A program to start, its build, and how it sees files."""

    name: str
    words: tuple[str, ...]
    build: BuildFacts
    root: str = ""
    kv_types: tuple[str, ...] = PLAIN_TYPES


@dataclass
class Outcome:
    """What became of one set of settings."""

    kind: str  # refused, ok, wrong
    text: str = ""


def wheel() -> Engine:
    """Return b10434."""
    program = str(engines.wheel_engine().server)
    facts = build_facts("llama.cpp", "b10434")
    return Engine(name="b10434", words=(program,), build=facts)


@contextmanager
def packaged() -> Iterator[Engine]:
    """Mount the engine image and yield its server, which runs in that root."""
    image = podman_env.ensure_engine_image()
    container = podman_env.podman("create", image, "/usr/bin/llama-server").strip()
    try:
        root = podman_env.podman("mount", container).strip()
        words = ("chroot", root, "/usr/bin/llama-server")
        helped = subprocess.run([*words, "--help"], capture_output=True, text=True, check=True)
        told = subprocess.run([*words, "--version"], capture_output=True, text=True, check=True)
        build = parse_help(helped.stdout, told.stdout + told.stderr)
        yield Engine(
            name=f"b{build.number}", words=words, build=build, root=root, kv_types=ALL_TYPES
        )
    finally:
        podman_env.podman("rm", "--force", container)


def facts_of(path: Path) -> ModelFacts:
    """Read a small model's header."""
    raw = path.read_bytes()
    header = read_header(lambda offset, size: raw[offset : offset + size], len(raw))
    return model_facts_from_gguf(header)


def try_one(engine: Engine, settings: dict, model: Path, facts: ModelFacts) -> Outcome:
    """Compile and start; end what was started."""
    port = free_port()
    inside = f"/{model.name}" if engine.root else str(model)
    try:
        launch = compile_deployment(
            deployment_of(settings, model=inside, port=port), hosts={}, model=facts,
            build=engine.build,
        )[0]  # fmt: skip
    except UserError as refusal:
        return Outcome("refused", f"{refusal.where}: {refusal.message}")
    planned = _planned(launch, engine.build, facts)
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [*engine.words, *launch.argv], stdout=log, stderr=log,
            env={**os.environ, **PATIENT, **dict(launch.env)},
        )  # fmt: skip
        try:
            wrong = look(process, launch, planned)
        finally:
            process.kill()
            process.wait()
        if wrong:
            log.seek(0)
            tail = "".join(log.readlines()[-6:])
            return Outcome("wrong", f"{wrong}\n{' '.join(launch.argv)}\n{tail}")
    return Outcome("ok")


def _planned(launch: LaunchConfig, build: BuildFacts, facts: ModelFacts) -> int | None:
    settings = dict(launch.settings)
    slot, most = planned_slot_context(settings), longest_context(settings, facts.n_ctx_train, build)
    return min(slot, most) if slot and most else slot


def look(process: subprocess.Popen, launch: LaunchConfig, planned: int | None) -> str | None:
    """Return what is wrong with a started server, None when nothing is."""
    url = f"http://127.0.0.1:{launch.port}"
    until = time.monotonic() + READY_S
    while True:
        code = process.poll()
        if code is not None:
            return f"ended with {code}"
        try:
            ask(f"{url}/health")
            break
        except OSError:
            if time.monotonic() > until:
                return "not ready"
            time.sleep(0.02)
    found = ask(f"{url}/props")["default_generation_settings"]["n_ctx"]
    if found != planned:
        return f"planned a context of {planned}, it has {found}"
    body = {"prompt": PROMPT[: planned // 2], "n_predict": 4, "grammar": "root ::= [a-z]+"}
    try:
        ask(f"{url}/completion", body)
    except urllib.error.HTTPError as error:
        return f"completion: {error.code} {error.read().decode(errors='replace')}"
    except OSError as error:
        return f"completion: {error}"
    return None


def ask(url: str, body: dict | None = None) -> dict:
    """Return the JSON that a server answers."""
    raw = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data=raw, headers=headers)  # noqa: S310 - our own
    with urllib.request.urlopen(request, timeout=ANSWER_S) as reply:  # noqa: S310 - our own
        return json.load(reply)


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(engine: Engine, count: int, seed: int) -> Counter[str]:
    """Try until `count` servers have started; print what went wrong."""
    tiny = models.tiny_models()
    names = [name for name in ("llama", "gemma3", "deepseek2") if name in tiny]
    facts = {name: facts_of(tiny[name]) for name in names}
    draft = tiny["draft"]
    if engine.root:
        for path in (*(tiny[name] for name in names), draft):
            (Path(engine.root) / path.name).write_bytes(path.read_bytes())
        draft = Path("/") / draft.name
    rng, counts = random.Random(seed), Counter()  # noqa: S311 - a repeatable draw
    while counts["ok"] + counts["wrong"] < count:
        name = rng.choice(names)
        settings = random_settings(rng, kv_types=engine.kv_types, draft=str(draft))
        outcome = try_one(engine, settings, tiny[name], facts[name])
        counts[outcome.kind] += 1
        if outcome.kind == "wrong":
            print(f"WRONG {engine.name} {name} {settings}\n{outcome.text}", flush=True)
        if counts.total() % 100 == 0:
            print(f"{engine.name}: {dict(counts)} so far", flush=True)
    print(f"{engine.name}: {dict(counts)}", flush=True)
    return counts


def main(words: list[str]) -> int:
    """Run both engines; return the number of wrong ones."""
    count, seed = int(words[0]) if words else 500, int(words[1]) if words[1:] else 1
    wanted = words[2:] or ["wheel", "package"]
    wrong = 0
    if "wheel" in wanted:
        wrong += run(wheel(), count, seed)["wrong"]
    if "package" in wanted:
        with packaged() as engine:
            wrong += run(engine, count, seed)["wrong"]
    return wrong


if __name__ == "__main__":
    raise SystemExit(1 if main(sys.argv[1:]) else 0)
