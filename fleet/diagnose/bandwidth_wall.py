"""How near generation comes to what memory bandwidth allows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Wall:
    """`share` of the limit is reached; the limit is bandwidth over active bytes a token."""

    tg_tps: float
    limit_tps: float

    @property
    def share(self) -> float:
        """Reached over possible."""
        return self.tg_tps / self.limit_tps

    @property
    def text(self) -> str:
        """One sentence; at the wall nothing but fewer bytes a token helps."""
        advice = (
            "this machine is at its wall: only fewer bytes a token or drafts make it faster"
            if self.share >= AT_THE_WALL
            else "there is room below the wall: look at placement and threads"
        )
        return (
            f"generation reaches {self.share:.0%} of the bandwidth limit "
            f"({self.tg_tps:.1f} of {self.limit_tps:.1f} tok/s); {advice}"
        )


AT_THE_WALL = 0.5  # real decoders reach 50 to 85% of the nominal bandwidth


def bandwidth_wall(tg_tps: float, bytes_a_second: float, active_bytes: float) -> Wall:
    """Return where `tg_tps` stands; bytes read for a token are the active weights'."""
    return Wall(tg_tps=tg_tps, limit_tps=bytes_a_second / active_bytes)
