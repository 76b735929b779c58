"""The caches of real reservations by fleet and by two public planners: planners.py FOLDER.

`FOLDER/reservations.json` holds what the engine reserves. The other planners are installed
from the package index into an environment of their own in the cache folder, and are given
each model's true shape, so that only their arithmetic is compared.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fleet.compiler.memory.answer_cases import answer_case
from fleet.facts.architecture_records import model_facts_from_record
from support.engines import environment_of

PEERS = ("ggufit==0.3.0", "llamafit==0.1.1")
ASK_GGUFIT = """
import json, sys
from ggufit.calculator import kv_cache_gb
BITS = {"f16": 16, "bf16": 16, "q8_0": 8, "q4_0": 4}
for line in sys.stdin:
    m = json.loads(line)
    print(kv_cache_gb(m, m["ctx"], 1, BITS[m["kind"]]) * 1024)
"""
ASK_LLAMAFIT = """
import json, sys
from types import SimpleNamespace
from llamafit.budget.kv import kv_cache_bytes
for line in sys.stdin:
    m = json.loads(line)
    facts = SimpleNamespace(arch=m["arch"], attention_layers=m["attention_layers"],
        n_head_kv=m["num_key_value_heads"], head_dim=m["head_dim"], value_head_dim=m["value_dim"])
    print(kv_cache_bytes(facts, context=m["ctx"], kv_type=m["kind"]) / 2**20)
"""


def described(row: dict[str, Any]) -> dict[str, Any]:
    """Return the model in the words that the others take."""
    facts, flags = model_facts_from_record(row["model"]), row["flags"]
    attending = {layer for cache in facts.caches for layer in cache.layers}
    latent = facts.caches[0].k_row if facts.is_mla and facts.caches else 0
    return {
        "arch": facts.arch,
        "layers": facts.n_layer,
        "attention_layers": len(attending),
        "hidden_size": facts.n_embd,
        "num_attention_heads": facts.n_head,
        "num_key_value_heads": 1 if latent else max(facts.n_head_kv, 1),
        "head_dim": latent or facts.head_dim_k or 1,
        "value_dim": 0 if latent else facts.head_dim_v,
        "attention_family": "mla" if latent else "ssm" if facts.is_recurrent else "gqa",
        "kv_lora_rank": latent - 64 if latent else None,
        "qk_rope_head_dim": 64 if latent else None,
        "ctx": flags["c"],
        "kind": flags.get("ctk", "f16"),
    }


def peer(package: str, script: str, rows: list[dict[str, Any]]) -> list[float]:
    python = environment_of(package.replace("==", "-"), package)
    asked = "\n".join(json.dumps(described(row)) for row in rows)
    outcome = subprocess.run(
        [str(python), "-c", script], input=asked, capture_output=True, text=True, check=True
    )
    return [float(line) for line in outcome.stdout.split()]


def fleet(rows: list[dict[str, Any]]) -> list[float]:
    answers = (answer_case({"model": r["model"], "flags": r["flags"]}, r["model"]) for r in rows)
    return [sum(cache["mib"] for cache in answer["kv"]) for answer in answers]


def main() -> None:
    rows = json.loads((Path(sys.argv[1]) / "reservations.json").read_text())["rows"]
    rows = [row for row in rows if row["kv"]]
    truth = [sum(cache["mib"] for cache in row["kv"]) for row in rows]
    print(f"caches of {len(rows)} reservations of {len({r['model'] for r in rows})} models")
    print(f"{'planner':18}{'within 0.1%':>14}{'within 5%':>12}{'median gap':>13}{'worst':>10}")
    answers = {
        "fleet": fleet(rows),
        PEERS[0]: peer(PEERS[0], ASK_GGUFIT, rows),
        PEERS[1]: peer(PEERS[1], ASK_LLAMAFIT, rows),
    }
    for name, sizes in answers.items():
        gaps = [abs(size / true - 1) for size, true in zip(sizes, truth, strict=True)]
        exact = sum(gap <= 0.001 for gap in gaps) / len(gaps)
        near = sum(gap <= 0.05 for gap in gaps) / len(gaps)
        print(f"{name:18}{exact:>14.1%}{near:>12.1%}{median(gaps):>13.2%}{max(gaps):>10.0%}")


if __name__ == "__main__":
    main()
