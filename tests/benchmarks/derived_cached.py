"""Whether the cached tokens that are read or derived from a log are those that the engine told.

    python tests/benchmarks/derived_cached.py [MODEL.gguf] [REQUESTS] [ENGINE ...]

Each engine answers the same mixed requests: a conversation that grows, another beside it, edits,
repeats, requests that ask for no caching, a fixed slot, two at once. `timings.cache_n` of every
answer is compared with the task of the log. Engines: `b8672`, `b11549` (embedded), `b10434` (a
wheel's llama-server), `container` and `container -lv 4` (Debian's own package).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fleet.diagnose.diagnosis import diagnose
from fleet.effects.http import Http
from fleet.observe.server_client import ServerClient
from support.engines import older_embedded, wheel_engine
from support.free_port import free_port
from support.models import demo_model
from support.podman_env import ensure_engine_image, podman_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

Told = tuple[int, int, int]  # cached, processed, generated
FLUSH_S = 0.5
LAST_WITHOUT_TRACE = 9113
SERVE = """
import os, signal, sys, xllamacpp as x
p = x.CommonParams()
p.model.path, p.port, p.n_ctx, p.n_parallel = sys.argv[1], int(sys.argv[2]), 8192, 2
p.verbosity = int(sys.argv[3])
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
if hasattr(p, "hostnames"):
    p.hostnames = ["127.0.0.1"]
p.warmup = False
server = x.Server(p)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
signal.pause()
"""
OPTIONS = ("-c", "8192", "-np", "2", "-t", "1", "--no-warmup")


def body(number: int, turn: int, edited: int) -> dict[str, Any]:
    """Return the next request of a conversation; `edited` turns were written anew."""
    turns = [f"user {number}: question {k} of many words {k * 7}\n" for k in range(turn + 1)]
    if edited >= 0:
        turns[edited] = f"user {number}: another question {edited}\n"
    prompt = f"You are assistant {number % 2}. Be brief and kind.\n" * 3 + "".join(turns)
    return {"prompt": prompt, "n_predict": 3 + turn % 5, "seed": 1, "temperature": 0.0}


def batches(count: int) -> Iterator[list[dict[str, Any]]]:
    """Yield `count` requests, most of them alone, some two at once."""
    sent = 0
    while sent < count:
        turn = sent // 3
        one = body(sent % 3, turn, sent % turn if sent % 7 == 6 and turn else -1)
        if sent % 9 == 8:
            one["cache_prompt"] = False
        if sent % 5 == 4:
            one["id_slot"] = sent % 2
        both = [one, body(3, turn, -1)] if sent % 6 == 5 and sent + 2 <= count else [one]
        yield both
        sent += len(both)


def ask(client: ServerClient, one: dict[str, Any]) -> Told:
    timings = client.completion(one)["timings"]
    return timings["cache_n"], timings["prompt_n"], timings["predicted_n"]


@contextmanager
def serving(engine: str, model: Path, log: Path) -> Iterator[ServerClient]:
    """Serve `model` until left; everything that the engine prints goes to `log`."""
    port, http = free_port(), Http()
    with log.open("wb") as out:
        words = words_of(engine, model, port)
        process = subprocess.Popen(
            words, stdout=out, stderr=out, env=os.environ | podman_environment()
        )
        try:
            client = ServerClient(url=f"http://127.0.0.1:{port}", http=http)
            while client.health() != "ready":
                if process.poll() is not None:
                    raise SystemExit(log.read_text()[-2000:])
                time.sleep(0.2)
            yield client
            time.sleep(FLUSH_S)
        finally:
            process.terminate()
            process.wait()


def words_of(engine: str, model: Path, port: int) -> list[str]:
    if engine.startswith("container"):
        image, everywhere = ensure_engine_image(), "0.0.0.0"  # noqa: S104 - inside the container
        inside = [*OPTIONS, *engine.split()[1:], "-m", "/models/m.gguf", "--host", everywhere]
        run = ["podman", "run", "--rm", "--publish", f"127.0.0.1:{port}:8080"]
        mount = ["--volume", f"{model}:/models/m.gguf:ro"]
        return [*run, *mount, image, "llama-server", *inside, "--port", "8080"]
    if engine == "b10434":
        server = str(wheel_engine().server)
        return [server, "-m", str(model), "--port", str(port), "-lv", "4", *OPTIONS]
    level = "4" if int(engine[1:]) > LAST_WITHOUT_TRACE else "3"  # 4 was debugging before
    python = older_embedded(int(engine[1:]))
    return [str(python), "-c", SERVE, str(model), str(port), level]


def run(engine: str, model: Path, count: int) -> tuple[list[Told], list[Told]]:
    """Return what the engine told of `count` requests, and what its log says."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        log = Path(folder) / "log"
        with serving(engine, model, log) as client:
            told = [
                answer
                for both in batches(count)
                for answer in pool.map(lambda one: ask(client, one), both)
            ]
        reading = diagnose([log.read_bytes()]).reading
    read = [(one.cached, one.processed, one.gen) for one in reading.tasks()]
    return told, [(a, b, c) for a, b, c in read if a is not None and b is not None and c]


def main(words: list[str]) -> int:
    model = Path(words[0]) if words else demo_model()
    count = int(words[1]) if len(words) > 1 else 40
    engines = words[2:] or ["b8672", "b11549", "b10434", "container", "container -lv 4"]
    wrong = 0
    for engine in engines:
        told, read = run(engine, model, count)
        missing = Counter(told) - Counter(read)
        wrong += missing.total()
        print(f"{engine:>16}: {len(told) - missing.total()} of {len(told)} agree {dict(missing)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
