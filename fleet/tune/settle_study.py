"""What must hold besides the search's own verdict before a gain is kept."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fleet.tune.paired_ratio import lower
from fleet.tune.study_summary import TradeOff, guard_ratio, within_noise

if TYPE_CHECKING:
    from fleet.tune.run_study import Study
    from fleet.tune.search import Verdict
    from fleet.tune.search_space import Cell

HARM = 0.98  # of a guard over the confirming pairs


@dataclass(kw_only=True, slots=True)
class Settling:
    """Asks for more pairs of a gain, or refuses it: for the noise, or for what it harms."""

    study: Study
    keep_trade_offs: bool = False
    trade_offs: list[TradeOff] = field(default_factory=list)
    doubts: list[Verdict] = field(default_factory=list)

    def goes_on(self) -> bool:
        """Bar what is not proven or harms a guard, or ask for more pairs; False at the end."""
        verdict = self.study.search.verdict()
        if not verdict.accepted:
            return False
        doubtful = within_noise(self.study, verdict)
        harm = None if doubtful else find_harm(self.study, verdict.cell)
        if harm is None and not doubtful:
            return False
        undecided = harm is None or harm.ratio.log_ratio + harm.ratio.deviation > math.log(HARM)
        if undecided and self._once_more(verdict.cell):
            return True
        if harm is None:
            self.doubts.append(verdict)
        else:
            self.trade_offs.append(replace(harm, gain=verdict.gain))
            if self.keep_trade_offs:
                return False
        self.study.search.bar(verdict.cell)
        return True

    def verdict(self) -> Verdict:
        """Return the search's verdict, which names the first doubt when nothing is kept."""
        verdict = self.study.search.verdict()
        if verdict.accepted or not self.doubts:
            return verdict
        return replace(
            self.doubts[0], cell=self.study.search.space.default, gain=0.0, accepted=False,
            why="inconclusive: its gain is within the noise",
        )  # fmt: skip

    def _once_more(self, cell: Cell) -> bool:
        return self.study.room() is not None and self.study.search.confirm_again(cell)


def find_harm(study: Study, cell: Cell) -> TradeOff | None:
    """Return the guard that `cell` harms by the confirming pairs, None when it harms none."""
    for name in study.trials[0].outcome.guards:
        ratio, provable = guard_ratio(study, cell, name)
        if ratio is None:
            continue
        if ratio.log_ratio < math.log(HARM) or lower(ratio) < -math.log1p(provable):
            return TradeOff(
                settings=study.search.space.settings(cell), guard=name, ratio=ratio,
                provable=provable, gain=0.0,
            )  # fmt: skip
    return None
