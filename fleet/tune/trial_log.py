"""The study on disk: append-only JSON lines, one atomic line an event.

`{"study": {...}}` opens a study and says what it depends on, `{"yardstick": {...}}` what its
runs are measured with, `{"screening": {...}}` what llama-bench hints at, `{"running": {...}}`
that a lane began a run, `{"trial": {...}}` is one run, `{"end": {...}}` its result. The newest
study of the file counts; a line that a kill cut short is passed over. Several controllers may
write into one log.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fleet.effects.files import append_line
from fleet.tune.run_study import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fleet.tune.raw_screening import Hint
    from fleet.tune.run_study import Trial
    from fleet.tune.search import Purpose
    from fleet.tune.search_space import Settings

Logged = tuple["Settings", "Purpose", Outcome]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedStudy:
    """The newest study of a log: what it depends on, its runs, its end when it has one.

    `running` are the runs that began and have not ended, by lane: the settings, and the
    process that runs them (which may be gone). `lanes` are the hosts that ran anything.
    """

    key: Mapping[str, Any]
    trials: tuple[Logged, ...]
    end: Mapping[str, Any] | None
    yardstick: Mapping[str, Any] | None = None
    hints: tuple[Hint, ...] = ()
    screening_s: float = 0.0  # that the hints took
    running: Mapping[str, tuple[Settings, int]] = field(default_factory=dict)
    lanes: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialLog:
    """One deployment's log for one metric."""

    path: Path

    def begin(self, key: Mapping[str, Any], *, at: str) -> None:
        """Open a new study."""
        self._append({"study": dict(key), "at": at})

    def measure_with(self, yardstick: Mapping[str, Any]) -> None:
        """Write down what the runs of this study are measured with."""
        self._append({"yardstick": dict(yardstick)})

    def screened(self, hints: Sequence[Hint], *, seconds: float) -> None:
        """Write down what llama-bench said, and how long that took."""
        self._append({"screening": {"hints": hints, "seconds": seconds}})

    def running(self, lane: str, settings: Settings, *, process: int) -> None:
        """Say that `lane` begins a run."""
        self._append({"running": {"lane": lane, "settings": settings, "process": process}})

    def dropped(self, lane: str) -> None:
        """Say that what `lane` began will never end."""
        self._append({"dropped": lane})

    def add(self, trial: Trial, *, lane: str, at: str) -> None:
        """Write one run down."""
        event = {
            "number": trial.number, "lane": lane, "settings": trial.settings,
            "purpose": trial.purpose, **asdict(trial.outcome),
        }  # fmt: skip
        self._append({"trial": event, "at": at})

    def end(self, result: Mapping[str, Any], *, at: str) -> None:
        """Write the result down; the next `tune` begins anew."""
        self._append({"end": dict(result), "at": at})

    def newest(self) -> LoggedStudy | None:
        """Return the newest study, None without one."""
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return None
        return newest_study(lines)

    def _append(self, event: Mapping[str, Any]) -> None:
        append_line(self.path, json.dumps(event, ensure_ascii=False))


def newest_study(lines: list[str]) -> LoggedStudy | None:
    """Read the newest study out of a log's lines; damaged lines are passed over."""
    found: LoggedStudy | None = None
    trials: list[Logged] = []
    for event in map(_event, lines):
        if "study" in event:
            trials = []
            found = LoggedStudy(key=event["study"], trials=(), end=None)
        elif found is not None:
            found = _with(found, event, trials)
    return None if found is None else replace(found, trials=tuple(trials))


def _with(found: LoggedStudy, event: Mapping[str, Any], trials: list[Logged]) -> LoggedStudy:
    if "trial" in event:
        trials.append(_logged(event["trial"]))
        return _without(found, event["trial"].get("lane", ""))
    if "running" in event:
        began = event["running"]
        running = {**found.running, began["lane"]: (began["settings"], began["process"])}
        lanes = found.lanes | {str(began["lane"]).rpartition("/")[0]}
        return replace(found, running=running, lanes=lanes)
    if "dropped" in event:
        return _without(found, event["dropped"])
    if "screening" in event:
        told = event["screening"]
        hints = tuple((name, value, ratio) for name, value, ratio in told["hints"])
        return replace(found, hints=hints, screening_s=told["seconds"])
    if "yardstick" in event:
        return replace(found, yardstick=event["yardstick"])
    return replace(found, end=event["end"]) if "end" in event else found


def _without(found: LoggedStudy, lane: str) -> LoggedStudy:
    left = {name: each for name, each in found.running.items() if name != lane}
    return replace(found, running=left)


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
