"""Single values of a profile, read from their text as written.

YAML's own guesses are not used: `on` stays `on`, `08` is no number, `"8"` is text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yaml.nodes import ScalarNode

from fleet.errors import UserError, near_name
from fleet.profiles.reading import NULL, JsonSchema, Mistake, Reading, shape
from fleet.sizes import Bandwidth, ByteSize

if TYPE_CHECKING:
    from collections.abc import Callable

    from yaml.nodes import Node

    from fleet.profiles.kinds import SettingScalar

SIZE_PATTERN = r"^\s*\d+(\.\d+)?\s*([KMGTkmgt][iI]?)?[bB]\s*$"

_RATE_PATTERN = SIZE_PATTERN.replace(r"[bB]\s*$", r"[bB]/s\s*$")
_INTEGER = re.compile(r"-?(0|[1-9]\d*)")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_ENOUGH = 40  # digits of a whole number beyond every bound; Python reads no more than 4300
_SHOWN = 60  # characters of a wrong number in a message


class ScalarField:
    """A value of one word or text; `read_text` serves the command line too."""

    quoted = True  # whether the text may stand in quotes

    def read(self, node: Node, path: str, reading: Reading) -> Any:  # noqa: ANN401 - each its own
        """Return the value; raises `Mistake`."""
        if not isinstance(node, ScalarNode):
            raise Mistake(f"is {shape(node)}, a single value is wanted")
        if node.tag == NULL:
            raise Mistake("has no value", fix="give it a value or remove the key")
        if node.style and not self.quoted:
            raise Mistake(f"`{node.value}` is text", fix="remove the quotes")
        if "\0" in node.value:
            raise Mistake("holds a NUL character, which no program takes")
        return self.read_text(str(node.value))

    def read_text(self, text: str) -> Any:  # noqa: ANN401 - as above
        """Return what `text` says; raises `Mistake`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Text(ScalarField):
    """A scalar's text as written; `pattern` must match all of it."""

    pattern: str = ""
    wanted: str = "text"

    def read_text(self, text: str) -> str:
        """Return `text` when it is as wanted."""
        if not text.strip():
            raise Mistake("is empty")
        if self.pattern and not re.fullmatch(self.pattern, text):
            raise Mistake(f"`{text}` is not {self.wanted}")
        return text

    def schema(self) -> JsonSchema:
        """Return a string's schema; numbers are taken as their text."""
        pattern = {"pattern": f"^({self.pattern})$"} if self.pattern else {}
        return {"type": ["string", "number"] if not self.pattern else "string", **pattern}


@dataclass(frozen=True)
class Integer(ScalarField):
    """A whole number between two bounds, both allowed."""

    least: int = 1
    most: int = 2**31 - 1
    quoted = False

    def read_text(self, text: str) -> int:
        """Return the number."""
        if not _INTEGER.fullmatch(text):
            raise Mistake(f"`{text}` is not a whole number")
        return _within(int(text[:_ENOUGH]), self.least, self.most, text)

    def schema(self) -> JsonSchema:
        """Return the schema with its bounds."""
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True)
class Flag(ScalarField):
    """`true` or `false`, written so."""

    quoted = False

    def read_text(self, text: str) -> bool:
        """Return the truth."""
        if text not in ("true", "false"):
            raise Mistake(f"`{text}` is neither `true` nor `false`")
        return text == "true"

    def schema(self) -> JsonSchema:
        """Return a boolean's schema."""
        return {"type": "boolean"}


@dataclass(frozen=True)
class Choice(ScalarField):
    """One of a few words."""

    words: tuple[str, ...]

    def read_text(self, text: str) -> str:
        """Return the word."""
        if text in self.words:
            return text
        wanted = ", ".join(f"`{word}`" for word in self.words)
        raise Mistake(f"`{text}` is not one of {wanted}", near=near_name(text, self.words))

    def schema(self) -> JsonSchema:
        """Return the schema; YAML editors read `on` and `off` as booleans."""
        truths = [truth for word, truth in (("on", True), ("off", False)) if word in self.words]
        return {"enum": [*self.words, *truths]}


@dataclass(frozen=True)
class Measure(ScalarField):
    """A size or a rate with its unit; `parse` reads it, `most` bounds it."""

    parse: Callable[[str], int]
    most: int
    pattern: str

    def read_text(self, text: str) -> int:
        """Return the bytes, or the bytes a second."""
        try:
            value = self.parse(text)
        except UserError as error:
            raise Mistake(error.message, fix=error.fix) from None
        return _within(value, 1, self.most, text)

    def schema(self) -> JsonSchema:
        """Return a string's schema with the units."""
        return {"type": "string", "pattern": self.pattern}


SIZE = Measure(ByteSize.parse, ByteSize.parse("1024 TiB"), SIZE_PATTERN)
RATE = Measure(Bandwidth.parse, Bandwidth.parse("1000 TB/s"), _RATE_PATTERN)


@dataclass(frozen=True)
class Scalar:
    """Any single value: a number, a truth, nothing or text; for what fleet itself wrote."""

    def read(self, node: Node, path: str, reading: Reading) -> SettingScalar:
        """Return the value; raises `Mistake`."""
        if not isinstance(node, ScalarNode):
            raise Mistake(f"is {shape(node)}, a single value is wanted")
        text = str(node.value)
        if node.tag == NULL or node.style:
            return None if node.tag == NULL else text
        if _INTEGER.fullmatch(text):
            return int(text[:_ENOUGH])
        return float(text) if _NUMBER.fullmatch(text) else _TRUTHS.get(text, text)

    def schema(self) -> JsonSchema:
        """Return the schema of any scalar."""
        return {"type": ["string", "number", "boolean", "null"]}


_TRUTHS: dict[str, bool] = {"true": True, "false": False}


def _within(value: int, least: int, most: int, text: str) -> int:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    if value < least:
        raise Mistake(f"`{shown}` is below {least}")
    if value > most:
        raise Mistake(f"`{shown}` is above {most}")
    return value
