"""Tune anything that answers JSON lines: the search of `tune` with a program as the machine."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Protocol

from fleet.errors import OutsideError, UserError
from fleet.tune.search import Search

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.tune.search import Proposal, Verdict
    from fleet.tune.search_space import SearchSpace, Settings

DEFAULT_RUNS = 96
SLACK = 1.05


class Program(Protocol):
    """What is spoken to: one line in, one line out."""

    def say(self, line: str) -> None:
        """Send one line."""
        ...

    def hear(self) -> str:
        """Return the next line."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """One answer of the program: a value, or why there is none; its cost in seconds."""

    value: float | None
    failed: str | None
    seconds: float


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
    search, costs, spent = Search(space, seed=seed), list[float](), 0.0
    while True:
        budget = budget_s if budget_s is not None else DEFAULT_RUNS * (costs or [math.inf])[0]
        if costs and spent + median(costs) > SLACK * budget:
            break
        proposal = search.ask(SLACK * budget - spent)
        if proposal is None:
            break
        reply = _run(proposal, space, program, elapsed)
        spent += reply.seconds
        costs.append(reply.seconds)
        search.tell(proposal, reply.value, reply.seconds)
        outcome = f"failed: {reply.failed}" if reply.value is None else f"{reply.value:g}"
        tell(f"run {len(costs)}, {budget - spent:.0f} s left, {proposal.purpose}: {outcome}")
    program.say(json.dumps({"end": True}))
    verdict = search.verdict()
    return ExternalResult(
        chosen=space.settings(verdict.cell),
        claimed_gain=_as_the_user_counts(verdict.gain),
        evaluations=len(costs),
        seconds=spent,
        verdict=verdict,
    )


def parse_command(text: str) -> list[str]:
    """Split the command as a shell splits words. Raises `UserError`."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"cannot split the command: {error}", where="--measure") from None
    if not words:
        raise UserError("the command is empty", where="--measure")
    return words


def parse_reply(line: str, *, wall_s: float) -> Reply:
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
        return Reply(value=None, failed=str(raw["failed"]), seconds=_seconds(seconds, wall_s))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _no_reply(line)
    usable = math.isfinite(value) and value > 0
    return Reply(
        value=float(value) if usable else None,
        failed=None if usable else f"{value} is no positive number",
        seconds=_seconds(seconds, wall_s),
    )


def _run(
    proposal: Proposal, space: SearchSpace, program: Program, elapsed: Callable[[], float]
) -> Reply:
    began = elapsed()
    program.say(json.dumps({"settings": space.settings(proposal.cell)}))
    line = program.hear()
    return parse_reply(line, wall_s=elapsed() - began)


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


def _as_the_user_counts(gain: float) -> float:
    """Return chosen / default - 1, or default / chosen - 1 when minimising: both are `gain`."""
    return round(gain, 6)
