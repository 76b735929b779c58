"""Text of one YAML document to a profile, or to all that is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml
from yaml.nodes import MappingNode, ScalarNode

from fleet.errors import near_name
from fleet.profiles.container_fields import Record
from fleet.profiles.kind_tables import HEAD, NAME_TEXT, TABLES
from fleet.profiles.kinds import DeploymentProfile, ExampleFile, Place, Profile, SettingValue
from fleet.profiles.problems import BadProfile, Problem
from fleet.profiles.reading import Field, Mistake, Reading
from fleet.profiles.rules import broken_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLE = "example"
_MOST_BYTES = 4 * 1024**2

RECORDS: Mapping[str, Record] = {
    **{kind: Record({**HEAD, **table.fields}, table.make) for kind, table in TABLES.items()},
    EXAMPLE: Record(
        {
            **HEAD,
            **{
                kind: Field(type=Record(table.fields), meaning=f"the keys of `kind: {kind}`")
                for kind, table in TABLES.items()
            },
        },
        lambda name, place, **_: ExampleFile(name=name, place=place),
    ),
}


class Broken(Exception):
    """The file is no YAML mapping with a known kind: nothing more can be said about it."""

    def __init__(self, line: int, message: str, path: str = "", near: str | None = None) -> None:
        """Keep the one problem."""
        super().__init__(message)
        self.problem = Problem(line=line, path=path, message=message, near=near)


def parse_profile(content: str | bytes, *, file: str) -> Profile:
    """Return the profile in `content`; raises `BadProfile` with every problem found.

    Its name is its `name:`, or the file's name without the ending.
    """
    found = check_profile(content, file=file)
    if isinstance(found, tuple):
        raise BadProfile(file, found)
    if isinstance(found, ExampleFile):
        problem = Problem(line=1, path="kind", message="an example is no profile")
        raise BadProfile(file, (problem,))
    return found


def check_profile(
    content: str | bytes, *, file: str
) -> Profile | ExampleFile | tuple[Problem, ...]:
    """Return the profile in `content`, or its problems in the order of the lines."""
    try:
        root = _compose(content)
        kind = _kind_of(root)
    except Broken as broken:
        return (broken.problem,)
    reading = Reading(file)
    profile = _read(root, kind, reading)
    if reading.problems:
        return tuple(sorted(reading.problems, key=lambda problem: problem.line))
    assert profile is not None  # noqa: S101 - `_read` notes a problem when it makes none
    return profile


def _compose(content: str | bytes) -> MappingNode:
    """Return the document's root with line numbers; raises `Broken`."""
    if len(content) > _MOST_BYTES:
        raise Broken(1, f"is larger than {_MOST_BYTES // 1024**2} MiB, that is no profile")
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        message = f"is not UTF-8: byte 0x{error.object[error.start]:02x}"
        raise Broken(line, message) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise Broken(mark.line + 1 if mark else 1, f"is not YAML: {what}") from None
    if root is None:
        raise Broken(1, "the file is empty")
    if not isinstance(root, MappingNode):
        raise Broken(root.start_mark.line + 1, "the file must hold `key: value` lines")
    return root


def _kind_of(root: MappingNode) -> str:
    for key, value in root.value:
        if key.value == "kind":
            kind = value.value if isinstance(value, ScalarNode) else ""
            if kind in RECORDS:
                return str(kind)
            message = f"`{kind}` is no kind of profile; there are {', '.join(TABLES)}"
            near = near_name(str(kind), RECORDS)
            raise Broken(value.start_mark.line + 1, message, "kind", near)
    message = f"is missing; it is one of {', '.join(TABLES)}"
    raise Broken(root.start_mark.line + 1, message, "kind")


def _read(root: MappingNode, kind: str, reading: Reading) -> Profile | ExampleFile | None:
    record = RECORDS[kind]
    values = record.read_values(root, "", reading)
    lines = {
        key.value: key.start_mark.line + 1 for key, _ in root.value if isinstance(key, ScalarNode)
    }
    if "name" not in values:
        values["name"] = _name_of_file(root, reading)
    reading.problems.extend(broken_rules(kind, values, lines))
    if reading.problems:
        return None
    del values["kind"], values["version"]
    values["place"] = Place(file=reading.file, line=lines["kind"])
    if "thinking" in values:
        values["settings"] = _with_thinking(
            values, Place(file=reading.file, line=lines["thinking"])
        )
    if record.make is DeploymentProfile:
        values["lines"] = lines
    profile: Profile | ExampleFile = record.make(**values)
    return profile


def _with_thinking(values: dict[str, Any], place: Place) -> dict[str, SettingValue]:
    """Return a model's settings with its thinking policy among them."""
    policy = SettingValue(value=values["thinking"], layer="model", place=place)
    return {"reasoning": policy, **values.get("settings", {})}


def _name_of_file(root: MappingNode, reading: Reading) -> str | None:
    stem = reading.file.replace("\\", "/").rsplit("/", 1)[-1].rsplit(".", 1)[0]
    try:
        return NAME_TEXT.read_text(stem)
    except Mistake:
        mistake = Mistake("is missing, and the file's name does not serve", fix="add `name:`")
        reading.note(root, "name", mistake)
        return None
