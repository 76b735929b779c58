"""From a log to a diagnosis: read it, apply every rule, order what they found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.diagnose.finding import Finding, Hit
from fleet.diagnose.finding_table import TABLE
from fleet.diagnose.interval_option import SETTING, can_be_set, interval_words
from fleet.diagnose.log_rules import RULES
from fleet.diagnose.read_log.reader import read_log
from fleet.diagnose.task_rules import TaskTally
from fleet.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleet.diagnose.bandwidth_wall import Wall
    from fleet.diagnose.read_log.log_reading import LogReading


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """A log as read, and what it means; `findings` in the order of remedies."""

    reading: LogReading
    findings: tuple[Finding, ...]
    verdict: str
    wall: Wall | None = None  # where generation stands against memory bandwidth

    @property
    def has_error(self) -> bool:
        """Whether something is broken, not only slow."""
        return any(finding.level == "error" for finding in self.findings)


def diagnose(chunks: Iterable[bytes]) -> Diagnosis:
    """Diagnose a log given as chunks of bytes. Raises `UserError` for what is no log."""
    tally = TaskTally()
    reading = read_log(chunks, tally.add)
    return judge(reading, tally)


def diagnose_log(chunks: Iterable[bytes], where: str) -> Diagnosis:
    """Diagnose a file's content. Raises `UserError` when nothing in it is known."""
    found = diagnose(chunks)
    if found.reading.generation is None and not found.findings:
        raise UserError(
            "no line of this file is known: it is no log of llama.cpp, ik_llama.cpp or vLLM",
            where=where,
            fix="give what the server printed to stderr, from its start if possible",
        )
    return found


def judge(reading: LogReading, tally: TaskTally) -> Diagnosis:
    """Apply the rules to a finished reading."""
    found = []
    for code, rule in RULES.items():
        hit = rule(reading, tally)
        if hit is not None:
            found.append(_finding(code, hit, reading))
    findings = tuple(sorted(found, key=lambda finding: finding.rank))
    return Diagnosis(reading=reading, findings=findings, verdict=_verdict(reading, findings))


def _finding(code: str, hit: Hit, reading: LogReading) -> Finding:
    row, engine, build = TABLE[code], reading.engine, reading.build
    fix, settings = row.fix, row.settings
    if SETTING in dict(settings) and engine is not None:
        fix += f"; {interval_words(engine, build)}"
        if not can_be_set(engine, build):
            settings = tuple(pair for pair in settings if pair[0] != SETTING)
    cost_s = _cost(code, hit, reading)
    message = f"{row.message} ({hit.detail})" if hit.detail else row.message
    return Finding(
        code=code,
        priority=row.letter,
        level=_level(row.level, cost_s, reading),  # type: ignore[arg-type]
        message=message,
        fix=fix,
        settings=settings,
        reference=row.reference,
        cost_s=round(cost_s, 3) if cost_s is not None else None,
        count=hit.count,
        evidence=tuple(hit.evidence),
    )


SMALL = 0.01  # of the seconds that prompts and answers took
LOWER = {"high": "low", "low": "info"}


def _level(level: str, cost_s: float | None, reading: LogReading) -> str:
    """Return a level lower for what cost next to nothing in this very log."""
    spent_s = (reading.totals.get("pp_ms", 0.0) + reading.totals.get("tg_ms", 0.0)) / 1000
    cheap = cost_s is not None and cost_s < SMALL * spent_s
    return LOWER.get(level, level) if cheap else level


SPEC_GAIN = 1.3  # what drafting brings at least where it fits (llama.cpp#22673: 1.31 to 2.01)


def _cost(code: str, hit: Hit, reading: LogReading) -> float | None:
    """Return seconds of this log: measured by the rule, or what drafting would have saved."""
    if code == "SPEC_OFF":
        return reading.totals.get("tg_ms", 0.0) / 1000 * (1 - 1 / SPEC_GAIN) or None
    return hit.cost_s


def _verdict(reading: LogReading, findings: tuple[Finding, ...]) -> str:
    """Return one sentence: what is broken, else what to do first."""
    if not reading.generation and not findings:
        return "nothing that fleet knows stands in this log"
    broken = [finding for finding in findings if finding.level == "error"]
    if broken:
        return f"broken: {broken[0].message}; {broken[0].fix}".rstrip("; ")
    todo = [finding for finding in findings if finding.level in {"high", "low"}]
    if not todo:
        return "healthy: nothing in this log asks for a change"
    order = ", ".join(dict.fromkeys(finding.priority for finding in todo))
    return f"first: {todo[0].fix} (remedies in the order {order})"
