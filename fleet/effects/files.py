"""Read and write files; every write is whole or not there."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.errors import FleetError, OutsideError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_MODE = 0o644
BLOCK = 4 * 2**20
MOST_TEXT = 64 * 2**20


def read_text(path: Path | str) -> str:
    """Return the file's text (UTF-8). Raises OSError."""
    return Path(path).read_text(encoding="utf-8")


def read_given_text(path: Path | str) -> str:
    """Return the text of a file that the user named. Raises `UserError` when it has none."""
    fix = "check the path, its owner and mode"
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_TEXT + 1)
        if len(content) <= MOST_TEXT:
            return content.decode("utf-8-sig")
        reason = f"is larger than {MOST_TEXT // 2**20} MiB"
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
    except UnicodeDecodeError:
        reason, fix = "is no text (UTF-8)", "name a text file"
    raise UserError(reason, where=str(path), fix=fix)


def read_range(path: Path | str, offset: int, size: int) -> bytes:
    """Return up to `size` bytes from `offset`. Raises OSError."""
    with Path(path).open("rb") as file:
        file.seek(offset)
        return file.read(size)


def write_atomically(path: Path | str, content: str | bytes, *, mode: int = DEFAULT_MODE) -> None:
    """Replace `path` by `content` at once; a kill leaves the old file or the new one, whole.

    Folders above are made. Raises `OutsideError` when the disk is full or not writable.
    """
    target = Path(path)
    raw = content.encode() if isinstance(content, str) else content
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, raw, mode)
    except OSError as error:
        raise _cannot_write(target, error) from None


def append_line(path: Path | str, text: str) -> None:
    """Append `text` and a line end in one write, on disk before it returns.

    A line that a kill cut short is closed first, so that only that line is lost.
    Raises `OutsideError` as `write_atomically` does.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target, os.O_RDWR | os.O_APPEND | os.O_CREAT, DEFAULT_MODE)
        try:
            _append(descriptor, text)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _cannot_write(target, error) from None


def sha256(path: Path, *, on_bytes: Callable[[int], None] | None = None) -> str:
    """Return the file's SHA-256 in hex; `on_bytes` is told how many bytes are read. OSError."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            done += len(block)
            if on_bytes is not None:
                on_bytes(done)
    return digest.hexdigest()


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files under `folder`; files that vanish meanwhile count 0."""
    total = 0
    for file in folder.rglob("*"):
        with suppress(OSError):
            total += file.lstat().st_size if not file.is_dir() else 0
    return total


def _replace(target: Path, raw: bytes, mode: int) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise


def _append(descriptor: int, text: str) -> None:
    size = os.fstat(descriptor).st_size
    cut = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
    opening = "\n" if cut else ""
    os.write(descriptor, f"{opening}{text}\n".encode())
    os.fsync(descriptor)


def file_for_folder(path: Path, error: OSError) -> UserError | None:
    """Return what is wrong when a folder above `path` is a file; None for other errors."""
    if error.errno not in {errno.EEXIST, errno.ENOTDIR}:
        return None
    above = next(
        (each for each in path.parents if each.exists() and not each.is_dir()), path.parent
    )
    return UserError("is a file, a folder is wanted", where=str(above), fix="name another folder")


def is_endless(path: Path | str) -> bool:
    """Whether `path` is a pipe, a device or a socket, which may have no end."""
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _cannot_write(path: Path, error: OSError) -> FleetError:
    if (wrong := file_for_folder(path, error)) is not None:
        return wrong
    fixes = {
        errno.ENOSPC: "free some space, see `df -h`; `fleet prune` removes what fleet can spare",
        errno.EDQUOT: "free some space within your quota",
        errno.EROFS: "the file system is read-only; fleet's own folders move with "
        "`XDG_CONFIG_HOME`, `XDG_STATE_HOME` and `XDG_CACHE_HOME`",
    }
    fix = fixes.get(error.errno or 0, "check the owner and mode of the folder")
    return OutsideError(f"cannot write: {error.strerror or error}", where=str(path), fix=fix)
