"""Tune anything that answers JSON lines: the search of `tune` with a program as the machine."""

from __future__ import annotations

import json
import math
import shlex
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fleet.errors import OutsideError, UserError
from fleet.tune.run_study import Outcome, Study, run_study
from fleet.tune.search import Search

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.tune.run_study import Trial
    from fleet.tune.search import Verdict
    from fleet.tune.search_space import SearchSpace, Settings


class Program(Protocol):
    """What is spoken to: one line in, one line out."""

    def say(self, line: str) -> None:
        """Send one line."""
        ...

    def hear(self) -> str:
        """Return the next line."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ExternalResult:
    """What was chosen, what it gains over the default (0 when that stays), what it took."""

    chosen: Settings
    claimed_gain: float
    evaluations: int
    seconds: float
    verdict: Verdict

    def as_json(self) -> dict[str, object]:
        """Return the object that `--json` prints."""
        return {
            "chosen": self.chosen,
            "claimed_gain": self.claimed_gain,
            "evaluations": self.evaluations,
            "seconds": round(self.seconds, 6),
        }


def tune_external(
    space: SearchSpace,
    program: Program,
    *,
    budget_s: float | None,
    seed: int,
    elapsed: Callable[[], float],
    tell: Callable[[str], None] = lambda text: None,  # noqa: ARG005 - silence
) -> ExternalResult:
    """Search `space` by asking `program`; `elapsed` is a clock that never goes back.

    Without a budget, 96 times the first reply's seconds. Raises `OutsideError` for a reply
    that is none, or an early end of the program.
    """
    study = Study(search=Search(space, seed=seed), budget_s=budget_s)

    def measure(settings: Settings) -> Outcome:
        began = elapsed()
        program.say(json.dumps({"settings": settings}))
        line = program.hear()
        return parse_reply(line, wall_s=elapsed() - began)

    run_study(study, measure, on_trial=lambda trial: tell(_told(trial, study.left_s)))
    with suppress(OutsideError):  # all is measured: it may be gone already
        program.say(json.dumps({"end": True}))
    verdict = study.search.verdict()
    return ExternalResult(
        chosen=space.settings(verdict.cell),
        claimed_gain=round(verdict.gain, 6),
        evaluations=len(study.trials),
        seconds=study.spent_s,
        verdict=verdict,
    )


def _told(trial: Trial, left_s: float) -> str:
    outcome = trial.outcome
    found = f"failed: {outcome.failed}" if outcome.value is None else f"{outcome.value:g}"
    return f"run {trial.number}, {left_s:.0f} s left, {trial.purpose}: {found}"


def parse_command(text: str) -> list[str]:
    """Split the command as a shell splits words. Raises `UserError`."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"cannot split the command: {error}", where="--measure") from None
    if not words:
        raise UserError("the command is empty", where="--measure")
    return words


def parse_reply(line: str, *, wall_s: float) -> Outcome:
    """Read one line of the program; `wall_s` stands in where it does not say `seconds`.

    Raises `OutsideError` for a reply with neither `value` nor `failed`.
    """
    try:
        raw = json.loads(line)
    except ValueError:
        raise _no_reply(line) from None
    if not isinstance(raw, dict) or ("value" not in raw and "failed" not in raw):
        raise _no_reply(line)
    seconds, value = raw.get("seconds"), raw.get("value")
    if "failed" in raw and raw["failed"] not in (None, False):
        return Outcome(value=None, failed=str(raw["failed"]), seconds=_seconds(seconds, wall_s))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _no_reply(line)
    usable = math.isfinite(value) and value > 0
    return Outcome(
        value=float(value) if usable else None,
        failed=None if usable else f"{value} is no positive number",
        seconds=_seconds(seconds, wall_s),
    )


def _seconds(value: object, wall_s: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return wall_s
    return float(value) if math.isfinite(value) and value >= 0 else wall_s


def _no_reply(line: str) -> OutsideError:
    return OutsideError(
        f"the program answered `{line.strip()[:120]}`",
        where="--measure",
        fix='answer each line with {"value": x, "seconds": s} or {"failed": "cause"}',
    )
