"""Read what an engine says of itself: `--help` and `--version`, of any llama.cpp family build.

Every option starts a line with its names, comma-separated, positive ones first; its
variable stands in `(env: NAME)`; a removed option says so. ik_llama.cpp indents by two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fleet.errors import UserError
from fleet.facts.build_facts import BuildFacts, Engine, Flag

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NAME = re.compile(r"\s*(--?[A-Za-z0-9][\w.-]*)(,?)")
_ENV = re.compile(r"\(env: (\w+)\)")
_ARGUMENT = re.compile(
    r"\s(?:\{([\w|,+-]+)\}|\[([\w|,+-]+)\]|<([\w|+-]+)>|([a-z][\w-]*(?:,[\w-]+)+))"
)
_BULLET = re.compile(r"^\s*- '?([a-z][\w+-]*)'?(?: \(default\))?:", re.MULTILINE)
_ALLOWED = re.compile(r"allowed values: ([\w, ]+)")
_SEMVER = re.compile(r"version: *v?([\d.]+\S*) \(build (\d+), commit \w+\)")
_NUMBER = re.compile(r"version: *(\d+) \(\w+\)")
_VLLM = re.compile(r"\b(\d+\.\d+\.\d+)\b")
_INDENT = 12  # deeper lines that start with a dash belong to a description
_LEAST_REAL_NUMBER = 100  # third-party builds call themselves 0 or 1


@dataclass(kw_only=True, slots=True)
class _Option:
    head: str
    names: list[str]
    text: list[str] = field(default_factory=list)


def parse_version(text: str) -> tuple[int | None, str | None]:
    """Return build number and semantic version; None for what it does not tell."""
    if match := _SEMVER.search(text):
        version, number = match.groups()
    elif match := _NUMBER.search(text):
        version, number = None, match[1]
    else:
        match = _VLLM.search(text)
        return None, match[1] if match else None
    return int(number) if int(number) >= _LEAST_REAL_NUMBER else None, version


def parse_help(text: str, version_text: str = "", *, engine: Engine = "llama.cpp") -> BuildFacts:
    """Return what the build accepts, from its own words.

    Raises `UserError` when `text` holds no options.
    """
    flags = {name: flag for flag in _flags(text) for name in flag.spellings}
    if not flags:
        fix = "give the output of `llama-server --help`"
        raise UserError("this is no help text of an engine", fix=fix)
    number, version = parse_version(version_text)
    return BuildFacts(engine=engine, number=number, version=version, flags=flags, source="help")


def with_number(build: BuildFacts, known: Iterable[BuildFacts]) -> BuildFacts:
    """Give a build without a number that of the known build whose options are most alike."""
    if build.number is not None or build.engine not in {"llama.cpp", "embedded"}:
        return build
    own = set(build.flags)
    nearest = max(known, key=lambda other: (-len(own ^ set(other.flags)), other.order))
    return replace(build, number=nearest.number, date=nearest.date, inferred=True)


def _flags(text: str) -> Iterator[Flag]:
    for option in _options(text):
        words = "\n".join(option.text)
        env = _ENV.search(words)
        names, negations = _split_negations(option.names)
        yield Flag(
            names=names,
            negations=negations,
            env=env.group(1) if env else None,
            removed="argument has been removed" in " ".join(words.split()),
            choices=_choices(option.head, words),
        )


def _options(text: str) -> Iterator[_Option]:
    current: _Option | None = None
    for line in text.splitlines():
        names, rest = _names(line)
        if names:
            if current:
                yield current
            current = _Option(head=rest, names=names, text=[rest])
        elif current:
            current.text.append(line)
    if current:
        yield current


def _names(line: str) -> tuple[list[str], str]:
    """Return the option names that start `line`, and what follows them."""
    stripped = line.lstrip()
    if len(line) - len(stripped) > _INDENT or not re.match(r"--?[A-Za-z]", stripped):
        return [], line
    names: list[str] = []
    position, more = 0, True
    while more and (match := _NAME.match(line, position)):
        names.append(match.group(1))
        position, more = match.end(), bool(match.group(2))
    return names, line[position:]


def _split_negations(names: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tell positive from negative names: after the first long one, `-n...` denies."""
    first_long = next((i for i, name in enumerate(names) if name.startswith("--")), len(names))
    later = names[first_long + 1 :]
    if not any(name.startswith("--no-") for name in later):
        return tuple(names), ()
    denied = [name for name in later if name.startswith(("--no-", "-n"))]
    return tuple(name for name in names if name not in denied), tuple(denied)


def _choices(head: str, words: str) -> tuple[str, ...]:
    if match := _ARGUMENT.match(head):
        listed = next(group for group in match.groups() if group)
        found = tuple(word for word in re.split(r"[|,]", listed) if word)
        if all(not word.isdigit() for word in found):
            return found
    if match := _ALLOWED.search(" ".join(words.split())):
        return tuple(word.strip() for word in match.group(1).split(",") if word.strip())
    return tuple(dict.fromkeys(_BULLET.findall(words)))
