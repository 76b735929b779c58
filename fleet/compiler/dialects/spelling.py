"""What a dialect gives back, and how one setting is said in a build's own words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fleet.compiler.launch_config import Warn
from fleet.errors import CannotExpress, UserError, near_hint
from fleet.facts.known_builds import since_and_until
from fleet.profiles.settings_table import SETTINGS
from fleet.shipped_files import shipped_text

if TYPE_CHECKING:
    from fleet.facts.build_facts import BuildFacts, Engine

Settings = dict[str, "str | int | float | bool"]  # complete: what is unset is absent
_COLUMNS: tuple[Engine, ...] = ("llama.cpp", "ik_llama.cpp", "vllm", "embedded")
_OWN_WAY, _NOT_AT_ALL = "~", "."


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
Words = Mapping[str, Row | None]  # by setting; None: said in a way of the dialect's own


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
class Nodes:
    """Where this node stands among those that share one model."""

    count: int = 1
    rank: int = 0
    master: str | None = None  # fabric address of the first
    interface: str | None = None
    devices: tuple[str, ...] = ()  # InfiniBand devices of this host


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What is to be said: settings, where things lie as the server sees them, and for whom."""

    settings: Settings
    build: BuildFacts
    model_path: str
    listen: str
    port: int
    api_key_file: str | None = None
    tls_files: tuple[str, str] | None = None  # certificate, key
    rpc_servers: tuple[str, ...] = ()
    nodes: Nodes = Nodes()
    unified_gpu: bool = False
    extra_args: tuple[str, ...] = ()


def words_of(engine: Engine) -> Words:
    """Return how `engine` says each setting, from `words.txt`; absent is what it cannot say."""
    lines = shipped_text("compiler/dialects/words.txt").splitlines()
    rows = (re.split(r" {2,}", line) for line in lines if line and not line.startswith("#"))
    cells = ((setting, cells[_COLUMNS.index(engine)]) for setting, *cells in rows)
    return {setting: _row(cell) for setting, cell in cells if cell != _NOT_AT_ALL}


def _row(cell: str) -> Row | None:
    if cell == _OWN_WAY:
        return None
    names, *negations = (tuple(filter(None, part.split(","))) for part in cell.split("|"))
    if not negations:
        return Value(names)
    return Switch(names, negations[0], without=negations[1:] == [("on",)])


def known_name(build: BuildFacts, names: tuple[str, ...]) -> str | None:
    """Return the first of `names` that the build accepts."""
    return next((name for name in names if name in build), None)


def say(spelled: Spelled, build: BuildFacts, words: Words, setting: str, value: object) -> None:
    """Add the words that the table has for one setting. Raises `CannotExpress`."""
    if setting not in words:
        raise cannot_express(build, setting)
    row = words[setting]
    if row is not None:
        say_row(spelled, build, setting, row, value)


def say_row(spelled: Spelled, build: BuildFacts, setting: str, row: Row, value: object) -> None:
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


def as_word(value: object) -> str:
    """Return a value as the engines read it: `1` for true, no trailing zeros."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return f"{value:g}" if isinstance(value, float) else str(value)


def template_words(settings: Settings) -> dict[str, object]:
    """Return the template's arguments, given as JSON. Raises `CannotExpress` when it is none."""
    given = settings.get("chat_template_kwargs")
    try:
        parsed = json.loads(str(given)) if given else {}
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        fix = """write it as `'{"key": value}'`"""
        raise CannotExpress("is no JSON object", where="chat_template_kwargs", fix=fix)
    return parsed


def check_extra_args(words: tuple[str, ...], build: BuildFacts, own: frozenset[str]) -> list[str]:
    """Return `words`. Raises for options that the build lacks or that fleet sets, its `own`."""
    vllm = build.engine == "vllm"
    for word in words:
        name = word.partition("=")[0]
        if not _is_option(name, build):
            continue
        if name in own:
            fix = "use the keys of the deployment (`port`, `bind`, `api_key`, `tls`)"
            raise UserError("fleet sets this option itself", where=f"extra_args {name}", fix=fix)
        plain = name.replace("--no-", "--", 1) if vllm else name
        if name not in build and plain not in build:
            theirs = "`vllm serve --help`" if vllm else "the engine's own `--help`"
            fix = near_hint(name, build.flags, f"see {theirs}")
            message = f"{build.engine} {build.name} does not know this option"
            raise CannotExpress(message, where=f"extra_args {name}", fix=fix)
    return list(words)


def _is_option(word: str, build: BuildFacts) -> bool:
    if build.engine == "vllm":
        return word.startswith("--")
    return word.startswith("-") and word != "-" and not word.lstrip("-")[:1].isdigit()


def cannot_express(build: BuildFacts, setting: str, names: tuple[str, ...] = ()) -> CannotExpress:
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
