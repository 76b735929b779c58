"""Ten thousand mutated logs through reader, rules and both outputs; none may crash.

python tests/benchmarks/fuzz_logs.py [COUNT] [SEED]
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "diagnose"))

from epyc_log import epyc_log
from test_read_log import SPOILERS
from variants import VARIANTS

from fleet.diagnose.diagnosis import diagnose
from fleet.diagnose.diagnosis_json import diagnosis_json
from fleet.diagnose.diagnosis_text import diagnosis_text
from fleet.errors import UserError

LOG = ("\n".join(variant.log for variant in VARIANTS) + epyc_log()).encode()


def main(count: int, seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - a repeatable sequence
    began, refused = time.monotonic(), 0
    for number in range(count):
        raw = mutate(draw)
        try:
            found = diagnose([raw[: len(raw) // 2], raw[len(raw) // 2 :]])
            json.dumps(diagnosis_json(found))
            diagnosis_text(found)
        except UserError:
            refused += 1
        except Exception:
            Path(f"crash-{seed}-{number}.log").write_bytes(raw)
            raise
    print(f"{count} logs, {refused} refused, {time.monotonic() - began:.0f} s, no crash")


def mutate(draw: random.Random) -> bytes:
    begin = draw.randrange(len(LOG))
    raw = bytearray(LOG[begin : begin + draw.randrange(1, 6000)])
    for _ in range(draw.randrange(15)):
        at = draw.randrange(len(raw) + 1)
        piece = draw.choice((*SPOILERS, draw.randbytes(draw.randrange(8))))
        raw[at : at + draw.randrange(30)] = piece
    return bytes(raw) or b"\n"


if __name__ == "__main__":
    arguments = [int(word) for word in sys.argv[1:]]
    main(*(arguments + [10_000, 1][len(arguments) :]))
