"""Stop what serves while trials run when two copies do not fit; it serves again at the end.

What was stopped is written down first: after a kill the next `tune` brings it back, and so
does `up`, for which the deployment is still wanted.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fleet.compiler.memory.plan_memory import plan_memory
from fleet.deploy.bring_up import start_generation
from fleet.deploy.check_fit import question_of
from fleet.deploy.find_hosts import local_host
from fleet.deploy.generations import read_generations, read_record
from fleet.effects.files import read_text, write_atomically
from fleet.errors import FleetError, NotAsWanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fleet.deploy.bring_up import Progress
    from fleet.deploy.prepare import Prepared
    from fleet.deploy.rim import Rim
    from fleet.observe.observation import RunningServer

SPARE = 256 * 2**20  # for the rest of the machine


@contextmanager
def room_for_trials(
    prepared: Prepared, *, rim: Rim, confirm: Callable[[str], bool], progress: Progress
) -> Iterator[bool]:
    """Say whether the serving server had to be stopped; it runs again when this is left.

    Raises `NotAsWanted` when it must be stopped and `confirm` says no.
    """
    name = prepared.deployment.name
    note = rim.folders.state / "tune" / name / "stopped.json"
    serving = _serving(prepared, rim)
    if serving:
        note.unlink(missing_ok=True)  # of a killed `tune`, and `up` has started it since
    if serving and lacks_room(prepared):
        if not confirm(f"a second copy does not fit beside `{name}`, which serves; stop it?"):
            message = f"a second copy does not fit beside `{name}`, which serves"
            raise NotAsWanted(message, fix="say `--yes` to stop it for as long as this takes")
        write_atomically(note, json.dumps({"generation": serving[0].generation}))
        progress(f"stopping {name} for as long as this takes")
        for server in serving:
            local_host(prepared.runtime, rim).stop(server)
    try:
        yield note.exists()
    finally:
        if note.exists():
            _restore(name, note, rim, progress)


def lacks_room(prepared: Prepared) -> bool:
    """Whether what is free now does not hold another copy; False when that is not known."""
    if prepared.model is None:
        return False
    question = question_of(prepared.launches[0], prepared.model.facts, prepared.host)
    if question is None:
        return False
    plan, host = plan_memory(question), prepared.host
    free = host.memory_available
    if free is not None and plan.host.total + SPARE > free:
        return True
    return any(
        gpu.free is not None and not gpu.unified and share.total > gpu.free
        for share, gpu in zip(plan.devices, host.gpus, strict=False)
    )


def _serving(prepared: Prepared, rim: Rim) -> list[RunningServer]:
    return [
        server
        for server in local_host(prepared.runtime, rim).running()
        if server.deployment == prepared.deployment.name and server.state == "running"
    ]


def _restore(name: str, note: Path, rim: Rim, progress: Progress) -> None:
    """Start the generation that was stopped, unless it was taken down or runs meanwhile."""
    number = _generation(note)
    made = next((g for g in read_generations(rim.folders, name) if g.number == number), None)
    record = read_record(rim.folders, name)
    if made is not None and record is not None and record.wanted == "up":
        there = [s for s in local_host(made.runtime, rim).running() if s.deployment == name]
        if not any(server.state == "running" for server in there):
            progress(f"starting generation {number} of {name} again")
            start_generation(name, made, rim=rim, progress=progress)
    note.unlink(missing_ok=True)


def _generation(note: Path) -> int | None:
    try:
        return int(json.loads(read_text(note))["generation"])
    except (OSError, ValueError, KeyError, TypeError, FleetError):
        return None
