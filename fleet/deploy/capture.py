"""Record a deployment's requests: a loopback address that passes them on and keeps them."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fleet.effects.files import write_atomically
from fleet.effects.processes import ProcessId, alive, end, identity, start_detached
from fleet.errors import OutsideError

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.deploy.rim import Rim

MODULE = "fleet.effects.recording_proxy"
PRIVATE = 0o600
WAIT_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Capture:
    """Whether requests of a deployment are recorded, where to send them, where they lie."""

    deployment: str
    on: bool
    url: str | None
    file: str
    requests: int


def capture_file(name: str, rim: Rim) -> Path:
    """Return where the requests of `name` are kept."""
    return rim.folders.state / "captures" / f"{name}.jsonl"


def start_capture(name: str, target: str, rim: Rim) -> None:
    """Begin to record; does nothing when that runs already. Raises `OutsideError`."""
    if _running(name, rim) is not None:
        return
    if not target:
        raise OutsideError("the deployment has no address", where=name, fix=f"fleet up {name}")
    file, log = capture_file(name, rim), _log(name, rim)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    log.unlink(missing_ok=True)
    write_private(file, file.read_bytes() if file.exists() else b"")
    words = (sys.executable, "-m", MODULE, target, str(file))
    pid = start_detached(words, log=log, env=dict(os.environ))
    port = _port(name, log, rim)
    process = identity(pid, MODULE)
    if process is None:
        raise OutsideError("the recorder ended at once", where=str(log), fix="see its output")
    kept = {"process": asdict(process), "url": f"http://127.0.0.1:{port}"}
    write_private(_record(name, rim), json.dumps(kept).encode())


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner reads."""
    write_atomically(path, content, mode=PRIVATE)


def stop_capture(name: str, rim: Rim) -> None:
    """Stop recording; what was recorded stays."""
    process = _running(name, rim)
    if process is not None:
        end(process, grace_s=1.0)
    _record(name, rim).unlink(missing_ok=True)


def capture_state(name: str, rim: Rim) -> Capture:
    """Return whether it records, and how many requests are kept."""
    file = capture_file(name, rim)
    process = _running(name, rim)
    count = sum(1 for _ in file.open("rb")) if file.exists() else 0
    return Capture(
        deployment=name,
        on=process is not None,
        url=_kept(name, rim).get("url") if process is not None else None,
        file=str(file),
        requests=count,
    )


def forget(name: str, rim: Rim) -> bool:
    """Delete what was recorded and stop recording; whether there was anything."""
    stop_capture(name, rim)
    _log(name, rim).unlink(missing_ok=True)
    file = capture_file(name, rim)
    there = file.exists()
    file.unlink(missing_ok=True)
    return there


def _record(name: str, rim: Rim) -> Path:
    return rim.folders.state / "captures" / f"{name}.json"


def _log(name: str, rim: Rim) -> Path:
    return rim.folders.state / "captures" / f"{name}.log"


def _kept(name: str, rim: Rim) -> dict[str, Any]:
    try:
        found = json.loads(_record(name, rim).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _running(name: str, rim: Rim) -> ProcessId | None:
    kept = _kept(name, rim).get("process")
    if not isinstance(kept, dict):
        return None
    process = ProcessId(**kept)
    return process if alive(process) else None


def _port(name: str, log: Path, rim: Rim) -> int:
    """Wait for the recorder's first line, which is its port."""
    until = rim.clock.monotonic() + WAIT_S
    while rim.clock.monotonic() < until:
        first = log.read_text().partition("\n")[0] if log.exists() else ""
        if first.isdigit():
            return int(first)
        if first:
            break
        rim.clock.sleep(0.05)
    raise OutsideError("the recorder did not start", where=str(log), fix=f"see {name}'s output")
