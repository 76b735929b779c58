"""Read a file, or what is piped in, piece by piece."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.effects.files import is_endless
from fleet.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

CHUNK = 1 << 16  # what is made of it stays in a processor's own cache


def file_chunks(path: str) -> Iterator[bytes]:
    """Yield the bytes of `path` (`-` is standard input), 64 KiB at a time.

    Raises `UserError` for a folder, a pipe, a device or an empty file, OSError as opening does.
    """
    if path == "-":
        yield from _some(sys.stdin.buffer, path)
        return
    if Path(path).is_dir():
        raise UserError("this is a folder", where=path, fix="name one log file in it")
    if is_endless(path):
        fix = "pipe it in: `... | fleet diagnose -`"
        raise UserError("is no ordinary file", where=path, fix=fix)
    with Path(path).open("rb") as file:
        yield from _some(file, path)


def _some(file: BinaryIO, path: str) -> Iterator[bytes]:
    empty = True
    while chunk := file.read(CHUNK):
        empty = False
        yield chunk
    if empty:
        raise UserError("the file is empty", where=path, fix="give the log that the server printed")
