"""What a diagnosis says: a finding with its cost, its evidence and what to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from fleet.diagnose.read_log.log_reading import EVIDENCE, SHOWN, Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable

Level = Literal["error", "high", "low", "info"]
ORDER = "ABCDHEV"  # prefix and cache, speculation, KV, conditions, placement, errors, verbosity


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that holds the server back, or that is worth knowing.

    `cost_s` are seconds of this very log, None where they cannot be told.
    """

    code: str
    priority: str
    level: Level
    message: str
    fix: str
    settings: tuple[tuple[str, str | int | bool], ...] = ()
    reference: str = ""
    cost_s: float | None = None
    count: int = 1
    evidence: tuple[Evidence, ...] = ()

    @property
    def rank(self) -> tuple[int, int, float]:
        """Sort key: the letter, then what it costs, information last."""
        place = ORDER.find(self.priority)
        quiet = ("error", "high", "low", "info").index(self.level)
        return (place if place >= 0 else len(ORDER), quiet, -(self.cost_s or 0.0))


@dataclass(slots=True)
class Hit:
    """What a rule collected while the log was read."""

    count: int = 0
    cost_s: float | None = None
    evidence: list[Evidence] = field(default_factory=list)
    detail: str = ""

    def add(self, line: int, text: str, cost_s: float | None = None) -> None:
        """Count one more case of it."""
        self.count += 1
        if cost_s is not None:
            self.cost_s = (self.cost_s or 0.0) + cost_s
        if len(self.evidence) < EVIDENCE:
            self.evidence.append(Evidence(line, text[:SHOWN]))


def hit_of(evidence: Iterable[Evidence], *, count: int = 1, detail: str = "") -> Hit:
    """Return a hit with its evidence at hand."""
    return Hit(count=count, evidence=list(evidence)[:EVIDENCE], detail=detail)
