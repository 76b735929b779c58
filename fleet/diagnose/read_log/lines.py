"""From chunks of bytes to lines of text, whatever the bytes are."""

from __future__ import annotations

import codecs
import re
import zlib
from typing import TYPE_CHECKING, NamedTuple

from fleet.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST = 256 * 1024  # characters; what is longer is no log line and is cut
GZIP = b"\x1f\x8b"
BINARY_SHARE = 0.3
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
SHAPE = bytes.maketrans(b"123456789", b"000000000")


class Batch(NamedTuple):
    """Lines without their ends, and the shape of each: its bytes with every digit a 0.

    Lines of one shape differ in their figures alone.
    """

    lines: list[str]
    shapes: list[bytes]


def line_batches(chunks: Iterable[bytes]) -> Iterator[Batch]:
    """Yield batches of lines; escapes are gone, bad bytes are replaced.

    Gzip is unpacked on the way. Memory stays within a few chunks. Raises `UserError` for
    content that is no text.
    """
    rest = b""
    for chunk in _utf8(_unzipped(chunks)):
        text = rest + chunk
        half = b"\r" if text.endswith(b"\r") else b""  # its \n may come with the next chunk
        whole, end, rest = _plain(text.removesuffix(half)).rpartition(b"\n")
        rest = rest[:LONGEST] + half
        if end:
            yield batch_of(whole)
    if rest:
        yield batch_of(_plain(rest).removesuffix(b"\n"))


def batch_of(text: bytes) -> Batch:
    """Return the lines of `text`."""
    lines = text.decode(errors="replace").split("\n")
    return Batch(lines, text.translate(SHAPE).split(b"\n"))


def _plain(text: bytes) -> bytes:
    if b"\x1b" in text:
        text = ESCAPES.sub(b"", text)
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return text


def _utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Refuse what is no text; turn UTF-16 (PowerShell's `>` writes it) into UTF-8."""
    decoder = None
    for number, chunk in enumerate(chunks):
        if number == 0 and chunk.startswith((b"\xff\xfe", b"\xfe\xff")):
            decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
        elif number == 0:
            _refuse_binary(chunk)
        yield decoder.decode(chunk).encode(errors="replace") if decoder else chunk


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
