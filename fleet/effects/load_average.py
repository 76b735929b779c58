"""How busy this machine is."""

from __future__ import annotations

import psutil


def load_average() -> float:
    """Return the average number of runnable processes over the last minute."""
    return float(psutil.getloadavg()[0])
