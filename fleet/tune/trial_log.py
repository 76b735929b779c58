"""The study on disk: append-only JSON lines, one atomic line an event.

`{"study": {...}}` opens a study and says what it depends on, `{"trial": {...}}` is one run,
`{"end": {...}}` its result. The newest study of the file counts; a line that a kill cut short
is passed over.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fleet.effects.files import append_line, read_text
from fleet.tune.run_study import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fleet.tune.run_study import Trial
    from fleet.tune.search import Purpose
    from fleet.tune.search_space import Settings

Logged = tuple["Settings", "Purpose", Outcome]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedStudy:
    """The newest study of a log: what it depends on, its runs, its end when it has one."""

    key: Mapping[str, Any]
    trials: tuple[Logged, ...]
    end: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialLog:
    """One deployment's log for one metric."""

    path: Path

    def begin(self, key: Mapping[str, Any], *, at: str) -> None:
        """Open a new study."""
        self._append({"study": dict(key), "at": at})

    def add(self, trial: Trial, *, at: str) -> None:
        """Write one run down."""
        event = {
            "number": trial.number, "settings": trial.settings, "purpose": trial.purpose,
            **asdict(trial.outcome),
        }  # fmt: skip
        self._append({"trial": event, "at": at})

    def end(self, result: Mapping[str, Any], *, at: str) -> None:
        """Write the result down; the next `tune` begins anew."""
        self._append({"end": dict(result), "at": at})

    def newest(self) -> LoggedStudy | None:
        """Return the newest study, None without one."""
        try:
            lines = read_text(self.path).splitlines()
        except FileNotFoundError:
            return None
        return newest_study(lines)

    def _append(self, event: Mapping[str, Any]) -> None:
        append_line(self.path, json.dumps(event, ensure_ascii=False))


def newest_study(lines: list[str]) -> LoggedStudy | None:
    """Read the newest study out of a log's lines; damaged lines are passed over."""
    key: Mapping[str, Any] | None = None
    trials: list[Logged] = []
    end: Mapping[str, Any] | None = None
    for event in map(_event, lines):
        if "study" in event:
            key, trials, end = event["study"], [], None
        elif "trial" in event:
            trials.append(_logged(event["trial"]))
        elif "end" in event:
            end = event["end"]
    return None if key is None else LoggedStudy(key=key, trials=tuple(trials), end=end)


def _event(line: str) -> Mapping[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _logged(raw: Mapping[str, Any]) -> Logged:
    outcome = Outcome(
        value=raw["value"], seconds=raw["seconds"], failed=raw["failed"], guards=raw["guards"],
        figures=raw["figures"],
    )  # fmt: skip
    return raw["settings"], raw["purpose"], outcome
