"""Text that a request says twice: the same paragraph, or a schema and its prose."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet.diagnose.prompts.best_order import blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.diagnose.prompts.requests import Request

LONG = 60
MANY = 3  # property names of a schema in one block of prose


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeated:
    """A block that could go; `text` is shown only when asked."""

    kind: str
    where: str
    text: str


def said_twice(request: Request) -> tuple[Repeated, ...]:
    """Return the blocks that repeat another one or tell the schema again in prose."""
    return (*_paragraphs(request), *_schema_prose(request))


def _paragraphs(request: Request) -> Iterator[Repeated]:
    seen: Counter[str] = Counter()
    for where, text in request.texts:
        for block in blocks(text):
            key = " ".join(block.split())
            if len(key) < LONG:
                continue
            seen[key] += 1
            if seen[key] > 1:
                yield Repeated(kind="the same text", where=where, text=block)


def _schema_prose(request: Request) -> Iterator[Repeated]:
    names = _names(request.schema)
    if len(names) < MANY:
        return
    for where, text in request.texts:
        if where == "tools":
            continue
        for block in blocks(text):
            told = {name for name in names if re.search(rf"\b{re.escape(name)}\b", block)}
            if len(told) >= max(MANY, len(names) // 2):
                yield Repeated(kind="a schema and its prose", where=where, text=block)


def _names(schema: str) -> set[str]:
    try:
        return set(_properties(json.loads(schema))) if schema else set()
    except ValueError:
        return set()


def _properties(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        properties = value.get("properties")
        if isinstance(properties, dict):
            yield from (str(name) for name in properties)
        for inner in value.values():
            yield from _properties(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _properties(inner)
