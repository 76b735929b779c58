"""What `up` says about tuning: the profile that applies, or what the last study found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.deploy.rim import Rim


def tuned_words(name: str, tuned: str | None, rim: Rim) -> str:
    """Return one line; the studies are read from their logs, newest event last."""
    if tuned is not None:
        return f"tuned profile applied: {tuned}"
    studies = sorted((rim.folders.state / "tune" / name).glob("*.jsonl"))
    ended = [study.stem for study in studies if _found_nothing(study)]
    if ended:
        return f"tuned for {', '.join(ended)}: no provable gain, the default stays"
    return f"no tuned profile applies; `fleet tune {name} --metric tg` looks for one"


def _found_nothing(study: Path) -> bool:
    """Whether the log's last event is the end of a study that wrote no profile."""
    try:
        event = json.loads(study.read_text().strip().splitlines()[-1])
        return "end" in event and event["end"].get("profile") is None
    except (OSError, ValueError, IndexError, AttributeError, TypeError):
        return False
