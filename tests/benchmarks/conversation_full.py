"""Three conversations under C0 to C3 on the demo model, killed on the way; then the report.

`python tests/benchmarks/conversation_full.py OUT [--generate N] [--turns N] [--kills N]`

Checks: every turn is there once, C1 needs at least five times less prefill time than C0,
the client takes less than 3% of the wall time, the page is below 3 MB and built in at most
ten times the drawing of its plots. Prints the figures; exit code 1 when a check fails.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path

from fleet.bench.results_folder import ResultsFolder
from fleet.report.conversation_page import conversation_page
from fleet.report.write_report import read_conversation_run, write_report

TURNS = 20
CONVERSATIONS = ("P0", "P1", "P2")
CONDITIONS = 4


def main() -> int:
    options = _options()
    out = Path(options.out)
    wanted = len(options.conversations.split(",")) * CONDITIONS * options.turns * options.repeat
    command = [
        sys.executable, "-m", "fleet", "bench", options.deployment, "--out", str(out),
        "--conversation", options.conversations, "--limit-turns", str(options.turns),
        "--generate", str(options.generate), "--repeat", str(options.repeat), "--json",
    ]  # fmt: skip
    began = time.monotonic()
    for after in _kill_points(wanted, options.kills):
        _run_and_kill(command, out, after)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout, done.stderr)
        return 1
    print(f"measured in {time.monotonic() - began:.0f} s with {options.kills} kills")
    return _check(json.loads(done.stdout), out, wanted)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--deployment", default="demo")
    parser.add_argument("--conversations", default=",".join(CONVERSATIONS))
    parser.add_argument("--generate", type=int, default=64)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--kills", type=int, default=5)
    return parser.parse_args()


def _kill_points(wanted: int, kills: int) -> list[int]:
    return sorted(random.Random(6).sample(range(1, wanted), kills))  # noqa: S311 - the same each time


def _run_and_kill(command: list[str], out: Path, after: int) -> None:
    """Start the bench and kill it with -9 once `after` turns are there."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        if _lines(out) >= after:
            process.kill()
            process.wait()
            print(f"killed at {_lines(out)} turns", flush=True)
            return
        time.sleep(0.05)
    print(f"the bench ended by itself with {process.returncode}", flush=True)


def _lines(out: Path) -> int:
    file = out / "turns.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def _check(answer: dict, out: Path, wanted: int) -> int:
    turns = [json.loads(line) for line in (out / "turns.jsonl").read_text().splitlines()]
    keys = {(t["conversation"], t["condition"], t["repeat"], t["turn"]) for t in turns}
    totals = {each["condition"]: each for each in answer["conditions"]}
    for name, each in totals.items():
        print(
            f"{name}: prefill {each['prefill_s']:.2f} s, decode {each['decode_s']:.2f} s, "
            f"processed {each['processed_tokens']:.0f}, cached {each['cached_tokens']:.0f}, "
            f"outside the server {each['overhead']:.2%}"
        )
    for gain in answer["gains"]:
        saved = gain["prefill_saved_s"]
        print(
            f"{gain['condition']} saves {saved['value']:.2f} s of prefill "
            f"({saved['low']} to {saved['high']}), "
            f"same answers {gain['same_answers']} of {gain['compared']}"
        )
    report = _report(out)
    outside = max(each["overhead"] for each in totals.values())
    checks = {
        "every turn once": len(turns) == len(keys) == wanted,
        "C1 at least 5 times less prefill": totals["C0"]["prefill_s"]
        >= 5 * totals["C1"]["prefill_s"],
        "client below 3% of wall": outside < 0.03,
        "page below 3 MB": report["bytes"] < 3e6,
        "page in at most 10 times its plots": report["seconds"] <= 10 * report["plot_seconds"],
    }
    for name, holds in checks.items():
        print(f"{'ok  ' if holds else 'FAIL'} {name}")
    return 0 if all(checks.values()) else 1


def _report(out: Path) -> dict:
    """Build the page twice, the first time warms imports and fonts; time the second."""
    for _ in range(2):
        began = time.perf_counter()
        conversation_page(read_conversation_run(ResultsFolder(path=out)))
        plots = time.perf_counter() - began
        written = write_report(out)
    print(f"page {written.bytes} bytes in {written.seconds:.2f} s, drawing {plots:.2f} s")
    return {"bytes": written.bytes, "seconds": written.seconds, "plot_seconds": plots}


if __name__ == "__main__":
    sys.exit(main())
