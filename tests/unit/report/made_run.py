"""A conversation run made for tests: three conversations, four conditions, twenty turns."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from fleet.bench.results_folder import ResultsFolder
from fleet.bench.turn import Turn

if TYPE_CHECKING:
    from pathlib import Path

CONDITIONS = {"C0": "no prompt cache", "C1": "cache", "C2": "cache + n-grams", "C3": "primed"}
TALKS = {"P0": "assistant", "P1": "shopkeeper", "P2-ja": "漁師"}


def write_run(path: Path, *, turns: int = 20, repeats: int = 2, **changes: Any) -> ResultsFolder:
    """Write a results folder as a bench would."""
    folder = ResultsFolder(path=path)
    folder.write_run({
        "suite": "conversation", "fleet": "0", "started": "2026-01-02T03:04:05+00:00",
        "mode": "replay", "generate": 64, "seed": 42, "repeats": repeats, "limit_turns": None,
        "deployments": ["made"],
        "conditions": [
            {"name": name, "deployment": "made", "meaning": meaning, "settings": {},
             "cache_prompt": name != "C0", "primed": name == "C3"}
            for name, meaning in CONDITIONS.items()
        ],
        "conversations": [
            {"name": name, "language": "en", "persona": persona, "sha256": "0",
             "system": "Rules: <b>none</b> & all.",
             "turns": [_said(number) for number in range(1, turns + 1)]}
            for name, persona in TALKS.items()
        ],
        "machine": {"fingerprint": "f", "cpu": "a CPU", "cores": 2, "memory_bytes": 2**34},
        **changes,
    })  # fmt: skip
    for name in CONDITIONS:
        folder.write_server(name, _server(name))
    lines, samples = [], []
    for repeat in range(1, repeats + 1):
        for talk in TALKS:
            for name in CONDITIONS:
                for number in range(1, turns + 1):
                    made = _turn(folder, talk, name, repeat, number)
                    lines.append(made.as_line())
                    samples.append(made)
    (path / "turns.jsonl").write_text("".join(f"{line}\n" for line in lines))
    for made in samples[:: max(1, turns // 2)]:
        folder.add_sample({
            "conversation": made.conversation, "condition": made.condition, "repeat": made.repeat,
            "turn": made.turn, "memory_bytes": 400 * 2**20, "load": 1.5, "timed_by": "server",
        })  # fmt: skip
    return folder


def _said(number: int) -> str:
    return f"Question {number}: what about <script>alert({number})</script> & 魚?"


def _turn(folder: ResultsFolder, talk: str, name: str, repeat: int, number: int) -> Turn:
    whole = 200 + 90 * number
    cached = 0 if name == "C0" else max(0, whole - 60 if number > 1 or name == "C3" else 0)
    speed = 400 + 7 * repeat
    answer = f"Answer {number} of {talk}. " * 8 + ("(other)" if name == "C2" and number > 9 else "")
    digest = hashlib.sha256(answer.encode()).hexdigest()
    if not (folder.path / "answers" / f"{digest}.txt").exists():
        folder.keep_answer(answer)
    prefill = (whole - cached) / speed * 1000
    decode = 63 / 60 * 1000 / (1.3 if name == "C2" else 1)
    return Turn(
        conversation=talk, condition=name, repeat=repeat, turn=number,
        processed_tokens=whole - cached, cached_tokens=cached, generated_tokens=64,
        prefill_ms=round(prefill, 3), decode_ms=round(decode, 3), ttft_ms=round(prefill + 3, 3),
        wall_ms=round(prefill + decode + 6, 3), draft_n=40 if name == "C2" else 0,
        draft_accepted=25 if name == "C2" else 0, cold=number == 1, retries=0,
        answer_sha256=digest,
    )  # fmt: skip


def _server(name: str) -> dict[str, Any]:
    argv = ["-m", "model.gguf", "-c", "8192", *(["--spec-type", "ngram"] if name == "C2" else [])]
    return {
        "condition": name, "meaning": CONDITIONS[name], "deployment": "made", "overrides": {},
        "cache_prompt": name != "C0", "primed": name == "C3", "load_s": 1.0,
        "identity": {
            "engine": "llama.cpp", "build": "b1-x", "context": 8192, "slots": 1,
            "kv_types": "f16/f16", "gpu_layers": None, "settings": {"threads": 2}, "argv": argv,
            "env": {}, "program": "llama-server", "image": None, "model": "model.gguf",
        },
    }  # fmt: skip
