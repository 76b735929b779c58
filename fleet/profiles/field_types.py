"""The types of value a profile can hold: each reads a YAML node strictly and describes itself.

A type raises `Mistake` at the first thing wrong with its value; the record, list or map
around it notes that as a `Problem` with the line and goes on, so that one pass finds all
problems of a file. Scalars are read from their text as written, not
from YAML's guess: `on` stays `on`, and `08` is no number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from yaml.nodes import MappingNode, ScalarNode, SequenceNode

from fleet.errors import UserError
from fleet.profiles.kinds import Layer, Place, SettingScalar, SettingValue
from fleet.profiles.problems import Problem, near_name
from fleet.profiles.settings_table import SETTINGS, parse_setting
from fleet.sizes import Bandwidth, ByteSize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from yaml.nodes import Node

    from fleet.profiles.settings_table import SettingRow

JsonSchema = dict[str, Any]

_NULL = "tag:yaml.org,2002:null"
_INTEGER = re.compile(r"-?(0|[1-9]\d*)")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")

_SIZE_PATTERN = r"^\s*\d+(\.\d+)?\s*([KMGTkmgt][iI]?)?[bB]\s*$"
_RATE_PATTERN = r"^\s*\d+(\.\d+)?\s*([KMGTkmgt][iI]?)?[bB]/s\s*$"


class Mistake(Exception):
    """What is wrong with one value; caught by what contains it."""

    def __init__(self, message: str, *, near: str | None = None, fix: str | None = None) -> None:
        """Keep the parts of the problem-to-be."""
        super().__init__(message)
        self.message = message
        self.near = near
        self.fix = fix


@dataclass(slots=True)
class Reading:
    """One file being read: its name as the user gave it, and what was found wrong so far."""

    file: str
    problems: list[Problem] = field(default_factory=list)

    def note(self, node: Node, path: str, mistake: Mistake) -> None:
        """Note a problem at the node's line."""
        line = node.start_mark.line + 1
        self.problems.append(
            Problem(
                line=line, path=path, message=mistake.message, near=mistake.near, fix=mistake.fix
            )
        )


class FieldType(Protocol):
    """How one kind of value is read; containers note the problems inside them in `reading`."""

    def read(self, node: Node, path: str, reading: Reading) -> Any:  # noqa: ANN401 - each type its own
        """Return the value; raises `Mistake`."""
        ...

    def schema(self) -> JsonSchema:
        """Return the JSON schema of the value."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """A key of a profile: the type of its value and what it means."""

    type: FieldType
    meaning: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """A scalar's text as written; `pattern` must match all of it."""

    pattern: str = ""
    wanted: str = "text"

    def read(self, node: Node, path: str, reading: Reading) -> str:
        """Return the text."""
        return self.read_text(_scalar(node, self.wanted))

    def read_text(self, text: str) -> str:
        """Return `text` when it is as wanted; raises `Mistake`."""
        if not text.strip():
            raise Mistake(f"is empty, wanted is {self.wanted}")
        if self.pattern and not re.fullmatch(self.pattern, text):
            raise Mistake(f"`{text}` is not {self.wanted}")
        return text

    def schema(self) -> JsonSchema:
        """Return a string's schema; numbers are taken as their text."""
        pattern = {"pattern": f"^({self.pattern})$"} if self.pattern else {}
        return {"type": ["string", "number"] if not self.pattern else "string", **pattern}


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number between two bounds, both allowed."""

    least: int = 1
    most: int = 2**31 - 1

    def read(self, node: Node, path: str, reading: Reading) -> int:
        """Return the number."""
        return self.read_text(_plain(node, "a whole number"))

    def read_text(self, text: str) -> int:
        """Return the number that `text` says; raises `Mistake`."""
        if not _INTEGER.fullmatch(text):
            raise Mistake(f"`{text}` is not a whole number")
        value = int(text)
        _check_bounds(value, self, text)
        return value

    def schema(self) -> JsonSchema:
        """Return the schema with its bounds."""
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Number:
    """A number between two bounds, both allowed."""

    least: float = 0.0
    most: float = 1e12

    def read(self, node: Node, path: str, reading: Reading) -> float:
        """Return the number."""
        return self.read_text(_plain(node, "a number"))

    def read_text(self, text: str) -> float:
        """Return the number that `text` says; raises `Mistake`."""
        if not _NUMBER.fullmatch(text):
            raise Mistake(f"`{text}` is not a number")
        value = float(text)
        _check_bounds(value, self, text)
        return value

    def schema(self) -> JsonSchema:
        """Return the schema with its bounds."""
        return {"type": "number", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Flag:
    """`true` or `false`, written so."""

    def read(self, node: Node, path: str, reading: Reading) -> bool:
        """Return the truth."""
        return self.read_text(_plain(node, "`true` or `false`"))

    def read_text(self, text: str) -> bool:
        """Return what `text` says; raises `Mistake`."""
        if text not in ("true", "false"):
            raise Mistake(f"`{text}` is neither `true` nor `false`")
        return text == "true"

    def schema(self) -> JsonSchema:
        """Return a boolean's schema."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def read(self, node: Node, path: str, reading: Reading) -> str:
        """Return the word."""
        return self.read_text(_scalar(node, "a word"))

    def read_text(self, text: str) -> str:
        """Return `text` when it is one of the words; raises `Mistake`."""
        if text in self.words:
            return text
        wanted = "one of " + ", ".join(f"`{word}`" for word in self.words)
        near = near_name(text, self.words)
        raise Mistake(f"`{text}` is not {wanted}", near=near)

    def schema(self) -> JsonSchema:
        """Return the schema; YAML editors read `on` and `off` as booleans."""
        truths = [truth for word, truth in (("on", True), ("off", False)) if word in self.words]
        return {"enum": [*self.words, *truths]}


@dataclass(frozen=True, slots=True)
class Measure:
    """A size or a rate with its unit; `parse` reads it, `most` bounds it."""

    parse: Callable[[str], int]
    wanted: str
    most: int
    least: int = 1

    def read(self, node: Node, path: str, reading: Reading) -> int:
        """Return the bytes, or the bytes a second."""
        return self.read_text(_scalar(node, self.wanted))

    def read_text(self, text: str) -> int:
        """Return the bytes that `text` says; raises `Mistake`."""
        try:
            value = self.parse(text)
        except UserError as error:
            raise Mistake(error.message, fix=error.fix) from None
        _check_bounds(value, self, text)
        return value

    def schema(self) -> JsonSchema:
        """Return a string's schema with the units."""
        pattern = _RATE_PATTERN if self.parse == Bandwidth.parse else _SIZE_PATTERN
        return {"type": "string", "pattern": pattern}


SIZE = Measure(ByteSize.parse, "a size such as `24 GiB`", most=ByteSize.parse("1024 TiB"))
RATE = Measure(Bandwidth.parse, "a bandwidth such as `614.4 GB/s`", Bandwidth.parse("1000 TB/s"))


@dataclass(frozen=True, slots=True)
class Items:
    """A list whose items are of one type; read as a tuple."""

    of: FieldType
    most: int = 10_000

    def read(self, node: Node, path: str, reading: Reading) -> tuple[Any, ...]:
        """Return the items."""
        if not isinstance(node, SequenceNode):
            raise Mistake(f"is {_shape(node)}, a list is wanted")
        if len(node.value) > self.most:
            raise Mistake(f"has more than {self.most} items")
        return tuple(
            child(self.of, item, f"{path}[{index}]", reading)
            for index, item in enumerate(node.value)
        )

    def schema(self) -> JsonSchema:
        """Return the schema of the list."""
        return {"type": "array", "items": self.of.schema(), "maxItems": self.most}


@dataclass(frozen=True, slots=True)
class MapOf:
    """Any keys, values of one type."""

    of: FieldType

    def read(self, node: Node, path: str, reading: Reading) -> dict[str, Any]:
        """Return the mapping in the order written."""
        if not isinstance(node, MappingNode):
            raise Mistake(f"is {_shape(node)}, keys and values are wanted")
        return {
            key: child(self.of, value, f"{path}.{key}", reading)
            for key, _, value in pairs(node, path, reading)
        }

    def schema(self) -> JsonSchema:
        """Return the schema of the mapping."""
        return {"type": "object", "additionalProperties": self.of.schema()}


@dataclass(frozen=True, slots=True)
class Scalar:
    """Any single value, as YAML's own rules read it; only for what fleet itself wrote."""

    def read(self, node: Node, path: str, reading: Reading) -> SettingScalar:
        """Return a number, a truth, nothing or text."""
        if not isinstance(node, ScalarNode):
            raise Mistake(f"is {_shape(node)}, a single value is wanted")
        text = str(node.value)
        if node.tag == _NULL:
            return None
        if not node.style and _INTEGER.fullmatch(text):
            return int(text)
        if not node.style and _NUMBER.fullmatch(text):
            return float(text)
        return {"true": True, "false": False}.get(text, text) if not node.style else text

    def schema(self) -> JsonSchema:
        """Return the schema of any scalar."""
        return {"type": ["string", "number", "boolean", "null"]}


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the table by name, each with the place where it was written."""

    layer: Layer

    def read(self, node: Node, path: str, reading: Reading) -> dict[str, SettingValue]:
        """Return the values, checked by the settings table."""
        if not isinstance(node, MappingNode):
            raise Mistake(f"is {_shape(node)}, settings are wanted")
        values: dict[str, SettingValue] = {}
        for key, key_node, value in pairs(node, path, reading):
            try:
                scalar = _setting(key, value)
            except Mistake as mistake:
                reading.note(key_node, f"{path}.{key}", mistake)
                continue
            place = Place(file=reading.file, line=key_node.start_mark.line + 1)
            values[key] = SettingValue(value=scalar, layer=self.layer, place=place)
        return values

    def schema(self) -> JsonSchema:
        """Return the schema: the settings and what each means."""
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": {name: _setting_schema(row) for name, row in SETTINGS.items()},
        }


@dataclass(frozen=True, slots=True)
class Record:
    """Known keys, each of its type, made into a value by `make`."""

    fields: Mapping[str, Field]
    make: Callable[..., Any] = dict

    def read(self, node: Node, path: str, reading: Reading) -> Any:  # noqa: ANN401 - what `make` makes
        """Return what `make` makes of the values, None when any was wrong."""
        if not isinstance(node, MappingNode):
            raise Mistake(f"is {_shape(node)}, keys and values are wanted")
        before = len(reading.problems)
        values = self.read_values(node, path, reading)
        return None if len(reading.problems) > before else self.make(**values)

    def read_values(self, node: MappingNode, path: str, reading: Reading) -> dict[str, Any]:
        """Return the values of the keys that were written; problems are noted."""
        prefix = f"{path}." if path else ""
        values: dict[str, Any] = {}
        for key, key_node, value in pairs(node, path, reading):
            known = self.fields.get(key)
            if known is None:
                mistake = Mistake("unknown key", near=near_name(key, self.fields))
                reading.note(key_node, prefix + key, mistake)
            else:
                values[key] = child(known.type, value, prefix + key, reading)
        for key, known in self.fields.items():
            if known.required and key not in values:
                mistake = Mistake("is missing", fix=f"`{key}` is {known.meaning}")
                reading.note(node, prefix + key, mistake)
        return values

    def schema(self) -> JsonSchema:
        """Return the schema with each key's meaning."""
        return {
            "type": "object",
            "additionalProperties": False,
            "required": [key for key, known in self.fields.items() if known.required],
            "properties": {
                key: {"description": known.meaning, **known.type.schema()}
                for key, known in self.fields.items()
            },
        }


def pairs(node: MappingNode, path: str, reading: Reading) -> Iterator[tuple[str, Node, Node]]:
    """Yield key, the key's node and the value's node; a repeated key is a problem."""
    seen: dict[str, int] = {}
    for key_node, value in node.value:
        if not isinstance(key_node, ScalarNode):
            reading.note(key_node, path, Mistake("a key must be a single word"))
            continue
        key = key_node.value
        where = f"{path}.{key}" if path else key
        if key in seen:
            mistake = Mistake(f"is written twice, first on line {seen[key]}")
            reading.note(key_node, where, mistake)
            continue
        seen[key] = key_node.start_mark.line + 1
        yield key, key_node, value


def child(of: FieldType, node: Node, path: str, reading: Reading) -> Any:  # noqa: ANN401 - as read
    """Return what `of` reads, None after noting its mistake."""
    try:
        return of.read(node, path, reading)
    except Mistake as mistake:
        reading.note(node, path, mistake)
        return None


def _setting_schema(row: SettingRow) -> JsonSchema:
    """Return the schema of one row; null and `default` leave the setting to the engine."""
    number = {
        key: bound
        for key, bound in (("minimum", row.minimum), ("maximum", row.maximum))
        if bound is not None
    }
    words: list[JsonSchema] = [{"enum": [None, "default"]}]
    values: dict[str, list[JsonSchema]] = {
        "int": [{"type": "integer", **number}],
        "float": [{"type": "number", **number}],
        "bool": [{"type": "boolean"}],
        "choice": [Choice(row.choices).schema()],
        "choices": [{"type": "string"}],
        "text": [{"type": ["string", "number"]}],
        "path": [{"type": "string"}],
        "layers": [{"type": "integer", **number}, {"enum": ["all", "auto"]}],
        "mib": [{"type": "integer", **number}, {"type": "string", "pattern": _SIZE_PATTERN}],
    }
    return {"description": row.meaning, "anyOf": [*values[row.kind], *words]}


def _setting(name: str, node: Node) -> SettingScalar:
    if name not in SETTINGS:
        raise Mistake("unknown setting", near=near_name(name, SETTINGS))
    if not isinstance(node, ScalarNode):
        raise Mistake(f"is {_shape(node)}, a single value is wanted")
    if node.tag == _NULL:
        return None
    try:
        return parse_setting(name, node.value)
    except UserError as error:
        raise Mistake(error.message, fix=error.fix) from None


def _scalar(node: Node, wanted: str) -> str:
    if not isinstance(node, ScalarNode):
        raise Mistake(f"is {_shape(node)}, wanted is {wanted}")
    if node.tag == _NULL:
        fix = "give it a value or remove the key"
        raise Mistake(f"has no value, wanted is {wanted}", fix=fix)
    return str(node.value)


def _plain(node: Node, wanted: str) -> str:
    text = _scalar(node, wanted)
    if isinstance(node, ScalarNode) and node.style:
        raise Mistake(f"is text, wanted is {wanted}", fix="remove the quotes")
    return text


def _check_bounds(value: float, bounds: Integer | Number | Measure, text: str) -> None:
    if value < bounds.least:
        raise Mistake(f"`{text}` is below {bounds.least}")
    if value > bounds.most:
        raise Mistake(f"`{text}` is above {bounds.most}")


def _shape(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a set of keys"
    return "a list" if isinstance(node, SequenceNode) else f"`{node.value}`"
