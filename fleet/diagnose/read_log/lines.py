"""From chunks of bytes to lines of text, whatever the bytes are."""

from __future__ import annotations

import codecs
import re
import zlib
from typing import TYPE_CHECKING

from fleet.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LONGEST = 256 * 1024  # characters; what is longer is no log line and is cut
GZIP = b"\x1f\x8b"
BINARY_SHARE = 0.3
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def line_batches(chunks: Iterable[bytes]) -> Iterator[list[str]]:
    """Yield lists of lines without their ends; escapes are gone, bad bytes are replaced.

    Gzip is unpacked on the way. Memory stays within a few chunks. Raises `UserError` for
    content that is no text.
    """
    decode = None
    rest = ""
    for chunk in _unzipped(chunks):
        if decode is None:
            decode = _decoder(chunk)
        text = rest + decode(chunk)
        if "\x1b" in text:
            text = ESCAPES.sub("", text)
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.split("\n")
        rest = lines.pop()[:LONGEST]
        yield lines
    if rest:
        yield [rest]


def _decoder(chunk: bytes) -> Callable[[bytes], str]:
    """Choose the encoding by the first bytes: PowerShell's `>` writes UTF-16."""
    wide = chunk.startswith((b"\xff\xfe", b"\xfe\xff"))
    if not wide:
        _refuse_binary(chunk)
    return codecs.getincrementaldecoder("utf-16" if wide else "utf-8")(errors="replace").decode


def _unzipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Unpack gzip, several members and a cut end too; pass anything else through."""
    unpack = None
    for number, chunk in enumerate(chunks):
        if number == 0 and chunk.startswith(GZIP):
            unpack = zlib.decompressobj(wbits=31)
        if unpack is None:
            yield chunk
            continue
        yield from _unpack(unpack, chunk)
        while unpack.eof and unpack.unused_data.startswith(GZIP):
            more = unpack.unused_data
            unpack = zlib.decompressobj(wbits=31)
            yield from _unpack(unpack, more)


def _unpack(unpack: zlib._Decompress, chunk: bytes) -> Iterator[bytes]:
    size = 1 << 20  # a small file can hold a very large text
    try:
        piece = unpack.decompress(chunk, size)
        while piece:
            yield piece
            piece = unpack.decompress(unpack.unconsumed_tail, size)
    except zlib.error:
        raise UserError(
            "the gzip file is damaged", fix="unpack what can be saved with `gzip -dc FILE > LOG`"
        ) from None


def _refuse_binary(chunk: bytes) -> None:
    head = chunk[:4096]
    odd = sum(head.count(byte) for byte in range(32) if byte not in (9, 10, 13, 27))
    if head.startswith(b"GGUF") or odd > BINARY_SHARE * len(head):
        raise UserError(
            "this is a binary file, not a log",
            fix="give the text that the server printed, for instance `podman logs NAME > LOG`",
        )
