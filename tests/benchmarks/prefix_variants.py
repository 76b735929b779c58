"""What each remedy lets requests with a shared prefix reuse, on a real engine, beside what
`fleet prompts analyze` predicts.

    python tests/benchmarks/prefix_variants.py [MODEL.gguf] [PREFIX] [TAIL] [REQUESTS]

PREFIX and TAIL are words; without a model the demo's Gemma 3 270M is used. Each launch is a
server of its own (the embedded engine, THREADS threads). All are up at once and asked in turn,
so that each request of one stands beside the same request of the others; times are medians of
requests after the first.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil

from fleet.deploy.prime import prime
from fleet.diagnose.prompts.analysis import shared_length
from fleet.diagnose.prompts.placement import Memory, after_first, reused
from fleet.diagnose.prompts.requests import Message, Request
from fleet.diagnose.prompts.tokens import make_prompt
from fleet.effects.http import Http
from fleet.facts.gguf_header import read_header
from fleet.facts.model_from_gguf import model_facts_from_gguf
from fleet.observe.engine_tokenizer import EngineTokenizer
from fleet.observe.server_client import ServerClient
from fleet.profiles.kinds import SharedPrefix
from support.free_port import free_port
from support.models import demo_model

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVE = """
import json, os, signal, sys, xllamacpp
p, told = xllamacpp.CommonParams(), json.loads(sys.argv[1])
p.model.path, p.hostnames = told.pop("model"), ["127.0.0.1"]
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = int(os.environ.get("THREADS", "2"))
for name, value in told.items():
    setattr(p, name, value)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
server = xllamacpp.Server(p)
signal.pause()
"""
WORDS = ("river", "stone", "market", "window", "quiet", "seven", "north", "amber", "clock")


@dataclass
class Launch:
    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    primed: bool = False
    restarted: bool = False  # after priming, from its slot file
    order: str = "good"
    chat: bool = False


LAUNCHES = (
    Launch("default"),
    Launch("interval=256", {"checkpoint_min_step": 256}, {"spacing": 256}),
    Launch("bad order", order="bad"),
    Launch("swa_full", {"swa_full": True}, {"full_window": True}),
    Launch("unified", {"n_parallel": 4, "kv_unified": True}, {"slots": 4, "unified": True}),
    Launch("split", {"n_parallel": 2}),
    Launch("primed", primed=True),
    Launch("restarted", primed=True, restarted=True),
    Launch("chat", chat=True),
    Launch("chat, primed", chat=True, primed=True),
)


def words(count: int, seed: int) -> str:
    draw = random.Random(seed)  # noqa: S311 - the same text each time
    return " ".join(draw.choice(WORDS) for _ in range(count))


def requests_of(launch: Launch, prefix: int, tail: int, count: int) -> list[Request]:
    shared = words(prefix, 1)
    made = []
    for number in range(count):
        own = f"{number} {words(tail, number + 10)}"
        if launch.chat:
            messages = (Message(role="system", content=shared), Message(role="user", content=own))
            made.append(Request(where=str(number), messages=messages))
        else:
            text = f"{shared} {own}" if launch.order == "good" else f"{own} {shared}"
            made.append(Request(where=str(number), prompt=text))
    return made


@dataclass
class Running:
    """A launch that serves, and what its requests brought."""

    launch: Launch
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    client: ServerClient | None = None
    outcome: str = ""
    cached: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def start(self, model: Path, http: Http) -> ServerClient:
        port = free_port()
        told = {"model": str(model), "port": port, "n_ctx": 16384, "n_parallel": 1, "verbosity": 2}
        if self.launch.restarted:
            told["slot_save_path"] = f"{self.folder}/"
        argv = [sys.executable, "-c", SERVE, json.dumps(told | self.launch.settings)]
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.client = ServerClient(url=f"http://127.0.0.1:{port}", http=http)
        while self.client.health() != "ready":
            time.sleep(0.1)
        return self.client

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()

    def prime(self, prefix: int, tail: int) -> None:
        text = words(prefix, 1)
        named = SharedPrefix(system=text) if self.launch.chat else SharedPrefix(file="x")
        assert self.client is not None
        self.outcome = prime(
            named, self.client, read_text=lambda _: text + " ", tail_tokens=tail,
            slot_files=self.launch.restarted,
        ).outcome  # fmt: skip

    def ask(self, one: Request) -> None:
        answer = ask(self.client, one)
        self.cached.append(answer["timings"]["cache_n"])
        self.times.append(answer["timings"]["prompt_ms"] / 1000)


def run(launch: Launch, model: Path, prefix: int, tail: int, count: int) -> dict[str, Any]:
    return run_all((launch,), model, prefix, tail, count)[0]


def run_all(
    launches: Sequence[Launch], model: Path, prefix: int, tail: int, count: int
) -> list[dict[str, Any]]:
    http = Http()
    with TemporaryDirectory() as folder, ExitStack() as stack:
        servers = [Running(launch, Path(folder)) for launch in launches]
        for server in servers:
            stack.callback(server.stop)
            server.start(model, http)
            if server.launch.primed:
                server.prime(prefix, tail)
            if server.launch.restarted:
                server.stop()
                server.start(model, http)
                server.prime(prefix, tail)
        for number in range(count):
            for server in servers:
                server.ask(requests_of(server.launch, prefix, tail, count)[number])
        return [row_of(server, model, prefix, tail, count) for server in servers]


def row_of(server: Running, model: Path, prefix: int, tail: int, count: int) -> dict[str, Any]:
    launch, client, process = server.launch, server.client, server.process
    assert client is not None
    assert process is not None
    tokenizer = EngineTokenizer(client=client)
    prompts = [make_prompt(one, tokenizer) for one in requests_of(launch, prefix, tail, count)]
    shared = shared_length(prompts)
    memory = Memory(window=window_of(model), **launch.memory)
    expected = reused(
        prompts, memory, primed=shared if server.outcome in {"primed", "restored"} else 0
    )
    return {
        "launch": launch.name, "shared": shared, "prompt": len(prompts[0].tokens),
        "reused": after_first(server.cached), "predicted": after_first(expected),
        "prefill_s": round(median(server.times[1:]), 3), "prime": server.outcome,
        "cached": server.cached, "rss_mib": psutil.Process(process.pid).memory_info().rss >> 20,
    }  # fmt: skip


def ask(client: ServerClient, one: Request) -> Any:
    if one.prompt is not None:
        return client.completion({"prompt": one.prompt, "n_predict": 1, "cache_prompt": True})
    messages = [{"role": m.role, "content": m.content} for m in one.messages]
    return client.chat({"messages": messages, "max_tokens": 1})


def window_of(model: Path) -> int:
    with model.open("rb") as file:

        def read(offset: int, size: int) -> bytes:
            file.seek(offset)
            return file.read(size)

        header = read_header(read, model.stat().st_size)
    return model_facts_from_gguf(header).n_swa


def main(words_: list[str]) -> None:
    model = Path(words_[0]) if words_ else demo_model()
    prefix, tail, count = [int(word) for word in words_[1:]] + [2250, 700, 20][len(words_[1:]) :]
    rows = run_all(LAUNCHES, model, prefix, tail, count)
    base = rows[0]["prefill_s"]
    for row in rows:
        off = abs(row["reused"] - row["predicted"]) / max(1, row["shared"])
        print(
            f"{row['launch']:>14}: {row['reused']:8.1f} of {row['shared']} reused, "
            f"{row['predicted']:8.1f} predicted ({off:.1%} off), {row['prefill_s']:.3f} s "
            f"({row['prefill_s'] / base:.2f}), {row['rss_mib']} MiB {row['prime']} "
            f"{row['cached'][:4]}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
