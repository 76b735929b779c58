"""How fast this machine could generate at most: the bytes of a token against its memory.

A token reads every active weight once. Speculation reads them once for several tokens, so
the roof holds only for runs without it. A model that lies in the caches has no such roof.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.effects.memory_bandwidth import measure_bandwidth
from fleet.tune.speculation_kinds import PARAMETER

if TYPE_CHECKING:
    from fleet.deploy.prepare import Prepared
    from fleet.tune.run_study import Study, Trial

CACHES = 512 * 2**20  # bytes of weights below which caches may hold a good part
MARGIN = 1.1  # reading alone is that much faster than the copying that is measured
NEAR, BEYOND = 0.93, 1.3  # at the roof; so far above it that it is none


def roofline(prepared: Prepared) -> float | None:
    """Return tokens a second that memory allows, None where it cannot be told.

    Measures the bandwidth for about a second on a CPU; with GPUs their bandwidths are not
    known as exactly, and there is no roof.
    """
    host, model = prepared.host, prepared.model
    read = model.facts.active_bytes_per_token if model else None
    if host.gpus or read is None or read < CACHES:
        return None
    return MARGIN * measure_bandwidth(max(host.cores, 1)) / read


def at_roofline(study: Study, roof: float) -> bool:
    """Whether a run without speculation is at the roof, and no kind of it is untried."""
    plain = [t for t in study.trials if not _speculates(t) and t.outcome.value is not None]
    best = max((t.outcome.value or 0.0 for t in plain), default=0.0)
    if not NEAR * roof <= best <= BEYOND * roof:
        return False
    kinds = next((p.values for p in study.search.space.params if p.name == PARAMETER), ())
    return set(kinds) <= {t.settings.get(PARAMETER) for t in study.trials}


def _speculates(trial: Trial) -> bool:
    return trial.settings.get(PARAMETER) not in {None, "none"}
