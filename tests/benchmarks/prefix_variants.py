"""What each remedy lets requests with a shared prefix reuse, on a real engine, beside what
`fleet prompts analyze` predicts and what it and `fleet prompts prime` choose.

    python tests/benchmarks/prefix_variants.py [MODEL.gguf] [PREFIX] [TAIL] [REQUESTS] [OTHERS]

PREFIX and TAIL are words; without a model the demo's Gemma 3 270M is used. Each launch is a
server of its own (the embedded engine, THREADS threads). All are up at once and asked in turn,
so that each request of one stands beside the same request of the others; times are medians of
requests after the first, ratios those of neighbours. Rows with a bar on their time get REQUESTS,
the others OTHERS of them. Leaves with 1 when a bar is not met.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil

from fleet.deploy.prime import prime
from fleet.diagnose.prompts.analysis import Analysis, analyze
from fleet.diagnose.prompts.best_order import reordered
from fleet.diagnose.prompts.placement import Memory, after_first, memory_of
from fleet.diagnose.prompts.requests import Message, Request
from fleet.effects.http import Http
from fleet.effects.installed import embedded_build
from fleet.facts.gguf_header import read_header
from fleet.facts.known_builds import build_facts
from fleet.facts.model_from_gguf import model_facts_from_gguf
from fleet.observe.engine_tokenizer import EngineTokenizer
from fleet.observe.server_client import ServerClient
from fleet.profiles.kinds import SharedPrefix
from support.fleet_command import fleet
from support.free_port import free_port
from support.models import demo_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
ATTRIBUTES = {
    "parallel": "n_parallel", "checkpoint_interval": "checkpoint_min_step",
    "ubatch_size": "n_ubatch",
}  # fmt: skip
WORDS = ("river", "stone", "market", "window", "quiet", "seven", "north", "amber", "clock")
REUSED, PREFILL, CHAT, PREDICTED = 0.99, 0.40, 0.05, 0.01


@dataclass(frozen=True)
class Launch:
    """One server: its settings, the requests it gets, and the variant that it is.

    `kind` is how the requests are made: `good` and `bad` order in one raw message, `better`
    (the bad ones as fleet would order them), `chat` (the shared part ends at a message start).
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    kind: str = "good"
    variant: str = ""
    primed: bool = False
    restarted: bool = False  # after priming, from its slot file
    timed: bool = False  # a bar is on its time


LAUNCHES = (
    Launch("default", timed=True),
    *(Launch(f"interval={n}", {"checkpoint_interval": n}) for n in (2048, 1024, 256)),
    Launch("bad order", kind="bad", variant="default"),
    Launch("reordered", kind="better"),
    Launch("reordered+primed", kind="better", primed=True),
    Launch("swa_full", {"swa_full": True}),
    Launch("unified", {"parallel": 4, "kv_unified": True}),
    Launch("split", {"parallel": 2}),
    Launch("ubatch=1024", {"ubatch_size": 1024}),
    Launch("primed", primed=True, timed=True),
    Launch("restarted", variant="primed", primed=True, restarted=True, timed=True),
    Launch("chat", kind="chat", variant="default", timed=True),
    Launch("chat, primed", kind="chat", variant="default", primed=True, timed=True),
)
CHOICES = {"good": "primed", "bad": "reordered+primed", "chat": "default"}
OUTCOMES = {
    "primed": "primed", "reordered+primed": "primed", "restarted": "restored",
    "chat, primed": "not-needed",
}  # fmt: skip


def words(count: int, seed: int) -> str:
    """Return the same text each time."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    return " ".join(draw.choice(WORDS) for _ in range(count))


@dataclass(frozen=True)
class Size:
    """How long prompts are, in words, and how many there are."""

    prefix: int = 2250
    tail: int = 700
    requests: int = 20
    others: int = 6

    def made(self, kind: str) -> list[Request]:
        """Return the requests of one kind."""
        shared = words(self.prefix, 1)
        found = []
        for number in range(self.requests):
            own = f"{number} {words(self.tail, number + 10)}"
            parts = (own, shared) if kind in {"bad", "better"} else (shared, own)
            if kind == "chat":
                said = zip(("system", "user"), parts, strict=True)
                messages = tuple(Message(role=role, content=text) for role, text in said)
                found.append(Request(where=str(number), messages=messages))
            else:
                found.append(Request(where=str(number), prompt="\n\n".join(parts)))
        return list(reordered(found)) if kind == "better" else found


@dataclass
class Running:
    """A launch that serves, and what its requests brought."""

    launch: Launch
    model: Path
    memory: Memory
    slots: str
    process: subprocess.Popen[bytes]
    client: ServerClient
    outcome: str = ""
    cached: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def prime(self, size: Size) -> None:
        text = words(size.prefix, 1)
        chat = self.launch.kind == "chat"
        self.outcome = prime(
            SharedPrefix(system=text) if chat else SharedPrefix(file="x"),
            self.client, read_text=lambda _: text + "\n\n", memory=self.memory,
            slot_files=self.launch.restarted,
        ).outcome  # fmt: skip

    def ask(self, one: Request) -> None:
        timings = ask(self.client, one)["timings"]
        self.cached.append(timings["cache_n"])
        self.times.append(timings["prompt_ms"] / 1000)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def started(launch: Launch, model: Path, slots: str) -> Running:
    """Return a server that answers."""
    port = free_port()
    told = {"model": str(model), "port": port, "n_ctx": 16384, "n_parallel": 1, "verbosity": 2}
    if launch.restarted:
        told["slot_save_path"] = f"{slots}/"
    told |= {ATTRIBUTES.get(name, name): value for name, value in launch.settings.items()}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, json.dumps(told)], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={**os.environ, "OMP_WAIT_POLICY": "passive"},
    )  # fmt: skip
    client = ServerClient(url=f"http://127.0.0.1:{port}", http=Http())
    while client.health() != "ready":
        assert process.poll() is None, f"{launch.name} did not start"
        time.sleep(0.1)
    memory = memory_at(model, launch.settings)
    return Running(launch, model, memory, slots, process, client)


def memory_at(model: Path, settings: dict[str, Any]) -> Memory:
    """Return how a launch of the embedded engine with these settings resumes."""
    with model.open("rb") as file:

        def read(offset: int, size: int) -> bytes:
            file.seek(offset)
            return file.read(size)

        header = read_header(read, model.stat().st_size)
    build = build_facts("embedded", embedded_build())
    return memory_of(settings, model_facts_from_gguf(header), build)


def run(launch: Launch, model: Path, size: Size) -> dict[str, Any]:
    """Return what one launch brought."""
    return next(iter(run_all((launch,), model, size)))


def run_all(launches: Sequence[Launch], model: Path, size: Size) -> Iterator[dict[str, Any]]:
    """Start all launches, ask them in turn, and yield what each brought."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        servers = []
        for launch in launches:
            server = started(launch, model, folder)
            if launch.primed:
                server.prime(size)
            if launch.restarted:
                server.stop()
                server = started(launch, model, folder)
                server.prime(size)
            stack.callback(server.stop)
            servers.append(server)
        asked = {launch.kind: size.made(launch.kind) for launch in launches}
        for number in range(size.requests):
            for server in servers:
                if server.launch.timed or number < size.others:
                    server.ask(asked[server.launch.kind][number])
        tokenizer = EngineTokenizer(client=servers[0].client)
        memory = memory_at(model, {})
        found = {}
        for kind in {"bad" if one.kind == "better" else one.kind for one in launches}:
            found[kind] = analyze(size.made(kind), tokenizer, memory)
        for server in servers:
            kind = server.launch.kind
            yield row_of(server, found["bad" if kind == "better" else kind], size, tokenizer)


def row_of(
    server: Running, found: Analysis, size: Size, tokenizer: EngineTokenizer
) -> dict[str, Any]:
    launch = server.launch
    variant = launch.variant or launch.name
    if server.outcome == "not-needed":
        variant = "default"
    shared = found.common_prefix_tokens
    if launch.kind == "better":
        shared = analyze(size.made("better"), tokenizer, server.memory).common_prefix_tokens
    return {
        "launch": launch.name, "shared": shared, "prompt": found.prompt_tokens,
        "reused": after_first(server.cached), "predicted": found.reusable[variant],
        "prefill_s": round(median(server.times[1:]), 3), "prime": server.outcome,
        "choice": found.choice.variant, "cached": server.cached, "times": server.times,
        "uss_mib": psutil.Process(server.process.pid).memory_full_info().uss >> 20,
    }  # fmt: skip


def ask(client: ServerClient, one: Request) -> Any:
    if one.prompt is not None:
        return client.completion({"prompt": one.prompt, "n_predict": 1, "cache_prompt": True})
    messages = [asdict(message) for message in one.messages]
    return client.chat({"messages": messages, "max_tokens": 1})


def analyzed(model: Path, kind: str, size: Size) -> dict[str, Any]:
    """Return what the command line says of these requests, from nothing but model and file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "requests.jsonl"
        bodies = (
            {"prompt": one.prompt}
            if one.prompt is not None
            else {"messages": [asdict(message) for message in one.messages]}
            for one in size.made(kind)
        )
        path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
        said = fleet("prompts", "analyze", str(path), "--model", str(model), "--json")
    assert said.code == 0, said.out
    return dict(said.json)


def paired(row: dict[str, Any], other: dict[str, Any]) -> float:
    """Return the median ratio of the times of requests that were asked one after the other."""
    pairs = zip(row["times"][1:], other["times"][1:], strict=True)
    return median(mine / theirs for mine, theirs in pairs)


def bars(rows: dict[str, dict[str, Any]], choices: dict[str, str]) -> Iterator[tuple[bool, str]]:
    """Yield each bar: whether it is met, and its words."""
    for row in rows.values():
        off = abs(row["reused"] - row["predicted"]) / max(1, row["shared"])
        yield off <= PREDICTED, f"{row['launch']}: predicted within {PREDICTED:.0%}: {off:.2%} off"
    for name in ("primed", "restarted"):
        share = rows[name]["reused"] / rows[name]["shared"]
        ratio = paired(rows[name], rows["default"])
        yield share >= REUSED, f"{name}: at least {REUSED:.0%} of the shared part: {share:.1%}"
        yield ratio <= PREFILL, f"{name}: prefill at most {PREFILL:.0%} of default: {ratio:.1%}"
    apart = paired(rows["chat, primed"], rows["chat"]) - 1
    yield abs(apart) <= CHAT, f"chat, primed: within {CHAT:.0%} of chat: {apart:+.1%}"
    for name, outcome in OUTCOMES.items():
        yield rows[name]["prime"] == outcome, f"prime, {name}: {outcome}: {rows[name]['prime']}"
    for kind, choice in CHOICES.items():
        yield choices[kind] == choice, f"analyze, {kind}: {choice}: {choices[kind]}"


def main(told: list[str]) -> int:
    model = Path(told[0]) if told else demo_model()
    size = Size(*(int(word) for word in told[1:]))
    rows = {}
    began = time.monotonic()
    for row in run_all(LAUNCHES, model, size):
        rows[row["launch"]] = row
        print(
            f"{row['launch']:>17}: {row['reused']:8.1f} of {row['shared']} reused, "
            f"{row['predicted']:8.1f} predicted, {row['prefill_s']:6.3f} s "
            f"({row['prefill_s'] / rows['default']['prefill_s']:.2f}), {row['uss_mib']:4d} MiB "
            f"{row['prime']} {row['cached'][:4]} ({len(row['cached'])} requests)",
            flush=True,
        )
    choices = {kind: analyzed(model, kind, size)["choice"]["variant"] for kind in CHOICES}
    found = list(bars(rows, choices))
    for met, words_ in found:
        print("met    " if met else "NOT MET", words_)
    print(f"{time.monotonic() - began:.0f} s")
    return 0 if all(met for met, _ in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
