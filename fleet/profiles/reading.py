"""How a YAML document is read: one pass that notes every mistake with its line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from yaml.nodes import MappingNode, ScalarNode, SequenceNode

from fleet.profiles.problems import Problem

if TYPE_CHECKING:
    from yaml.nodes import Node

JsonSchema = dict[str, Any]

NULL = "tag:yaml.org,2002:null"


class Mistake(Exception):
    """What is wrong with one value; the list, map or record around it notes it and goes on."""

    def __init__(self, message: str, *, near: str | None = None, fix: str | None = None) -> None:
        """Keep the parts of the problem-to-be."""
        super().__init__(message)
        self.message = message
        self.near = near
        self.fix = fix

    @property
    def hint(self) -> str | None:
        """What to do about it, in one line."""
        return f"did you mean `{self.near}`?" if self.near else self.fix


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

    def read(self, node: Node, path: str, reading: Reading) -> Any:  # noqa: ANN401 - each its own
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


def shape(node: Node) -> str:
    """Return what a node is, for messages."""
    if isinstance(node, MappingNode):
        return "a set of keys"
    if isinstance(node, SequenceNode):
        return "a list"
    return f"`{node.value}`" if isinstance(node, ScalarNode) else "nothing known"
