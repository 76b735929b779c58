"""How a study ended, as it stands in its log: the verdict and what was not kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from fleet.tune.paired_ratio import Ratio
from fleet.tune.search import Verdict
from fleet.tune.study_summary import TradeOff

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.tune.search_space import SearchSpace


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """A verdict and the trade-offs beside it."""

    verdict: Verdict
    trade_offs: tuple[TradeOff, ...]


def judgement_json(
    verdict: Verdict, trade_offs: Sequence[TradeOff], space: SearchSpace
) -> dict[str, Any]:
    """Return the end of a study for its log; cells are written as their settings."""
    candidate = verdict.candidate
    return {
        **asdict(verdict),
        "cell": space.settings(verdict.cell),
        "candidate": space.settings(candidate) if candidate is not None else None,
        "trade_offs": [asdict(each) for each in trade_offs],
    }


def judgement_of(raw: Mapping[str, Any] | None, space: SearchSpace) -> Judgement | None:
    """Read it back; None for a study without an end."""
    cell = space.cell(raw["cell"]) if raw is not None else None
    if raw is None or cell is None:
        return None
    candidate = raw["candidate"]
    verdict = Verdict(
        cell=cell, gain=raw["gain"], accepted=raw["accepted"], pairs=raw["pairs"], why=raw["why"],
        candidate=space.cell(candidate) if candidate is not None else None,
        ratio=Ratio(**raw["ratio"]) if raw["ratio"] is not None else None,
    )  # fmt: skip
    made = (TradeOff(**each) for each in raw["trade_offs"])
    kept = (replace(each, ratio=Ratio(**_mapping(each.ratio))) for each in made)
    return Judgement(verdict=verdict, trade_offs=tuple(kept))


def _mapping(raw: Any) -> Mapping[str, float]:  # noqa: ANN401 - as it was written
    return dict(raw)
