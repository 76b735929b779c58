"""Published raw data of conversation runs (`conv.csv`, `conv_trials.jsonl`) as turns.

| there                         | here                                                          |
|-------------------------------|---------------------------------------------------------------|
| a CSV row a run, reruns kept  | the last stable run of each case; the others are counted      |
| `prompt_tokens` = whole prompt| processed = `prompt_tps` x `prompt_ms`, cached = the rest      |
| `prompt_ms`, `predict_ms`     | prefill and decode milliseconds                               |
| no streaming                  | TTFT is not known: prefill stands for it, and the page says so |
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet.bench.turn import Turn
from fleet.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_COLUMNS = {
    "case_id", "model_key", "model_file", "persona_key", "persona_label", "cond_key",
    "cond_label", "backend", "context", "turns", "load_sec", "stable", "notes", "date",
}  # fmt: skip
_FIELDS = {
    "case_id", "turn", "user", "assistant", "elapsed_sec", "prompt_tokens", "gen_tokens",
    "prompt_ms", "predict_ms", "prompt_tps", "draft_n", "draft_accepted",
}  # fmt: skip
_FIX = "expected are a `conv.csv` with one row a run and a `conv_trials.jsonl` with one line a turn"


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """A run as it goes into a results folder: `run.json`, turns, answers, launches."""

    run: dict[str, Any]
    turns: tuple[Turn, ...]
    answers: tuple[str, ...]
    servers: dict[str, dict[str, Any]]


def import_conv(csv_text: str, trials_text: str, *, source: str) -> Imported:
    """Read both files. Raises `UserError` with the line for columns or fields that miss."""
    rows = _rows(csv_text, source)
    stable = {row["case_id"]: row for row in rows if row["stable"] == "true"}
    runs = _last_runs(_trials(trials_text, source))
    whole = {
        case: (row, runs[case])
        for case, row in stable.items()
        if case in runs and len(runs[case]) == int(row["turns"])
    }
    if not whole:
        raise UserError("no complete stable run is in these files", where=source, fix=_FIX)
    turns = tuple(_turn(row, trial) for row, trials in whole.values() for trial in trials)
    answers = tuple(str(trial["assistant"]) for _, trials in whole.values() for trial in trials)
    return Imported(
        run=_run(rows, whole),
        turns=turns,
        answers=answers,
        servers={_condition(row): _server(row) for row, _ in whole.values()},
    )


def _rows(text: str, source: str) -> list[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(text.lstrip("\ufeff")))
    if missing := sorted(_COLUMNS - set(reader.fieldnames or ())):
        where = f"{source}/conv.csv:1"
        raise UserError(f"column `{missing[0]}` is missing", where=where, fix=_FIX)
    return list(reader)


def _trials(text: str, source: str) -> Iterable[dict[str, Any]]:
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{source}/conv_trials.jsonl:{number}"
        try:
            trial = json.loads(line)
        except ValueError:
            raise UserError("this line is not JSON", where=where, fix=_FIX) from None
        if missing := sorted(_FIELDS - trial.keys()):
            raise UserError(f"field `{missing[0]}` is missing", where=where, fix=_FIX)
        yield trial


def _last_runs(trials: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return each case's last run: a turn that does not follow the one before begins a new."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for trial in trials:
        run = runs.setdefault(trial["case_id"], [])
        if run and trial["turn"] <= run[-1]["turn"]:
            run.clear()
        run.append(trial)
    return runs


def _condition(row: Mapping[str, str]) -> str:
    return f"{row['model_key']}:{row['cond_key']}"


def _turn(row: Mapping[str, str], trial: Mapping[str, Any]) -> Turn:
    whole = int(trial["prompt_tokens"])
    processed = min(round(float(trial["prompt_tps"]) * float(trial["prompt_ms"]) / 1000), whole)
    return Turn(
        conversation=row["persona_key"],
        condition=_condition(row),
        repeat=1,
        turn=int(trial["turn"]),
        processed_tokens=processed,
        cached_tokens=whole - processed,
        generated_tokens=int(trial["gen_tokens"]),
        prefill_ms=float(trial["prompt_ms"]),
        decode_ms=float(trial["predict_ms"]),
        ttft_ms=float(trial["prompt_ms"]),
        wall_ms=float(trial["elapsed_sec"]) * 1000,
        draft_n=int(trial["draft_n"] or 0),
        draft_accepted=int(trial["draft_accepted"] or 0),
        cold=trial["turn"] == 1,
        retries=0,
        answer_sha256=hashlib.sha256(str(trial["assistant"]).encode()).hexdigest(),
    )


def _run(
    rows: Sequence[Mapping[str, str]],
    whole: Mapping[str, tuple[Mapping[str, str], Sequence[Mapping[str, Any]]]],
) -> dict[str, Any]:
    talks: dict[str, dict[str, Any]] = {}
    conditions: dict[str, dict[str, Any]] = {}
    for row, trials in whole.values():
        said = [str(trial["user"]) for trial in trials]
        content = json.dumps(said, ensure_ascii=False).encode()
        known = talks.setdefault(row["persona_key"], {"turns": []})
        if len(said) > len(known["turns"]):
            talks[row["persona_key"]] = {
                "name": row["persona_key"], "language": "?", "persona": row["persona_label"],
                "sha256": hashlib.sha256(content).hexdigest(), "system": "", "turns": said,
            }  # fmt: skip
        conditions[_condition(row)] = {
            "name": _condition(row), "deployment": row["model_key"],
            "meaning": f"{row['model_file']}, {row['cond_label']}", "settings": {},
            "cache_prompt": row["cond_key"] != "C0", "primed": False,
        }  # fmt: skip
    failed = len(rows) - len(whole)
    contexts = sorted({row["context"] for row, _ in whole.values()})
    return {
        "suite": "conversation",
        "fleet": "imported",
        "started": min(row["date"] for row, _ in whole.values()),
        "mode": "free",
        "generate": None,
        "seed": None,
        "repeats": 1,
        "limit_turns": None,
        "deployments": list(dict.fromkeys(row["model_key"] for row, _ in whole.values())),
        "conditions": list(conditions.values()),
        "conversations": list(talks.values()),
        "machine": {"backend": ", ".join(sorted({row["backend"] for row, _ in whole.values()}))},
        "imported": (
            f"Imported: {len(whole)} complete runs of {len(rows)} ({failed} failed or repeated "
            "ones left out). Cached tokens were not stored: processed tokens are prompt rate x "
            "prompt time, cached the rest. TTFT was not measured: prefill stands for it. "
            f"Contexts: {', '.join(contexts)}; compare only runs that share theirs."
        ),
    }


def _server(row: Mapping[str, str]) -> dict[str, Any]:
    identity = {
        "engine": "llama.cpp", "program": "llama-server", "context": row["context"],
        "model": row["model_file"], "settings": {}, "argv": [], "env": {},
    }  # fmt: skip
    return {
        "condition": _condition(row),
        "meaning": row["cond_label"],
        "deployment": row["model_key"],
        "overrides": {},
        "cache_prompt": row["cond_key"] != "C0",
        "primed": False,
        "load_s": float(row["load_sec"] or 0),
        "identity": identity,
    }
