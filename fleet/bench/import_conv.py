"""Published raw data of conversation runs (`conv.csv`, `conv_trials.jsonl`) as turns.

| there                         | here                                                          |
|-------------------------------|---------------------------------------------------------------|
| a CSV row a run, reruns kept  | the last stable run of each case; the others are counted      |
| turns of all runs in one file | the chain of turns whose token sums are those of that row      |
| a context a run               | a model whose runs do not share one becomes several, `M@4096`  |
| `prompt_tokens` = whole prompt| processed = `prompt_tps` x `prompt_ms`, cached = the rest      |
| `prompt_ms`, `predict_ms`     | prefill and decode milliseconds                               |
| `elapsed_sec`                 | wall; what neither explains was waiting, and the page says so  |
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
    "cond_label", "backend", "context", "turns", "load_sec", "sum_prompt_tokens",
    "sum_gen_tokens", "stable", "date",
}  # fmt: skip
_TEXTS = ("case_id", "user", "assistant")
_COUNTS = ("turn", "prompt_tokens", "gen_tokens")
_AMOUNTS = ("elapsed_sec", "prompt_ms", "predict_ms", "prompt_tps")
_DRAFTS = ("draft_n", "draft_accepted")  # null without speculation
_FIELDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(_TEXTS, (str,)), **dict.fromkeys(_COUNTS, (int,)),
    **dict.fromkeys(_AMOUNTS, (int, float)), **dict.fromkeys(_DRAFTS, (int, type(None))),
}  # fmt: skip
_ROUNDED = 0.05  # half of the last digit that rates and milliseconds were written with
_WAITED = 0.1  # the share of a run's wall time that neither prefill nor decode explains
Trial = dict[str, Any]
_FIX = "expected are a `conv.csv` with one row a run and a `conv_trials.jsonl` with one line a turn"


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """A run as it goes into a results folder: `run.json`, turns, answers, launches."""

    run: dict[str, Any]
    turns: tuple[Turn, ...]
    answers: tuple[str, ...]
    servers: dict[str, dict[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """One complete stable run: its row, its turns, and its model's name in the results."""

    row: Mapping[str, str]
    trials: tuple[Trial, ...]
    model: str

    @property
    def condition(self) -> str:
        return f"{self.model}:{self.row['cond_key']}"

    @property
    def waited(self) -> float:
        """The share of wall time that was neither prefill nor decode."""
        wall = sum(trial["elapsed_sec"] for trial in self.trials)
        told = sum(trial["prompt_ms"] + trial["predict_ms"] for trial in self.trials) / 1000
        return 1 - told / wall if wall else 0.0


def import_conv(csv_text: str, trials_text: str, *, source: str) -> Imported:
    """Read both files. Raises `UserError` with the line for columns or fields that miss."""
    rows = _rows(csv_text, source)
    runs = _stable_runs(rows, _chains(_trials(trials_text, source)))
    if not runs:
        raise UserError("no complete stable run is in these files", where=source, fix=_FIX)
    return Imported(
        run=_run(rows, runs),
        turns=tuple(_turn(run, trial) for run in runs for trial in run.trials),
        answers=tuple(trial["assistant"] for run in runs for trial in run.trials),
        servers={run.condition: _server(run) for run in runs},
    )


def _rows(text: str, source: str) -> list[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(text.lstrip("\ufeff")))
    if missing := sorted(_COLUMNS - set(reader.fieldnames or ())):
        where = f"{source}/conv.csv:1"
        raise UserError(f"column `{missing[0]}` is missing", where=where, fix=_FIX)
    rows = []
    for row in reader:
        if None in row.values() or None in row:
            where = f"{source}/conv.csv:{reader.line_num}"
            raise UserError("this row has not as many cells as columns", where=where, fix=_FIX)
        rows.append(row)
    return rows


def _trials(text: str, source: str) -> Iterable[Trial]:
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{source}/conv_trials.jsonl:{number}"
        try:
            trial = json.loads(line)
        except ValueError:
            raise UserError("this line is not JSON", where=where, fix=_FIX) from None
        if not isinstance(trial, dict):
            raise UserError("this line is no JSON object", where=where, fix=_FIX)
        for name, kind in _FIELDS.items():
            if name not in trial:
                raise UserError(f"field `{name}` is missing", where=where, fix=_FIX)
            if not isinstance(trial[name], kind):
                message = f"`{name}` is {json.dumps(trial[name])}"
                raise UserError(message, where=where, fix=_FIX)
        yield trial


def _chains(trials: Iterable[Trial]) -> dict[str, list[list[Trial]]]:
    """Return the runs of each case: a turn goes on with the last run that awaits it."""
    cases: dict[str, list[list[Trial]]] = {}
    for trial in trials:
        runs = cases.setdefault(trial["case_id"], [])
        waiting = (run for run in reversed(runs) if run[-1]["turn"] == trial["turn"] - 1)
        run = next(waiting, None)
        if run is None:
            runs.append([trial])
        else:
            run.append(trial)
    return cases


def _stable_runs(
    rows: Sequence[Mapping[str, str]], chains: Mapping[str, list[list[Trial]]]
) -> list[_Run]:
    """Return the last stable run of each case with its own turns."""
    found: dict[str, tuple[Mapping[str, str], list[Trial]]] = {}
    for row in rows:
        mine = next((c for c in chains.get(row["case_id"], ()) if _sums(c) == _said(row)), None)
        if row["stable"] == "true" and mine is not None:
            found[row["case_id"]] = row, mine
    contexts: dict[str, set[str]] = {}
    for row, _ in found.values():
        contexts.setdefault(row["model_key"], set()).add(row["context"])
    return [
        _Run(
            row=row,
            trials=tuple(trials),
            model=row["model_key"]
            if len(contexts[row["model_key"]]) == 1
            else f"{row['model_key']}@{row['context']}",
        )
        for row, trials in found.values()
    ]


def _said(row: Mapping[str, str]) -> tuple[str, ...]:
    return row["turns"], row["sum_prompt_tokens"], row["sum_gen_tokens"]


def _sums(trials: Sequence[Trial]) -> tuple[str, ...]:
    """Return what a row says of its run: turns, tokens of prompts, tokens of answers."""
    sums = (sum(trial[name] for trial in trials) for name in ("prompt_tokens", "gen_tokens"))
    return tuple(map(str, (len(trials), *sums)))


def _turn(run: _Run, trial: Trial) -> Turn:
    processed = _processed(trial)
    return Turn(
        conversation=run.row["persona_key"],
        condition=run.condition,
        repeat=1,
        turn=trial["turn"],
        processed_tokens=processed,
        cached_tokens=trial["prompt_tokens"] - processed,
        generated_tokens=trial["gen_tokens"],
        prefill_ms=float(trial["prompt_ms"]),
        decode_ms=float(trial["predict_ms"]),
        ttft_ms=float(trial["prompt_ms"]),
        wall_ms=float(trial["elapsed_sec"]) * 1000,
        draft_n=trial["draft_n"] or 0,
        draft_accepted=trial["draft_accepted"] or 0,
        cold=trial["turn"] == 1,
        retries=0,
        answer_sha256=hashlib.sha256(trial["assistant"].encode()).hexdigest(),
    )


def _processed(trial: Trial) -> int:
    """Return rate x time, or the whole prompt where rounding alone may make the difference."""
    whole: int = trial["prompt_tokens"]
    rate, seconds = trial["prompt_tps"], trial["prompt_ms"] / 1000
    found = round(rate * seconds)
    doubt = _ROUNDED * (seconds + rate / 1000) + 0.5
    return whole if whole - found <= doubt else found


def _run(rows: Sequence[Mapping[str, str]], runs: Sequence[_Run]) -> dict[str, Any]:
    talks: dict[str, dict[str, Any]] = {}
    for run in runs:
        said = [trial["user"] for trial in run.trials]
        name = run.row["persona_key"]
        if name not in talks or len(said) > len(talks[name]["turns"]):
            content = json.dumps(said, ensure_ascii=False).encode()
            talks[name] = {
                "name": name, "language": "?", "persona": run.row["persona_label"],
                "sha256": hashlib.sha256(content).hexdigest(), "system": "", "turns": said,
            }  # fmt: skip
    return {
        "suite": "conversation",
        "fleet": "imported",
        "started": min(run.row["date"] for run in runs),
        "mode": "free",
        "generate": None,
        "seed": None,
        "repeats": 1,
        "limit_turns": None,
        "deployments": list(dict.fromkeys(run.model for run in runs)),
        "conditions": list({run.condition: _condition(run) for run in runs}.values()),
        "conversations": list(talks.values()),
        "machine": {"backend": ", ".join(sorted({run.row["backend"] for run in runs}))},
        "imported": _caveats(rows, runs),
    }


def _condition(run: _Run) -> dict[str, Any]:
    return {
        "name": run.condition, "deployment": run.model,
        "meaning": f"{run.row['model_file']}, {run.row['cond_label']}", "settings": {},
        "cache_prompt": run.row["cond_key"] != "C0", "primed": False,
    }  # fmt: skip


def _caveats(rows: Sequence[Mapping[str, str]], runs: Sequence[_Run]) -> list[str]:
    """Return what a reader of these figures must know."""
    waited = [f"{run.row['case_id']} {run.waited:.0%}" for run in runs if run.waited > _WAITED]
    told = [
        f"Imported: {len(runs)} complete runs of {len(rows)}; failed, repeated, cut ones are not.",
        "A run's turns are those whose token sums its row names.",
        "Cached tokens were not stored: processed are prompt rate x prompt time, cached the rest.",
        "The published rates of a run divide cached tokens too and are not used.",
        "TTFT was not measured: prefill stands for it. Requests sent again were not counted.",
        "Runs of one model with unlike contexts are kept apart; layers on the GPU are not told.",
    ]
    if waited:
        told.append(
            f"Over {_WAITED:.0%} of the wall time of {len(waited)} runs is neither prefill nor "
            f"decode ({', '.join(waited)}): somebody else used the server, or requests "
            "were sent again. Compare their prefill and decode, not their wall time."
        )
    return told


def _server(run: _Run) -> dict[str, Any]:
    identity = {
        "engine": "llama.cpp", "program": "llama-server", "context": run.row["context"],
        "model": run.row["model_file"], "settings": {}, "argv": [], "env": {},
    }  # fmt: skip
    return {
        "condition": run.condition,
        "meaning": run.row["cond_label"],
        "deployment": run.model,
        "overrides": {},
        "cache_prompt": run.row["cond_key"] != "C0",
        "primed": False,
        "load_s": float(run.row["load_sec"] or 0),
        "identity": identity,
    }
