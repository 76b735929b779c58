"""Reads what a model file says of itself: the header of a GGUF and of its splits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fleet.effects.files import read_range
from fleet.errors import UserError
from fleet.facts.gguf_header import GgufHeader, read_header, split_names
from fleet.facts.model_from_gguf import model_facts_from_gguf

if TYPE_CHECKING:
    from fleet.facts.model_facts import ModelFacts


def read_model_file(path: Path | str) -> ModelFacts:
    """Return the facts of a GGUF file, or of the split set whose first file it is.

    Raises `UserError` naming the file when it is missing, broken, or a later split.
    """
    first = Path(path)
    header = _header(first)
    if header.split_count == 1:
        return model_facts_from_gguf(header, files=(str(first),))
    names = split_names(first.name, header.split_count)
    files = tuple(first.with_name(name) for name in names)
    headers = (header, *(_header(file) for file in files[1:]))
    return model_facts_from_gguf(headers, files=tuple(str(file) for file in files))


def _header(path: Path) -> GgufHeader:
    if not path.is_file():
        raise UserError("there is no such model file", where=str(path), fix="check the path")
    size = path.stat().st_size
    return read_header(lambda at, length: read_range(path, at, length), size, name=str(path))
