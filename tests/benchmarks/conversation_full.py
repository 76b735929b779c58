"""Three conversations under C0 to C3 on the demo model, killed on the way; then the report.

`tests/benchmarks/run conversation_full OUT [--generate N] [--repeat N] [--kills N] ...`

Checks: every turn is there once although the bench was killed with -9, C1 needs at least five
times less prefill time than C0 and both C1 and C3 save time beyond doubt, client and HTTP take
less than 3% of the wall time, the page is below 3 MB and built in at most ten times the drawing
of its plots alone. Prints the figures; exit code 1 when a check fails. About 15 minutes on two
calm cores; on a busy machine two threads wait for each other once a batch, so that short
batches (C1, C3) lose most: ratios taken there are too small.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from fleet.bench.conversation_suite import read_summary
from fleet.bench.results_folder import ResultsFolder
from fleet.report.conversation_figures import cache_map, heat_maps, turn_curves
from fleet.report.write_report import Written, write_report

CONDITIONS = 4
OVERHEAD, PAGE_BYTES, TIMES_PLOTS, LESS_PREFILL = 0.03, 3e6, 10, 5


def main() -> int:
    options = _options()
    out = Path(options.out)
    wanted = len(options.conversations.split(",")) * CONDITIONS * options.turns * options.repeat
    command = [
        sys.executable, "-m", "fleet", "bench", options.deployment, "--out", str(out),
        "--conversation", options.conversations, "--limit-turns", str(options.turns),
        "--generate", str(options.generate), "--repeat", str(options.repeat), "--json",
    ]  # fmt: skip
    print(f"{wanted} turns, load average {os.getloadavg()[0]:.1f} at the start", flush=True)
    began = time.monotonic()
    for after in _kill_points(wanted, options.kills):
        _run_and_kill(command, out, after)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout, done.stderr)
        return 1
    print(f"measured in {time.monotonic() - began:.0f} s, load average {os.getloadavg()[0]:.1f}")
    return _check(json.loads(done.stdout), out, wanted)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--deployment", default="demo")
    parser.add_argument("--conversations", default="P0,P1,P2")
    parser.add_argument("--generate", type=int, default=32)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=3)
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
    for each in answer["conditions"]:
        print(
            f"{each['condition']}: prefill {each['prefill_s']:.2f} s, decode "
            f"{each['decode_s']:.2f} s, processed {each['processed_tokens']:.0f}, cached "
            f"{each['cached_tokens']:.0f}, outside the server {each['overhead']:.2%}"
        )
    gains = {gain["condition"]: gain for gain in answer["gains"]}
    for name, gain in gains.items():
        print(
            f"{name} against {gain['baseline']}: saves {_shown(gain['prefill_saved_s'])} s of "
            f"prefill, {_shown(gain['prefill'])} times less; decode {_shown(gain['decode'])}x, "
            f"wall {_shown(gain['wall'])}x; "
            f"same answers {gain['same_answers']} of {gain['compared']}"
        )
    outside = 1 - sum(t["prefill_ms"] + t["decode_ms"] for t in turns) / sum(
        t["wall_ms"] for t in turns
    )
    print(f"outside the server {outside:.2%} of all wall time")
    page, plots = _report(out)
    checks = {
        "every turn once": len(turns) == len(keys) == wanted,
        "every turn compared": {g["compared"] for g in gains.values()} == {wanted // CONDITIONS},
        "C1 at least 5 times less prefill": gains["C1"]["prefill"]["value"] >= LESS_PREFILL,
        "C1 and C3 save prefill beyond doubt": all(
            (gains[name]["prefill_saved_s"]["low"] or 0) > 0 for name in ("C1", "C3")
        ),
        "outside the server below 3% of wall": outside < OVERHEAD,
        "page below 3 MB": page.bytes < PAGE_BYTES,
        "page in at most 10 times its plots": page.seconds <= TIMES_PLOTS * plots,
    }
    for name, holds in checks.items():
        print(f"{'ok  ' if holds else 'FAIL'} {name}")
    return 0 if all(checks.values()) else 1


def _shown(found: dict) -> str:
    if found["low"] is None:
        return f"{found['value']:.2f} (one repeat: no interval)"
    return f"{found['value']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def _report(out: Path) -> tuple[Written, float]:
    """Build the page and its plots alone; a first time warms imports and fonts."""
    write_report(out)
    page = write_report(out)
    summary = read_summary(ResultsFolder(path=out))
    began = time.perf_counter()
    for draw in (heat_maps, turn_curves, cache_map):
        draw(summary)
    plots = time.perf_counter() - began
    print(f"{page.html}: {page.bytes} bytes in {page.seconds:.2f} s, its plots {plots:.2f} s")
    return page, plots


if __name__ == "__main__":
    sys.exit(main())
