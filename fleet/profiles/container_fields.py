"""Lists, maps, settings and records of a profile: what holds other values.

Each notes the mistakes of what it holds and goes on, so that one pass finds them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yaml.nodes import MappingNode, ScalarNode, SequenceNode

from fleet.errors import UserError, near_name
from fleet.profiles.kinds import Layer, Place, SettingScalar, SettingValue
from fleet.profiles.reading import NULL, Field, FieldType, JsonSchema, Mistake, Reading, shape
from fleet.profiles.scalar_fields import SIZE_PATTERN, Choice
from fleet.profiles.settings_table import SETTINGS, parse_setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from yaml.nodes import Node

    from fleet.profiles.settings_table import SettingRow


@dataclass(frozen=True, slots=True)
class Items:
    """A list whose items are of one type; read as a tuple."""

    of: FieldType
    most: int = 10_000

    def read(self, node: Node, path: str, reading: Reading) -> tuple[Any, ...]:
        """Return the items."""
        if not isinstance(node, SequenceNode):
            raise Mistake(f"is {shape(node)}, a list is wanted")
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
        return {
            key: child(self.of, value, f"{path}.{key}", reading)
            for key, _, value in pairs(node, path, reading)
        }

    def schema(self) -> JsonSchema:
        """Return the schema of the mapping."""
        return {"type": "object", "additionalProperties": self.of.schema()}


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the table by name, each with the place where it was written."""

    layer: Layer

    def read(self, node: Node, path: str, reading: Reading) -> dict[str, SettingValue]:
        """Return the values, checked by the settings table."""
        values: dict[str, SettingValue] = {}
        for key, key_node, value in pairs(node, path, reading, wanted="settings"):
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
        before = len(reading.problems)
        values = self.read_values(node, path, reading)
        return None if len(reading.problems) > before else self.make(**values)

    def read_values(self, node: Node, path: str, reading: Reading) -> dict[str, Any]:
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


def pairs(
    node: Node, path: str, reading: Reading, *, wanted: str = "keys and values"
) -> Iterator[tuple[str, Node, Node]]:
    """Yield key, the key's node and the value's node; a repeated key is a problem.

    Raises `Mistake` for what is no mapping.
    """
    if not isinstance(node, MappingNode):
        raise Mistake(f"is {shape(node)}, {wanted} are wanted")
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
    bounds = {"minimum": row.minimum, "maximum": row.maximum}
    number = {key: bound for key, bound in bounds.items() if bound is not None}
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
        "mib": [{"type": "integer", **number}, {"type": "string", "pattern": SIZE_PATTERN}],
    }
    return {"description": row.meaning, "anyOf": [*values[row.kind], *words]}


def _setting(name: str, node: Node) -> SettingScalar:
    if name not in SETTINGS:
        raise Mistake("unknown setting", near=near_name(name, SETTINGS))
    if not isinstance(node, ScalarNode):
        raise Mistake(f"is {shape(node)}, a single value is wanted")
    if node.tag == NULL:
        return None
    try:
        return parse_setting(name, node.value)
    except UserError as error:
        raise Mistake(error.message, fix=error.fix) from None
