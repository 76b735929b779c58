"""What a dialect gives back, and how one setting is said in a build's own words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fleet.compiler.launch_config import Warn
from fleet.errors import CannotExpress
from fleet.facts.known_builds import since_and_until
from fleet.profiles.settings_table import SETTINGS

if TYPE_CHECKING:
    from fleet.facts.build_facts import BuildFacts
    from fleet.facts.model_facts import ModelFacts
    from fleet.profiles.settings_table import SettingScalar

Settings = dict[str, "str | int | float | bool"]  # complete: what is unset is absent


class Value(NamedTuple):
    """A setting spelled `NAME VALUE`; `names` in order of preference."""

    names: tuple[str, ...]


class Switch(NamedTuple):
    """A setting spelled by its name or its negation.

    `without` is what a build does that has neither: then this value needs no word.
    """

    names: tuple[str, ...]
    negations: tuple[str, ...] = ()
    without: bool = False


Row = Value | Switch


@dataclass(kw_only=True, slots=True)
class Spelled:
    """Words, variables and warnings as they are collected."""

    argv: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    warnings: list[Warn] = field(default_factory=list)

    def warn(self, code: str, message: str) -> None:
        """Add a warning."""
        self.warnings.append(Warn(code=code, message=message))


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What is to be said: settings, where things lie as the server sees them, and for whom."""

    settings: Settings
    build: BuildFacts
    model: ModelFacts | None
    model_path: str
    listen: str
    port: int
    api_key_file: str | None = None
    tls_files: tuple[str, str] | None = None  # certificate, key
    rpc_servers: tuple[str, ...] = ()
    unified_gpu: bool = False
    cuda: bool = False
    extra_args: tuple[str, ...] = ()


def known_name(build: BuildFacts, names: tuple[str, ...]) -> str | None:
    """Return the first of `names` that the build accepts."""
    return next((name for name in names if name in build), None)


def say(spelled: Spelled, build: BuildFacts, setting: str, row: Row, value: SettingScalar) -> None:
    """Add the words for one setting. Raises `CannotExpress`."""
    if isinstance(row, Value):
        name = known_name(build, row.names)
        if name is None:
            raise cannot_express(build, setting, row.names)
        spelled.argv += [name, as_word(value)]
        return
    name = known_name(build, row.names if value else row.negations)
    if name is not None:
        spelled.argv.append(name)
    elif bool(value) is not row.without:
        raise cannot_express(build, setting, row.names if value else row.negations)


def as_word(value: SettingScalar) -> str:
    """Return a value as the engines read it: `1` for true, no trailing zeros."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return f"{value:g}" if isinstance(value, float) else str(value)


def cannot_express(build: BuildFacts, setting: str, names: tuple[str, ...]) -> CannotExpress:
    """Return the error that says since or until which build the setting can be said."""
    known = f"{build.engine} {build.name}"
    spans = _spans(names) if build.engine in {"llama.cpp", "embedded"} else ""
    if not spans:
        owner = SETTINGS[setting].engine if setting in SETTINGS else None
        message = f"{known} has no way to say it" + (f"; {owner} has" if owner else "")
        return CannotExpress(message, where=setting, fix=f"leave `{setting}` out")
    if build.before:
        known += f" (between {build.after} and {build.before})"
    fix = f"use such a build, or leave `{setting}` out"
    return CannotExpress(f"{known} cannot say it; known are {spans}", where=setting, fix=fix)


def _spans(names: tuple[str, ...]) -> str:
    """Return from which to which known build each of `names` is accepted."""
    found = []
    for name in names:
        since, until = since_and_until(name)
        if since is not None:
            found.append(f"`{name}` " + (f"from {since} to {until}" if until else f"since {since}"))
    return ", ".join(found)
