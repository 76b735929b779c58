"""How long reading a large log takes against a bare line loop, and how much memory.

    python tests/benchmarks/read_speed.py [MIB] [FOLDER]

Four logs of MIB (200): `ordinary` (one start, many requests, trace level), `restarts` (a start
every forty lines or so), `in turn` and `mixed` (the excerpts of the unit tests, or FOLDER's
`*.log`, one after the other again and again, and in changing order). Loop and reader take
turns, medians of three in processor seconds. Then `fleet diagnose` of one MiB against a bare
typer command. Leaves with 1 when a bar is not met.
"""

from __future__ import annotations

import random
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "diagnose"))

from variants import VARIANTS

from fleet.diagnose.diagnosis import diagnose
from fleet.effects.chunks import file_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB, ROUNDS = 1 << 20, 3
TIMES, MEMORY_MIB, COMMAND = 40.0, 200, 3.0
BARE = "import typer\napp=typer.Typer()\n@app.command()\ndef main(x:str): print(x)\napp()\n"
START = """\
build_info: b9093-25eec6f32
load_tensors: offloaded 29/29 layers to GPU
llama_context: n_ctx         = 8192
llama_context: n_batch       = 2048
llama_context: flash_attn    = enabled
llama_kv_cache:    Vulkan0 KV buffer size =   448.00 MiB
llama_kv_cache: size =  448.00 MiB (  8192 cells,  28 layers,  4/1 seqs), K (f16):  224.00 MiB, V (f16):  224.00 MiB
srv    load_model: initializing slots, n_slots = 1
slot   load_model: id  0 | task -1 | new slot, n_ctx = 8192
srv    load_model: prompt cache is enabled, size limit: 8192 MiB
"""  # noqa: E501 - as it is printed
TASK = """\
slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, sim_best = 0.{sim} (> 0.100 thold), f_keep = 1.000
slot launch_slot_: id  0 | task {task} | processing task, is_child = 0
slot update_slots: id  0 | task {task} | new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = {prompt}
slot update_slots: id  0 | task {task} | n_tokens = {cached}, memory_seq_rm [{cached}, end)
slot update_slots: id  0 | task {task} | prompt processing done, n_tokens = {prompt}, batch.n_tokens = {new}
slot print_timing: id  0 | task {task} |
prompt eval time = {ms:10.2f} ms / {new:5d} tokens ({each:8.2f} ms per token, {rate:8.2f} tokens per second)
       eval time =    4308.56 ms /    57 tokens (   75.59 ms per token,    13.23 tokens per second)
      total time =    4513.57 ms /    77 tokens
slot      release: id  0 | task {task} | stop processing: n_tokens = {left}, truncated = 0
srv  log_server_r: done request: POST /v1/chat/completions 127.0.0.1 200
srv  update_slots: all slots are idle
"""  # noqa: E501 - as it is printed


def tasks(draw: random.Random, count: int) -> Iterator[str]:
    """Yield the lines of requests with figures of their own."""
    for number in range(count):
        new, cached = draw.randrange(5, 900), draw.randrange(6000)
        ms = new * draw.uniform(1, 9)
        yield TASK.format(
            task=number * 60, sim=draw.randrange(100, 999), prompt=cached + new, cached=cached,
            new=new, ms=ms, each=ms / new, rate=1000 * new / ms, left=cached + new + 56,
        )  # fmt: skip


def texts(kind: str, folder: Path | None) -> Iterator[str]:
    """Yield pieces of a log without end."""
    draw = random.Random(1)  # noqa: S311 - no secret
    logs = (
        [path.read_text(errors="replace") for path in sorted(folder.glob("*.log"))]
        if (folder)
        else [variant.log for variant in VARIANTS]
    )
    if kind == "ordinary":
        yield START
    while True:
        if kind == "ordinary":
            yield from tasks(draw, 1000)
        elif kind == "restarts":
            yield START + "".join(tasks(draw, 3))
        else:
            order = draw.sample(logs, len(logs)) if kind == "mixed" else logs
            yield "\n".join(order) + "\n"


def write(path: Path, kind: str, size: int, folder: Path | None) -> None:
    """Write a log of `size` bytes."""
    with path.open("w") as out:
        for text in texts(kind, folder):
            size -= out.write(text)
            if size <= 0:
                return


def loop(path: Path) -> None:
    """Do nothing with every line."""
    with path.open(errors="replace") as file:
        for _ in file:
            pass


def seconds(work: Callable[[], object]) -> float:
    """Return the processor seconds of `work`."""
    began = time.process_time()
    work()
    return time.process_time() - began


def command(words: list[str]) -> float:
    """Return the processor seconds of a command with its start."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(told: list[str]) -> int:
    size = (int(told[0]) if told else 200) * MIB
    folder = Path(told[1]) if told[1:] else None
    bars: list[tuple[bool, str]] = []
    with TemporaryDirectory() as kept:
        path = Path(kept) / "log"
        for kind in ("ordinary", "restarts", "in turn", "mixed"):
            write(path, kind, size, folder)
            pairs = [
                (seconds(lambda: loop(path)), seconds(lambda: diagnose(file_chunks(str(path)))))
                for _ in range(ROUNDS)
            ]
            ratio = statistics.median(mine for _, mine in pairs) / statistics.median(
                bare for bare, _ in pairs
            )
            bars.append((ratio <= TIMES, f"{kind}: {ratio:.1f} times a line loop ({TIMES:g})"))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        bars.append((peak <= MEMORY_MIB, f"memory: {peak:.0f} MiB ({MEMORY_MIB})"))
        write(path, "ordinary", MIB, None)
        ours, bare = [sys.executable, "-m", "fleet", "diagnose", str(path)], [BARE, "x"]
        rounds = [(command(ours), command([sys.executable, "-c", *bare])) for _ in range(5)]
        ratio = statistics.median(a for a, _ in rounds) / statistics.median(b for _, b in rounds)
        bars.append((ratio <= COMMAND, f"1 MiB: {ratio:.2f} times a typer command ({COMMAND:g})"))
    for met, words in bars:
        print("met    " if met else "NOT MET", words, flush=True)
    return 0 if all(met for met, _ in bars) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
