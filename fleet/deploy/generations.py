"""What was brought up, when, and from which words: the record of a deployment, five deep.

`<state>/deployments/<name>/record.json` says what is wanted, `generations/<n>.json` what
was started. A generation is written before its servers start and marked ready afterwards.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from fleet.deploy.launch_record import damaged, launch_from_json, launch_to_json
from fleet.effects.files import write_atomically
from fleet.errors import OutsideError, UserError

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.effects.folders import Folders
    from fleet.profiles.kinds import RuntimeName

KEPT = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The words that a deployment was made from, to make it again."""

    name: str
    profiles: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What is wanted of a deployment since the last `up` or `down`."""

    deployment: str
    wanted: Literal["up", "down"]
    runtime: RuntimeName
    generation: int
    at: str  # ISO, UTC
    origin: Origin | None = None
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """One set of launches that was started together."""

    number: int
    at: str
    runtime: RuntimeName
    launches: tuple[LaunchConfig, ...]
    ready: bool = False
    tuned: str | None = None

    @property
    def digest(self) -> str:
        """The digest of the first server, the deployment's own."""
        return self.launches[0].digest


def deployment_folder(folders: Folders, name: str) -> Path:
    """Return the folder of the deployment's record. Raises `UserError` when it is no name."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        fix = "`fleet status` lists what is recorded or running"
        raise UserError("no deployment can be called so", where=name, fix=fix)
    return folders.state / "deployments" / name


def recorded(folders: Folders) -> tuple[str, ...]:
    """Return the names of all deployments that have a record."""
    files = sorted((folders.state / "deployments").glob("*/record.json"))
    return tuple(file.parent.name for file in files)


def read_record(folders: Folders, name: str) -> Record | None:
    """Return the record, None when the deployment was never brought up.

    Raises `OutsideError` when the file is damaged.
    """
    path = deployment_folder(folders, name) / "record.json"
    found = _read(path)
    if found is None:
        return None
    try:
        origin = found.pop("origin", None)
        made = Origin(
            name=origin["name"], profiles=tuple(origin["profiles"]), sets=tuple(origin["sets"])
        ) if origin else None  # fmt: skip
        hosts = tuple(found.pop("hosts", ()))
        return Record(**found, origin=made, hosts=hosts)
    except (TypeError, KeyError) as error:
        raise damaged(str(path), str(error)) from None


def write_record(folders: Folders, record: Record) -> None:
    """Replace the record."""
    path = deployment_folder(folders, record.deployment) / "record.json"
    write_atomically(path, json.dumps(asdict(record), indent=1))


def read_generations(folders: Folders, name: str) -> tuple[Generation, ...]:
    """Return the generations kept, oldest first. Raises `OutsideError` for a damaged one."""
    return tuple(map(_generation, _files(folders, name)))


def whole_generations(folders: Folders, name: str) -> tuple[Generation, ...]:
    """Return the generations that can be read, for those who ask about all deployments."""
    found = []
    for path in _files(folders, name):
        with suppress(OutsideError):
            found.append(_generation(path))
    return tuple(found)


def generation(folders: Folders, name: str, number: int) -> Generation:
    """Return one generation. Raises `UserError` naming those that are kept."""
    kept = read_generations(folders, name)
    found = next((each for each in kept if each.number == number), None)
    if found is None:
        numbers = ", ".join(str(each.number) for each in kept) or "none"
        raise UserError(f"no generation {number} is kept", where=name, fix=f"kept are: {numbers}")
    return found


def write_generation(folders: Folders, name: str, made: Generation) -> None:
    """Write `made` and forget generations beyond the newest five."""
    folder = deployment_folder(folders, name) / "generations"
    content = {**asdict(made), "launches": [launch_to_json(each) for each in made.launches]}
    write_atomically(folder / f"{made.number:06}.json", json.dumps(content, indent=1))
    for old in _files(folders, name)[:-KEPT]:
        old.unlink(missing_ok=True)


def _files(folders: Folders, name: str) -> list[Path]:
    return sorted((deployment_folder(folders, name) / "generations").glob("[0-9]*.json"))


def _generation(path: Path) -> Generation:
    found = _read(path) or {}
    try:
        launches = tuple(launch_from_json(each, where=str(path)) for each in found.pop("launches"))
        return Generation(**found, launches=launches)
    except (TypeError, KeyError) as error:
        raise damaged(str(path), str(error)) from None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise damaged(str(path), str(error)) from None
    if not isinstance(found, dict):
        raise damaged(str(path), "not an object")
    return cast("dict[str, Any]", found)


def current_generation(folders: Folders, name: str) -> Generation:
    """Return the generation that is wanted now. Raises `UserError` without a record."""
    record = read_record(folders, name)
    if record is None:
        fix = "`fleet status` lists what is recorded or running"
        raise UserError("nothing of that name was brought up", where=name, fix=fix)
    return generation(folders, name, record.generation)


def earlier_generation(folders: Folders, name: str) -> Generation:
    """Return the newest ready generation before the wanted one. Raises `UserError`."""
    current = current_generation(folders, name)
    before = [
        each
        for each in read_generations(folders, name)
        if each.ready and each.number < current.number
    ]
    if not before:
        fix = f"`fleet history {name}` lists them; `--to` names one"
        raise UserError("no earlier generation is kept", where=name, fix=fix)
    return before[-1]
