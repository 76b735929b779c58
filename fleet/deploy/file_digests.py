"""The SHA-256 of files on this machine, remembered by size and time so that each is read once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fleet.effects.files import sha256, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.deploy.bring_up import Progress
    from fleet.deploy.rim import Rim


def digest_of(file: Path, *, rim: Rim, progress: Progress) -> str:
    """Return the file's SHA-256; it is read only when its size or time is new."""
    stat, store = file.stat(), rim.folders.state / "digests.json"
    stamp = [stat.st_size, stat.st_mtime_ns]
    known = _remembered(store).get(str(file))
    if known and known[:2] == stamp:
        return str(known[2])
    said = f"checking {file.name}"
    found = sha256(
        file, on_bytes=lambda done: progress(f"{said}: {done * 100 // max(1, stat.st_size)} %")
    )
    write_atomically(store, json.dumps({**_remembered(store), str(file): [*stamp, found]}))
    return found


def _remembered(path: Path) -> dict[str, list[Any]]:
    """Return the digests known; a damaged file is only forgotten knowledge."""
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
