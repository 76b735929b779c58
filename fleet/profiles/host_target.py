"""A host as people write it: `alice@epyc1:2222`, or its keys one by one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from yaml.nodes import ScalarNode

from fleet.errors import UserError
from fleet.profiles.container_fields import Record
from fleet.profiles.kinds import HostTarget
from fleet.profiles.reading import Field, JsonSchema, Mistake, Reading
from fleet.profiles.scalar_fields import Integer, Text

if TYPE_CHECKING:
    from yaml.nodes import Node

_MOST_PORT = 65_535
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
# host names, IPv4 and IPv6 with or without brackets; nothing a shell or ssh would act on
_ADDRESS = r"[A-Za-z0-9][A-Za-z0-9._-]*|\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[\w.-]+)?\]?"
_TARGET = re.compile(rf"(?:({_NAME})@)?({_NAME}|\[[0-9A-Fa-f:.]+\])(?::(\d+))?")

ADDRESS = Text(_ADDRESS, "a host name or an address")


def parse_host_target(text: str) -> HostTarget:
    """Read `[USER@]ADDRESS[:PORT]`; the address is the host's name too. Raises `UserError`."""
    match = _TARGET.fullmatch(text)
    port = int(match[3] or 22) if match else 0
    if match is None or not 0 < port <= _MOST_PORT:
        message = f"`{text}` is not a host"
        raise UserError(message, fix="write `[USER@]ADDRESS[:PORT]`, IPv6 in brackets")
    address = match[2].strip("[]")
    return HostTarget(name=address, address=address, user=match[1], port=port)


_KEYS = Record(
    {
        "name": Field(type=Text(_NAME, "a name"), meaning="what fleet calls it", required=True),
        "address": Field(type=ADDRESS, meaning="where SSH reaches it", required=True),
        "user": Field(type=Text(_NAME, "a user's name"), meaning="SSH user"),
        "port": Field(type=Integer(1, _MOST_PORT), meaning="SSH port, default 22"),
        "key_file": Field(type=Text(), meaning="SSH key on the controller"),
        "hardware": Field(type=Text(_NAME, "a name"), meaning="its own hardware profile"),
        "fabric_address": Field(type=ADDRESS, meaning="its address on the fast network"),
        "fabric_interface": Field(type=Text(r"[\w.@-]+", "an interface"), meaning="and interface"),
    },
    HostTarget,
)


@dataclass(frozen=True, slots=True)
class HostEntry:
    """One host of a deployment's list: a word, or a set of keys."""

    def read(self, node: Node, path: str, reading: Reading) -> HostTarget | None:
        """Return the host, None when its keys had problems, which are noted."""
        if not isinstance(node, ScalarNode):
            host: HostTarget | None = _KEYS.read(node, path, reading)
            return host
        try:
            return parse_host_target(node.value)
        except UserError as error:
            raise Mistake(error.message, fix=error.fix) from None

    def schema(self) -> JsonSchema:
        """Return the schema of both forms."""
        return {"oneOf": [{"type": "string", "pattern": f"^({_TARGET.pattern})$"}, _KEYS.schema()]}
