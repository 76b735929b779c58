"""Refuse candidates that draw more than so many watts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.deploy.trial_server import TrialServer
    from fleet.effects.power import PowerMeter
    from fleet.tune.search_space import Settings


@dataclass(kw_only=True, slots=True)
class PowerLimit:
    """The mean power of a run must stay at or below `most` watts."""

    most: float
    meter: PowerMeter

    def begin(self) -> None:
        """Start the meter."""
        self.meter.start()

    def check(self, server: TrialServer, settings: Settings) -> Mapping[str, float]:
        """Return the watts of the run. Raises `OutsideError`."""
        del settings
        watts = self.meter.stop()
        if watts > self.most:
            raise OutsideError(f"draws {watts:.0f} W, over {self.most:g} W", where=server.url)
        return {"watts": watts}
