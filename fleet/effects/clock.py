"""Time as a seam, so that waiting can be tested without waiting."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What code that waits or stamps asks of time."""

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go backwards."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never go backwards."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
