"""JSON schemas of the profile kinds for editors, made from the parser's own tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.profiles.kind_tables import FORMAT_VERSION
from fleet.profiles.parse_profile import RECORDS

if TYPE_CHECKING:
    from fleet.profiles.reading import JsonSchema


def json_schema(kind: str) -> JsonSchema:
    """Return the JSON schema (2020-12) of a file of that kind."""
    schema = RECORDS[kind].schema()
    properties = {
        **schema["properties"],
        "kind": {"description": "what kind of profile this file holds", "const": kind},
        "version": {"description": "version of the format", "const": FORMAT_VERSION},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"fleet profile: {kind}",
        **schema,
        "properties": properties,
    }
