"""How many memory cases of a folder the planner gets right: judge_memory.py FOLDER.

The folder holds `reservations.json` (what the engine reserves) and `logs.json` (what real
logs printed). Prints the shares; exit 1 when they are below what is promised.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from fleet.compiler.memory.answer_cases import answer_case
from fleet.facts.architecture_records import model_facts_from_record, record_lines

EXACT_MIB, EXACT_SHARE = 0.02, 1e-4


def exact(planned: float, actual: float) -> bool:
    return abs(planned - actual) <= max(EXACT_MIB, EXACT_SHARE * actual)


def judge_reservations(rows: list[dict[str, Any]]) -> bool:
    right, gaps, host = 0, [], []
    for number, row in enumerate(rows):
        answer = answer_case({"model": row["model"], "flags": row["flags"]}, str(number))
        caches = [exact(a["mib"], e["mib"]) for a, e in zip(answer["kv"], row["kv"], strict=True)]
        state = exact(answer["state_mib"], row["rs_mib"] + row["dsv4_state_mib"])
        right += all(caches) and state
        for device, actual in row["compute_mib"].items():
            gap = abs(answer["compute_mib"][device] / actual - 1)
            (host if device == "CPU" else gaps).append(gap)
    within = sum(gap <= 0.05 for gap in gaps) / len(gaps)
    print(f"reservations: {len(rows)} rows, caches and state exact {right / len(rows):.2%}")
    print(f"  GPU compute: median {median(gaps):.4%}, within 5% {within:.1%} of {len(gaps)}")
    near = sum(gap <= 0.05 for gap in host) / len(host)
    print(f"  host compute: median {median(host):.4%}, within 5% {near:.1%}")
    return right / len(rows) >= 0.995 and median(gaps) <= 0.005 and within >= 0.9


def _case(row: dict[str, Any]) -> dict[str, Any]:
    known = {"c", "ub", "b", "np", "kvu", "ctk", "ctv", "fa", "draft", "swa_full"}
    flags = {k: v for k, v in row["flags"].items() if k in known and v is not None}
    fork = row["kind"].startswith("ik_llama")
    case: dict[str, Any] = {"flags": flags, "engine": "ik_llama.cpp" if fork else "llama.cpp"}
    if row["arch"] in record_lines():
        return {**case, "model": row["arch"]}
    if fork and row["inline_caches"] and row["flags"].get("ctv") is None:
        flags.setdefault("ctv", flags.get("ctk", "f16"))
    return {
        **case,
        "caches": row["inline_caches"] or [],
        "state_bytes_per_seq": row["inline_state_bytes_per_seq"] or 0,
    }


def judge_logs(rows: list[dict[str, Any]]) -> None:
    good, total, missed = 0, 0, []
    for row in rows:
        answer = answer_case(_case(row), row["id"])
        by_name = {cache["name"]: cache["mib"] for cache in answer["kv"]}
        planned = {
            # a log that prints the index apart counts it apart
            "kv_mib": by_name.get("kv")
            if "indexer_kv_mib" in row["score_fields"]
            else sum(by_name.values()),
            "rs_mib": answer["state_mib"],
            "swa_kv_mib": by_name.get("swa", by_name.get("raw_swa")),
            "full_kv_mib": by_name.get("kv"),
            "indexer_kv_mib": by_name.get("indexer"),
        }
        for field in row["score_fields"]:
            if field not in planned or row["expected"].get(field) is None:
                continue
            total += 1
            actual, plan = row["expected"][field], planned[field]
            if plan is not None and actual and abs(plan / actual - 1) <= 0.005:
                good += 1
            else:
                missed.append((row["id"], field, plan, actual, answer["refused"]))
    print(f"logs: {good} of {total} fields within 0.5%")
    for miss in missed:
        print("  missed", *miss)


def judge_files() -> None:
    gaps = []
    for name in record_lines():
        record = json.loads(record_lines()[name])
        facts = model_facts_from_record(name)
        for quant, size in record["measured"].items():
            rule = facts.quants.get(f"{quant}_MOE" if quant == "MXFP4" else quant)
            if rule is not None and quant in record["quants"]:
                gaps.append(abs(rule.total / size - 1))
    print(f"weights by rule: {len(gaps)} files, median {median(gaps):.2%}, worst {max(gaps):.2%}")


def judge_speed(rows: list[dict[str, Any]]) -> None:
    lines = [json.dumps({"id": i, "model": r["model"], "flags": r["flags"]})
             for i, r in enumerate(rows)]  # fmt: skip
    plain = min(_timed(lambda: [json.dumps(json.loads(x)) for x in lines]) for _ in range(5))
    ours = min(
        _timed(lambda: [json.dumps(answer_case(json.loads(x), "")) for x in lines])
        for _ in range(5)
    )
    print(f"speed: {len(lines) / ours:.0f} cases/s, {ours / plain:.1f} times loads and dumps")


def _timed(work: Any) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> int:
    folder = Path(sys.argv[1])
    rows = json.loads((folder / "reservations.json").read_text())["rows"]
    good = judge_reservations(rows)
    judge_logs(json.loads((folder / "logs.json").read_text())["rows"])
    judge_files()
    judge_speed(rows)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
