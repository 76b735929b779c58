"""The default against itself under two names, on a real engine: no gain may be found.

`tests/benchmarks/run tune_same [STUDIES] [SECONDS]`: each study (5, of 60 s) is
`fleet tune external` over three names of the demo as it is; the program that measures starts
the same server whatever the name. Bar: no study finds a gain.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fleet.cli.load import load_deployment
from fleet.deploy.rim import Rim
from fleet.tune.measure_server import ServerMeasure

SPACE = {"params": {"name": ["as it is", "the same", "once more"]}, "default": {"name": "as it is"}}
TEXT = " ".join(
    f"Door {n} leads to room {n * 5 % 70}, which has {n % 9} chairs." for n in range(300)
)


def serve() -> None:
    """Measure the demo for each line; a new server for another name, as for another setting."""
    wanted = load_deployment("demo", sets=["ctx_size=2048"])
    before, stack = None, None
    for line in sys.stdin:
        name = json.loads(line).get("settings", {}).get("name")
        began = time.monotonic()
        if stack is not None and name != before:
            stack.__exit__(None, None, None)
            stack = None
        if name is None:
            break
        if stack is None:
            stack = ServerMeasure(
                deployment=wanted, metric="tg", rim=Rim(), text=TEXT, context=2048, run_s=1.0
            ).__enter__()
        before, outcome = name, stack({})
        answer = {"value": outcome.value} if outcome.value else {"failed": outcome.failed}
        print(json.dumps({**answer, "seconds": time.monotonic() - began}), flush=True)


def main(studies: str = "5", seconds: str = "60") -> None:
    """Print each study's end; exit 1 when one found a gain."""
    gains = 0
    with tempfile.TemporaryDirectory() as folder:
        space = Path(folder) / "space.json"
        space.write_text(json.dumps(SPACE))
        for number in range(int(studies)):
            words = [
                sys.executable, "-m", "fleet", "tune", "external", "--space", str(space), "--json",
                "--measure", f"{sys.executable} '{__file__}' serve", "--seed", str(number),
                "--budget-seconds", seconds,
            ]  # fmt: skip
            told = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
            gains += told["claimed_gain"] != 0
            print(
                f"study {number}: gain {told['claimed_gain']:+.2%}, {told['evaluations']} runs",
                flush=True,
            )
    print(f"{gains} of {studies} found a gain; bar: none")
    sys.exit(gains > 0)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main(*sys.argv[1:])
