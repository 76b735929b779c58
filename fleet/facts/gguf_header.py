"""Reads the header of a GGUF file: metadata and the table of tensors, not the weights.

Large arrays (vocabulary, merges) are stepped over without being built, so a header with a
vocabulary of 164k tokens takes tens of milliseconds. The layout is that of the GGUF
specification, versions 2 and 3, little-endian. Every count, length and offset is checked
against the size of the file before it is believed.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.errors import UserError
from fleet.facts.ggml_types import GGML_TYPES

Read = Callable[[int, int], bytes]  # offset, size -> at most that many bytes
Scalar = str | int | float | bool

_WINDOW = 1 << 20  # bytes asked for at a time
_KEPT_ARRAY = 4096  # numeric arrays up to this length are kept (head counts, layer patterns)
_KEPT_STRINGS = 1024  # string arrays up to this length are kept (layer types)
_LONGEST_KEY = 65535  # of the specification
_MOST_DIMENSIONS = 4  # GGML_MAX_DIMS
_LONGEST_DIMENSION = 1 << 40
_STRING, _ARRAY = 8, 9
# type -> its `struct` format
_SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_SMALLEST_KV = 13  # empty key, type, one byte
_SMALLEST_TENSOR = 24  # empty name, no dimension, type, offset
_SPLIT_NAME = re.compile(r"(?P<stem>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class LongArray:
    """An array of the metadata that was stepped over: only its length is known."""

    length: int


Value = Scalar | tuple[Scalar, ...] | LongArray


@dataclass(frozen=True, slots=True)
class Tensor:
    """One row of the tensor table: `shape` in ggml's order, `size` in bytes."""

    name: str
    shape: tuple[int, ...]
    type: str
    size: int
    offset: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufHeader:
    """Metadata by key, tensors in file order; sizes in bytes.

    `data_offset` is where the tensors' bytes begin. A header merged from splits holds all
    tensors.
    """

    name: str
    metadata: Mapping[str, Value]
    tensors: tuple[Tensor, ...]
    data_offset: int

    @property
    def architecture(self) -> str:
        """`general.architecture`; raises `UserError` when the key is missing."""
        return self.text("general.architecture")

    @property
    def split_count(self) -> int:
        """How many files the model has; 1 for a model in one file."""
        count = self.metadata.get("split.count", 1)
        return count if isinstance(count, int) and count > 0 else 1

    @property
    def tensor_bytes(self) -> int:
        """Sum of all tensors."""
        return sum(tensor.size for tensor in self.tensors)

    def text(self, key: str) -> str:
        """Return a string of the metadata; raises `UserError` when missing or no string."""
        value = self.metadata.get(key)
        if not isinstance(value, str):
            raise self.broken(f"the key `{key}` is missing or no text")
        return value

    def broken(self, what: str) -> UserError:
        """Return the error that says what is wrong with this file."""
        return _broken(self.name, what)


def read_header(read: Read, size: int, *, name: str = "model.gguf") -> GgufHeader:
    """Parse the header at the start of a file of `size` bytes.

    Raises `UserError` naming the file and what is wrong: no GGUF, a version not known,
    counts or lengths beyond the file, absurd dimensions, tensors beyond the file, keys or
    tensors given twice.
    """
    cursor = _Cursor(read, size, name)
    tensor_count, kv_count = _preamble(cursor)
    cursor.believe(kv_count * _SMALLEST_KV, f"{kv_count} metadata keys")
    metadata = _metadata(cursor, kv_count)
    cursor.believe(tensor_count * _SMALLEST_TENSOR, f"{tensor_count} tensors")
    tensors = tuple(_tensor(cursor) for _ in range(tensor_count))
    alignment = _alignment(metadata, name)
    data_offset = -(-cursor.position // alignment) * alignment
    _check_tensors(tensors, data_offset, size, name)
    return GgufHeader(name=name, metadata=metadata, tensors=tensors, data_offset=data_offset)


def split_names(name: str, count: int) -> tuple[str, ...]:
    """Return the names of all files of a split set, from the name of its first.

    Raises `UserError` when `name` is not that of a first split of `count`.
    """
    match = _SPLIT_NAME.fullmatch(name)
    if count == 1 and match is None:
        return (name,)
    if match is None or int(match["no"]) != 1 or int(match["count"]) != count:
        what = f"its header says it is one of {count} files, its name does not"
        fix = f"give the first file, named `...-00001-of-{count:05}.gguf`"
        raise UserError(what, where=name, fix=fix)
    return tuple(f"{match['stem']}-{no:05}-of-{count:05}.gguf" for no in range(1, count + 1))


def merge_splits(headers: Sequence[GgufHeader]) -> GgufHeader:
    """Join the headers of a split set, given in order, into one.

    Raises `UserError` when a file is not the split that its place says (which a cycle or a
    file named twice would be), or when tensors are missing or given twice.
    """
    first = headers[0]
    if first.split_count != len(headers):
        raise first.broken(f"it is one of {first.split_count} files, {len(headers)} were given")
    for place, header in enumerate(headers):
        if len(headers) > 1 and header.metadata.get("split.no") != place:
            raise header.broken(
                f"it says it is split {header.metadata.get('split.no')}, not {place}"
            )
        if header.split_count != first.split_count:
            raise header.broken(f"it counts {header.split_count} splits, the first {len(headers)}")
    tensors = tuple(tensor for header in headers for tensor in header.tensors)
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise first.broken("a tensor lies in two of its splits")
    wanted = first.metadata.get("split.tensors.count", len(tensors))
    if wanted != len(tensors):
        raise first.broken(f"it promises {wanted} tensors, its splits hold {len(tensors)}")
    return replace(first, tensors=tensors)


class _Cursor:
    """A position in the file, with the window of bytes around it."""

    def __init__(self, read: Read, size: int, name: str) -> None:
        self.read, self.size, self.name = read, size, name
        self.position = 0
        self.window, self.start = b"", 0

    def believe(self, length: int, what: str) -> None:
        """Refuse what would reach beyond the end of the file."""
        if length > self.size - self.position:
            left = self.size - self.position
            raise _broken(self.name, f"{what} cannot lie in the {left} bytes that are left")

    def take(self, length: int, what: str) -> bytes:
        """Return the next `length` bytes."""
        self.believe(length, what)
        at = self.position - self.start
        if at < 0 or at + length > len(self.window):
            self.window = self.read(
                self.position, max(length, min(_WINDOW, self.size - self.position))
            )
            self.start, at = self.position, 0
            if len(self.window) < length:
                raise _broken(self.name, f"the file ended inside {what}")
        self.position += length
        return self.window[at : at + length]

    def values(self, code: str, what: str) -> tuple[Scalar, ...]:
        """Return the next values of the `struct` format `code`."""
        packed = struct.Struct("<" + code)
        return packed.unpack(self.take(packed.size, what))

    def number(self, code: str, what: str) -> int:
        """Return the next integer."""
        return int(self.values(code, what)[0])

    def string(self, what: str, longest: int | None = None) -> str:
        """Return the next string."""
        length = self.number("Q", what)
        if longest is not None and length > longest:
            raise _broken(self.name, f"{what} has {length} bytes, more than {longest}")
        return self.take(length, what).decode("utf-8", "replace")

    def skip(self, length: int, what: str) -> None:
        """Step over `length` bytes without reading them."""
        self.believe(length, what)
        self.position += length

    def skip_strings(self, count: int, what: str) -> None:
        """Step over `count` strings, window by window; the hot loop of a header."""
        self.believe(count * 8, what)
        unpack = struct.Struct("<Q").unpack_from
        left = count
        while left:
            self.take(8, what)
            at = self.position - self.start - 8
            window, end = self.window, len(self.window) - 8
            while left and at <= end:
                at += 8 + unpack(window, at)[0]
                left -= 1
            self.position = self.start + at
            self.believe(0, what)


def _preamble(cursor: _Cursor) -> tuple[int, int]:
    if cursor.size < 24 or cursor.take(4, "the magic") != b"GGUF":  # noqa: PLR2004 - fixed part
        raise _broken(cursor.name, "it is no GGUF file")
    version = cursor.number("I", "the version")
    if version not in (2, 3):
        raise _broken(cursor.name, f"GGUF version {version} is not known (2 and 3 are)")
    return cursor.number("Q", "the tensor count"), cursor.number("Q", "the key count")


def _metadata(cursor: _Cursor, count: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for _ in range(count):
        key = cursor.string("a metadata key", _LONGEST_KEY)
        if key in metadata:
            raise _broken(cursor.name, f"the key `{key}` is given twice")
        metadata[key] = _value(cursor, key, cursor.number("I", f"the type of `{key}`"))
    return metadata


def _value(cursor: _Cursor, key: str, kind: int) -> Value:
    what = f"the value of `{key}`"
    if kind == _STRING:
        return cursor.string(what)
    if kind == _ARRAY:
        return _array(cursor, what)
    if kind not in _SCALARS:
        raise _broken(cursor.name, f"{what} has type {kind}, which is not known")
    return cursor.values(_SCALARS[kind], what)[0]


def _array(cursor: _Cursor, what: str) -> Value:
    kind, length = cursor.number("I", what), cursor.number("Q", what)
    if kind == _STRING:
        if length <= _KEPT_STRINGS:
            return tuple(cursor.string(what) for _ in range(length))
        cursor.skip_strings(length, what)
        return LongArray(length)
    if kind not in _SCALARS:
        raise _broken(cursor.name, f"{what} is an array of type {kind}, which is not known")
    if length > _KEPT_ARRAY:
        cursor.skip(length * struct.calcsize("<" + _SCALARS[kind]), what)
        return LongArray(length)
    return cursor.values(f"{length}{_SCALARS[kind]}", what)


def _tensor(cursor: _Cursor) -> Tensor:
    name = cursor.string("a tensor name", _LONGEST_KEY)
    dimensions = cursor.number("I", f"the dimensions of `{name}`")
    if dimensions > _MOST_DIMENSIONS:
        raise _broken(cursor.name, f"tensor `{name}` has {dimensions} dimensions, more than 4")
    shape = tuple(cursor.number("Q", f"the shape of `{name}`") for _ in range(dimensions))
    kind = cursor.number("I", f"the type of `{name}`")
    offset = cursor.number("Q", f"the offset of `{name}`")
    if kind not in GGML_TYPES:
        raise _broken(cursor.name, f"tensor `{name}` has type {kind}, which is not known")
    if any(not 0 < length <= _LONGEST_DIMENSION for length in shape):
        raise _broken(cursor.name, f"tensor `{name}` has the absurd shape {shape}")
    block = GGML_TYPES[kind]
    if shape and shape[0] % block.elements:
        raise _broken(
            cursor.name, f"tensor `{name}`: rows of {shape[0]} are no {block.name} blocks"
        )
    size = math.prod(shape) // block.elements * block.size
    return Tensor(name=name, shape=shape, type=block.name, size=size, offset=offset)


def _alignment(metadata: Mapping[str, Value], name: str) -> int:
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise _broken(name, f"`general.alignment` is {alignment}, no power of two")
    return alignment


def _check_tensors(tensors: Sequence[Tensor], data_offset: int, size: int, name: str) -> None:
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise _broken(name, f"tensor `{tensor.name}` is given twice")
        seen.add(tensor.name)
        end = data_offset + tensor.offset + tensor.size
        if end > size:
            what = f"tensor `{tensor.name}` ends at byte {end}, the file at {size}"
            fix = "the download may be incomplete, or the header lies: fetch the file again"
            raise UserError(what, where=name, fix=fix)


def _broken(name: str, what: str) -> UserError:
    return UserError(what, where=name, fix="fetch the file again, or name another GGUF file")
