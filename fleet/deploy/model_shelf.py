"""The models and leftovers that fleet keeps on this machine: list, remove."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.deploy.generations import deployment_folder, read_generations, read_record, recorded
from fleet.deploy.model_files import models_folder
from fleet.effects.files import folder_bytes
from fleet.errors import OutsideError, UserError
from fleet.sizes import ByteSize

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fleet.deploy.rim import Rim


@dataclass(frozen=True, kw_only=True, slots=True)
class ShelfItem:
    """A folder or file that fleet made; `used_by` names deployments that are up with it."""

    kind: str
    name: str
    path: Path
    size: ByteSize
    used_by: tuple[str, ...] = ()


def models(rim: Rim) -> tuple[ShelfItem, ...]:
    """Return the models that fleet fetched, by name."""
    root = models_folder(rim)
    folders = sorted(path for path in root.glob("*") if path.is_dir())
    users = _users(rim)
    return tuple(
        ShelfItem(
            kind="model", name=folder.name, path=folder, size=ByteSize(folder_bytes(folder)),
            used_by=tuple(name for name, model in users if model.startswith(f"{folder}/")),
        )
        for folder in folders
    )  # fmt: skip


def remove_model(name: str, rim: Rim) -> ShelfItem:
    """Remove a fetched model. Raises `UserError` when unknown or used by what is up."""
    found = next((item for item in models(rim) if item.name == name), None)
    if found is None:
        raise UserError("no such model was fetched", where=name, fix="see `fleet models list`")
    if found.used_by:
        fix = f"`fleet down {found.used_by[0]}` first"
        raise UserError(f"{', '.join(found.used_by)} runs on it", where=name, fix=fix)
    remove(found)
    return found


def prunable(rim: Rim, *, with_models: bool) -> tuple[ShelfItem, ...]:
    """Return what can go: stale generations, damaged and partial files, unused models if asked."""
    items = [*_old_generations(rim), *_leftovers(rim)]
    if with_models:
        items += [item for item in models(rim) if not item.used_by]
    return tuple(items)


def remove(item: ShelfItem) -> None:
    """Remove one item. Raises `OutsideError`."""
    try:
        if item.path.is_dir():
            shutil.rmtree(item.path)
        else:
            item.path.unlink(missing_ok=True)
    except OSError as error:
        message = f"cannot remove: {error.strerror}"
        raise OutsideError(message, where=str(item.path), fix="check its owner and mode") from None


def _users(rim: Rim) -> list[tuple[str, str]]:
    """Return deployment and model path of everything that is recorded as up."""
    found = []
    for name in recorded(rim.folders):
        record = read_record(rim.folders, name)
        if record is None or record.wanted != "up":
            continue
        for made in read_generations(rim.folders, name):
            if made.number == record.generation:
                found += [(name, launch.model_path or "") for launch in made.launches]
    return found


def _old_generations(rim: Rim) -> Iterator[ShelfItem]:
    """Yield generations that never became ready, and all of a deployment that is down."""
    for name in recorded(rim.folders):
        record = read_record(rim.folders, name)
        for made in read_generations(rim.folders, name):
            current = record is not None and made.number == record.generation
            if not made.ready and not current:
                folder = deployment_folder(rim.folders, name) / "generations"
                path = folder / f"{made.number:06}.json"
                label = f"{name}, generation {made.number}"
                yield ShelfItem(
                    kind="generation", name=label, path=path, size=ByteSize(path.stat().st_size)
                )


def _leftovers(rim: Rim) -> Iterator[ShelfItem]:
    for pattern in ("*/*.damaged", "*/*.part", "*/.cache"):
        for path in sorted(models_folder(rim).glob(pattern)):
            size = folder_bytes(path) if path.is_dir() else path.stat().st_size
            name = str(path.relative_to(models_folder(rim)))
            yield ShelfItem(kind="leftover", name=name, path=path, size=ByteSize(size))
