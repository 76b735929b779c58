"""The options that many verbs share, so that they read the same everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.load import load_library
from fleet.errors import FleetError
from fleet.profiles.kinds import KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Callable


def profile_names(kind: Kind) -> Callable[[str], list[str]]:
    """Return a completion: the names of that kind that begin with what was typed."""

    def complete(incomplete: str) -> list[str]:
        try:
            entries = load_library().entries(kind)
        except (FleetError, OSError):  # a shell has no place for messages
            return []
        return [entry.name for entry in entries if entry.name.startswith(incomplete)]

    return complete


def kind_names(incomplete: str) -> list[str]:
    """Return the kinds of profile that begin with what was typed."""
    return [kind for kind in KINDS if kind.startswith(incomplete)]


Name = Annotated[
    str,
    typer.Argument(help="A deployment", autocompletion=profile_names("deployment"), metavar="NAME"),
]
Profiles = Annotated[
    list[str] | None, typer.Option("--profiles", metavar="DIR", help="Add a folder of profiles")
]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting")
]
Json = Annotated[bool, typer.Option("--json", help="Answer with one JSON document")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask before stopping or replacing")]
