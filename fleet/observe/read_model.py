"""Reads what a model file says of itself: the header of a GGUF and of its splits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.effects.files import read_range
from fleet.errors import UserError
from fleet.facts.architecture_records import with_known_compute
from fleet.facts.gguf_header import GgufHeader, read_header, split_names
from fleet.facts.model_from_config import model_facts_from_config
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
        return with_known_compute(model_facts_from_gguf(header, files=(str(first),)))
    names = split_names(first.name, header.split_count)
    files = tuple(first.with_name(name) for name in names)
    headers = (header, *(_header(file) for file in files[1:]))
    facts = model_facts_from_gguf(headers, files=tuple(str(file) for file in files))
    return with_known_compute(facts)


def read_model_config(path: Path | str) -> ModelFacts:
    """Return the facts of a Hugging Face `config.json`; the weights are a bound in bf16.

    Raises `UserError` naming the file when it is missing or no such file.
    """
    file = Path(path)
    if not file.is_file():
        raise UserError("there is no such file", where=str(path), fix="check the path")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"no JSON: {error}", where=str(path), fix="fetch it again") from None
    if not isinstance(config, dict):
        raise UserError("it is no JSON object", where=str(path), fix="fetch it again")
    return with_known_compute(model_facts_from_config(config, file.parent.name or str(file)))


def _header(path: Path) -> GgufHeader:
    if not path.is_file():
        raise UserError("there is no such model file", where=str(path), fix="check the path")
    size = path.stat().st_size
    return read_header(lambda at, length: read_range(path, at, length), size, name=str(path))
