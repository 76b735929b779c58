"""Speculation on the demo: what `tune` chooses for repeating and for free answers, and again.

`tests/benchmarks/run tune_speculation [TRIALS]`: each workload is a file of requests. The
choice is measured once more in four ABBA pairs against the deployment without it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LISTS = ("Monday, Tuesday, Wednesday", "one, two, three", "red, green, blue", "a, b, c, d")
FREE = ("the sea", "an old clock", "a lost letter", "bread", "the night train", "a garden")
DEPLOYMENT = {
    "kind": "deployment", "version": 1, "name": "spec", "hardware": "auto",
    "model": "gemma3-270m", "engine": "embedded", "port": 18433,
    "settings": {"ctx_size": 2048}, "pinned": {"threads": 1, "flash_attention": "on"},
}  # fmt: skip


def repeating() -> list[dict[str, object]]:
    """Return prompts whose answers go on as they began."""
    return [{"prompt": f"{number}: " + f"{words}, " * 24} for number in range(9) for words in LISTS]


def free() -> list[dict[str, object]]:
    """Return prompts whose answers repeat nothing."""
    return [
        {"prompt": f"Story {n}, about {what}. It began when"} for n in range(6) for what in FREE
    ]


def main(trials: str = "16") -> None:
    """Tune for both and print the choices."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        names = ("CONFIG", "STATE", "CACHE")
        env = {**os.environ, **{f"XDG_{name}_HOME": str(home / name.lower()) for name in names}}
        profiles = home / "config/fleet/profiles"
        profiles.mkdir(parents=True)
        (profiles / "spec.yaml").write_text(json.dumps(DEPLOYMENT))
        for name, requests in (("repeating", repeating()), ("free", free())):
            file = home / f"{name}.jsonl"
            file.write_text("".join(f"{json.dumps(each)}\n" for each in requests))
            tuned = fleet(env, "--trials", trials, "--workload", str(file), "--fresh")
            kept = tuned["best"]["settings"]["speculation"]
            print(f"{name}: {kept}, gain {tuned['gain']:+.1%}, {tuned['spent_s']:.0f} s")
            if tuned["profile"]:
                again = fleet(env, "--recheck", "--workload", str(file))
                print(f"  again: {again['gain']:+.1%} ({again['ci']}), holds: {again['holds']}")
                Path(tuned["profile"]).unlink()


def fleet(env: dict[str, str], *more: str) -> dict[str, object]:
    """Run `fleet tune spec` and return its answer."""
    words = [sys.executable, "-m", "fleet", "tune", "spec", "--metric", "tg", *more, "--json"]
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
