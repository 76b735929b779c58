"""Read the profile files of the folders where profiles lie."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fleet.effects.files import is_endless
from fleet.effects.folders import config_folder
from fleet.errors import OutsideError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ENDINGS = (".yaml", ".yml")
_MOST_BYTES = 5 * 2**20  # what is longer, or has no end, is refused by the parser for its size


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileFile:
    """A file of a profile folder: the path as the user would write it, and its bytes."""

    path: str
    layer: Literal["user", "shipped"]
    content: bytes


def read_profile_folders(extra: Iterable[str | Path], shipped: Path) -> Iterator[ProfileFile]:
    """Yield the files of all folders, the ones that win first.

    `extra` folders (which must exist), then `./profiles`, then the configuration folder's,
    then `shipped`; of each folder its own files and those of its subfolders. A `./profiles`
    that is the shipped folder counts as shipped. Files that cannot be read are passed over:
    they are named when they are asked for by path.
    """
    for folder in _user_folders(extra, shipped):
        yield from _files(folder, "user")
    yield from _files(shipped, "shipped")


def read_profile_file(path: str | Path) -> bytes:
    """Return the bytes of one profile file; raises `UserError` when it is not one."""
    if is_endless(path):
        raise UserError("is no ordinary file", where=str(path), fix="save it as a file first")
    try:
        with Path(path).open("rb") as file:
            return file.read(_MOST_BYTES)
    except FileNotFoundError:
        raise UserError("no such file", where=str(path), fix="check the path") from None
    except IsADirectoryError:
        fix = f"`--profiles {path}` adds a folder of profiles"
        raise UserError("is a folder, a file is wanted", where=str(path), fix=fix) from None
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        raise UserError(reason, where=str(path), fix="check its owner and mode") from None


def absolute_path(path: str, *, folder: str | None = None) -> str:
    """Return `path` from `folder` (the working folder when None), `~` being the user's home."""
    return str(Path(folder or Path.cwd(), Path(path).expanduser()).expanduser().absolute())


def _user_folders(extra: Iterable[str | Path], shipped: Path) -> Iterator[Path]:
    for named in extra:
        folder = Path(named)
        if not folder.is_dir():
            raise UserError("no such folder", where=f"--profiles {named}", fix="check the path")
        yield folder
    here = Path("profiles")
    if here.is_dir() and not here.samefile(shipped):
        yield here
    yield config_folder() / "profiles"


def _files(folder: Path, layer: Literal["user", "shipped"]) -> Iterator[ProfileFile]:
    here = str(Path.cwd()) + os.sep
    for path in _paths(folder):
        try:
            content = read_profile_file(path)
        except UserError:
            continue
        # as the user would write it: relative to the working folder when it lies below
        yield ProfileFile(path=path.removeprefix(here), layer=layer, content=content)


def _paths(folder: Path) -> Iterator[str]:
    """Yield the paths of the folder's files, then of its subfolders' files."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        raise OutsideError(reason, where=str(folder), fix="check its owner and mode") from None
    yield from (entry.path for entry in entries if _is_profile(entry))
    for entry in entries:
        if not entry.name.startswith("."):
            yield from (file.path for file in _inner(entry) if _is_profile(file))


def _inner(entry: os.DirEntry[str]) -> list[os.DirEntry[str]]:
    """Return what lies in a subfolder; nothing when it is none or cannot be read."""
    try:
        return sorted(os.scandir(entry.path), key=lambda file: file.name) if entry.is_dir() else []
    except OSError:
        return []


def _is_profile(entry: os.DirEntry[str]) -> bool:
    if not entry.name.endswith(_ENDINGS) or entry.name.startswith("."):
        return False
    try:
        return entry.is_file()
    except OSError:  # a link that leads in a circle
        return False
