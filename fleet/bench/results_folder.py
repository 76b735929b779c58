"""A results folder: what was asked, what was measured, safe against a kill at any byte.

```
DIR/run.json            what was asked, on which machine
DIR/turns.jsonl         one line a turn; the line is what makes the turn count
DIR/references.jsonl    the recorded conversation that `replay` replays
DIR/answers/SHA256.txt  each distinct answer once
DIR/servers/NAME.json   the launch of each condition; samples.jsonl: memory and load;
                        logs/: the engine's own log of each cell
```
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet.bench.turn import Turn, parse_turns
from fleet.effects.files import append_line, write_atomically
from fleet.effects.lock import held
from fleet.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

VERSION = 1
SUITES = ("conversation", "window", "load", "raw")


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultsFolder:
    """The folder at `path`; reads and writes whole things only."""

    path: Path

    def locked(self) -> AbstractContextManager[None]:
        """Hold the folder for one bench. Raises `LockHeld`."""
        return held(self.path / ".lock")

    def read_run(self) -> dict[str, Any] | None:
        """Return `run.json`, None when the folder is new.

        Raises `UserError` for a folder of something else, or of another version.
        """
        file = self.path / "run.json"
        if not file.exists():
            return None
        fix = "name another folder with `--out`, or the results folder of a bench"
        try:
            run = json.loads(_text_of(file))
        except ValueError:
            raise UserError("not JSON", where=str(file), fix=fix) from None
        if not isinstance(run, dict) or run.get("suite") not in SUITES:
            raise UserError("this is no run of `fleet bench`", where=str(file), fix=fix)
        if run.get("version") != VERSION:
            message = f"written by format version {run.get('version')}, this fleet reads {VERSION}"
            raise UserError(message, where=str(file), fix=fix)
        return run

    def refuse_used(self, suite: str) -> None:
        """Raise `UserError` when there is a run: one of this suite cannot be gone on with."""
        if self.read_run() is not None:
            message = f"this folder holds a run, and one of suite {suite} cannot be gone on with"
            raise UserError(message, where=str(self.path), fix="name a new folder with `--out`")

    def write_run(self, run: dict[str, Any]) -> None:
        """Replace `run.json`."""
        self._write("run.json", {"version": VERSION, **run})

    def turns(self) -> tuple[Turn, ...]:
        """Return the turns measured so far; raises `UserError` for a broken file."""
        file = self.path / "turns.jsonl"
        return parse_turns(self._text("turns.jsonl"), source=str(file)) if file.exists() else ()

    def mend(self) -> None:
        """Cut off a last line that a kill left unfinished, in each file of lines."""
        for name in LINE_FILES:
            text = self._text(name)
            whole, end, rest = text.rpartition("\n")
            if rest:
                write_atomically(self.path / name, whole + end)

    def add_turn(self, turn: Turn) -> None:
        """Append the turn; when this returns it is on the disk."""
        append_line(self.path / "turns.jsonl", turn.as_line())

    def keep_answer(self, text: str) -> str:
        """Store `text` under its SHA-256 and return that."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        file = self._answer_file(digest)
        if not file.exists():
            write_atomically(file, text)
        return digest

    def answer(self, digest: str) -> str:
        """Return the text of an answer. Raises `UserError` when it is gone."""
        try:
            return _text_of(self._answer_file(digest))
        except FileNotFoundError:
            raise UserError(
                "an answer that the turns name is missing",
                where=str(self._answer_file(digest)),
                fix="the folder was not copied whole; start a new one with `--out`",
            ) from None

    def references(self) -> dict[tuple[str, str, int], str]:
        """Return (deployment, conversation, turn) -> SHA-256 of the recorded answer."""
        found: dict[tuple[str, str, int], str] = {}
        for known in self.lines("references.jsonl"):
            key = (known["deployment"], known["conversation"], known["turn"])
            found.setdefault(key, known["answer_sha256"])
        return found

    def add_reference(self, deployment: str, conversation: str, turn: int, digest: str) -> None:
        """Record the answer that every condition sees as history from here on."""
        known = {
            "deployment": deployment,
            "conversation": conversation,
            "turn": turn,
            "answer_sha256": digest,
        }
        append_line(self.path / "references.jsonl", json.dumps(known))

    def server(self, condition: str) -> dict[str, Any] | None:
        """Return the recorded launch of a condition, None before its first start."""
        file = self.path / "servers" / f"{server_file(condition)}.json"
        return _object(_text_of(file), str(file)) if file.exists() else None

    def write_server(self, condition: str, record: dict[str, Any]) -> None:
        """Record the launch of a condition."""
        self._write(f"servers/{server_file(condition)}.json", record)

    def keep_log(self, name: str, lines: Iterable[str]) -> None:
        """Store what the engine logged while one cell was measured."""
        text = "".join(f"{line}\n" for line in lines)
        write_atomically(self.path / "servers" / "logs" / f"{server_file(name)}.log", text)

    def add_sample(self, sample: dict[str, Any]) -> None:
        """Append what memory and load were at the end of a turn."""
        append_line(self.path / "servers/samples.jsonl", json.dumps(sample))

    def samples(self) -> tuple[dict[str, Any], ...]:
        """Return the samples; a turn that was done again has its last one only."""
        keys = ("conversation", "condition", "repeat", "turn")
        lines = self.lines("servers/samples.jsonl")
        by_turn = {tuple(sample.get(key) for key in keys): sample for sample in lines}
        return tuple(by_turn.values())

    def add_line(self, name: str, content: dict[str, Any]) -> None:
        """Append one JSON line to the file `name` of another suite."""
        append_line(self.path / name, json.dumps(content))

    def lines(self, name: str) -> tuple[dict[str, Any], ...]:
        """Return the whole lines of `name`. Raises `UserError` for one that is no object."""
        return tuple(
            _object(line, f"{self.path / name}:{number}")
            for number, line in enumerate(self._text(name).split("\n")[:-1], 1)
        )

    def _answer_file(self, digest: str) -> Path:
        return self.path / "answers" / f"{digest}.txt"

    def _text(self, name: str) -> str:
        try:
            return _text_of(self.path / name)
        except FileNotFoundError:
            return ""

    def _write(self, name: str, content: dict[str, Any]) -> None:
        write_atomically(self.path / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


LINE_FILES = (
    "turns.jsonl",
    "references.jsonl",
    "servers/samples.jsonl",
    "snapshots.jsonl",
    "requests.jsonl",
    "rows.jsonl",
)


def server_file(condition: str) -> str:
    """Return the file name (without `.json`) of a condition, `DEPLOYMENT:C0` too."""
    return condition.replace(":", "--").replace("/", "_")


def _text_of(file: Path) -> str:
    """Return the text; bytes that are none are left for the reader to find, by their line."""
    return file.read_text(encoding="utf-8", errors="replace")


def _object(text: str, where: str) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, dict):
            return found
    fix = "the folder is damaged; start a new one with `--out`"
    raise UserError("this is no JSON object", where=where, fix=fix)
