"""The models, images and leftovers that fleet keeps on this machine: list, remove."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.deploy.generations import deployment_folder, read_record, recorded, whole_generations
from fleet.deploy.model_files import models_folder
from fleet.deploy.trial_leftovers import orphaned
from fleet.effects.files import folder_bytes
from fleet.errors import OutsideError, UserError
from fleet.sizes import ByteSize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.generations import Generation
    from fleet.deploy.rim import Rim

# what `fleet build` makes carries both; what others built or pulled has neither
BUILT_LABEL = "fleet.containerfile.digest"
BUILT_NAME = "localhost/fleet/"
ROLLBACKS = 1  # generations before the wanted one that `prune` leaves


@dataclass(frozen=True, kw_only=True, slots=True)
class ShelfItem:
    """A folder, file or image that fleet made; `used_by` names deployments that are up with it.

    `path` is None for an image.
    """

    kind: str
    name: str
    path: Path | None
    size: ByteSize
    used_by: tuple[str, ...] = ()


def models(rim: Rim) -> tuple[ShelfItem, ...]:
    """Return the models that fleet fetched, by name."""
    root = models_folder(rim)
    folders = sorted(path for path in root.glob("*") if path.is_dir())
    users = [(name, launch.model_path) for name, launch in _wanted_up(rim)]
    return tuple(
        ShelfItem(
            kind="model", name=folder.name, path=folder, size=ByteSize(folder_bytes(folder)),
            used_by=tuple(dict.fromkeys(n for n, model in users if _below(model, folder))),
        )
        for folder in folders
    )  # fmt: skip


def removable_model(name: str, rim: Rim) -> ShelfItem:
    """Return a fetched model. Raises `UserError` when unknown or used by what is up."""
    found = next((item for item in models(rim) if item.name == name), None)
    if found is None:
        raise UserError("no such model was fetched", where=name, fix="see `fleet models list`")
    if found.used_by:
        fix = f"`fleet down {found.used_by[0]}` first"
        raise UserError(f"{', '.join(found.used_by)} runs on it", where=name, fix=fix)
    return found


def prunable(rim: Rim, *, with_models: bool) -> tuple[ShelfItem, ...]:
    """Return what nothing needs: old and failed generations, partial files, images, models."""
    items = (*_old_generations(rim), *_leftovers(rim), *_images(rim))
    return (*items, *unused_models(rim)) if with_models else items


def unused_models(rim: Rim) -> tuple[ShelfItem, ...]:
    """Return the fetched models that nothing uses which is up."""
    return tuple(item for item in models(rim) if not item.used_by)


def remove(item: ShelfItem, rim: Rim) -> None:
    """Remove one item. Raises `OutsideError`."""
    if item.path is None:
        rim.commands.run(("podman", "image", "rm", item.name)).checked(fix="see `podman ps -a`")
        return
    try:
        if item.path.is_dir():
            shutil.rmtree(item.path)
        else:
            item.path.unlink(missing_ok=True)
    except OSError as error:
        message = f"cannot remove: {error.strerror}"
        raise OutsideError(message, where=str(item.path), fix="check its owner and mode") from None


def _wanted_up(rim: Rim) -> list[tuple[str, LaunchConfig]]:
    """Return deployment and launch of everything that is recorded as up, or may be."""
    return [
        (name, launch)
        for name in recorded(rim.folders)
        for made in _wanted(name, rim)
        for launch in made.launches
    ]


def _wanted(name: str, rim: Rim) -> tuple[Generation, ...]:
    """Return the generation that is up; of a damaged record all: each may be what runs."""
    kept = whole_generations(rim.folders, name)
    try:
        record = read_record(rim.folders, name)
    except OutsideError:
        return kept
    up = record.generation if record and record.wanted == "up" else None
    return tuple(made for made in kept if made.number == up)


def _below(file: str | None, folder: Path) -> bool:
    return file is not None and Path(file).resolve().is_relative_to(folder.resolve())


def _old_generations(rim: Rim) -> Iterator[ShelfItem]:
    """Yield all but the wanted generation and the one that `rollback` goes to."""
    for name in recorded(rim.folders):
        try:
            record = read_record(rim.folders, name)
        except OutsideError:  # `status` names it; which generation runs is not known
            continue
        wanted = record.generation if record else 0
        kept = whole_generations(rim.folders, name)
        before = [each.number for each in kept if each.ready and each.number < wanted]
        needed = {wanted, *before[-ROLLBACKS:]}
        for made in kept:
            if made.number not in needed:
                folder = deployment_folder(rim.folders, name) / "generations"
                path = folder / f"{made.number:06}.json"
                label = f"{name}, generation {made.number}"
                yield ShelfItem(
                    kind="generation", name=label, path=path, size=ByteSize(path.stat().st_size)
                )


def _images(rim: Rim) -> Iterator[ShelfItem]:
    """Yield images that fleet built and neither a container nor a deployment that is up uses."""
    words = ("podman", "images", "--filter", f"label={BUILT_LABEL}", "--format", "json")
    said = rim.commands.run(words, timeout_s=60.0)
    used = {launch.image for _, launch in _wanted_up(rim)}
    listed = json.loads(said.stdout or "[]") if said.ok else []
    # an image of two names is listed twice, with both
    named = {name: image for image in listed for name in image.get("Names") or ()}
    for name, image in named.items():
        if name.startswith(BUILT_NAME) and name not in used and not image["Containers"]:
            yield ShelfItem(kind="image", name=name, path=None, size=ByteSize(int(image["Size"])))


def _leftovers(rim: Rim) -> Iterator[ShelfItem]:
    for pattern in ("*/*.damaged", "*/*.part", "*/.cache"):
        for path in sorted(models_folder(rim).glob(pattern)):
            size = folder_bytes(path) if path.is_dir() else path.stat().st_size
            name = str(path.relative_to(models_folder(rim)))
            yield ShelfItem(kind="leftover", name=name, path=path, size=ByteSize(size))
    for path in sorted((rim.folders.state / "trials").glob("*")):
        deployment = path.name.rpartition("-")[0]  # the rest names the server
        if orphaned(deployment) and not (path / "order.json").exists():
            size = ByteSize(folder_bytes(path))
            yield ShelfItem(kind="trial log", name=path.name, path=path, size=size)
