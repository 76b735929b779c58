"""`BuildFacts` from the shipped tables, when neither the engine nor its help is at hand."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from fleet.errors import UserError
from fleet.facts.build_facts import BuildFacts, Engine, Flag
from fleet.shipped_files import shipped_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KNOWN_BUILDS = (
    "2025-09-29", "2025-11-29", "2026-01-13", "2026-02-27", "b8672", "b9093", "b9246", "b9388",
    "b9538", "b9940", "b10142", "b10229", "b10434", "b10488", "b10566", "b10825", "b10936",
    "b11434", "b11549", "b11669",
)  # fmt: skip
NEWEST = KNOWN_BUILDS[-1]
IK_DATE = "2026-08-15"
VLLM_VERSION = "0.33.0"
VLLM_ENV = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"
_NUMBER = re.compile(r"b?(\d{3,6})")
_DATE = re.compile(r"20\d\d-\d\d-\d\d")
_VERSION = re.compile(r"v?(\d+\.\d+\.\d+)")
# `--prefix-cache-retention-interval` replaced the variable of the same purpose
_VLLM_FLAG_SINCE = (0, 30, 0)


def build_facts(engine: Engine, build: str | int | None = None) -> BuildFacts:
    """Return what `engine` accepts at `build`, from the shipped table; None is its newest.

    llama.cpp and the embedded engine: `b9093`, `9093` or a snapshot date `2025-09-29`;
    between two known builds only what both accept. vLLM: a version such as `0.33.0`.
    Raises `UserError` for a build that the table cannot place.
    """
    if engine == "vllm":
        return _vllm(str(build) if build is not None else VLLM_VERSION)
    if engine == "ik_llama.cpp":
        return _ik(str(build) if build is not None else IK_DATE)
    return _llama_cpp(engine, str(build) if build is not None else NEWEST)


def known_llama_cpp_builds() -> tuple[BuildFacts, ...]:
    """Return every known build of llama.cpp, oldest first."""
    return tuple(_llama_cpp("llama.cpp", name) for name in KNOWN_BUILDS)


@lru_cache(maxsize=64)
def _llama_cpp(engine: Engine, build: str) -> BuildFacts:
    order, number, date = _place(build)
    older = [name for name in KNOWN_BUILDS if _place(name)[0] <= order]
    newer = [name for name in KNOWN_BUILDS if _place(name)[0] >= order]
    if not older:
        fix = f"known builds: {', '.join(KNOWN_BUILDS)}"
        raise UserError(f"build `{build}` is older than the table", where="--build", fix=fix)
    if number is not None and _DATE.fullmatch(older[-1]):
        older = older[:1]  # which of the dated snapshots came before a number is not known
    flags, after, before = _flags_at(older[-1]), older[-1], newer[0] if newer else None
    known = before == after
    if before and not known:
        flags = _in_both(flags, _flags_at(before))
    return BuildFacts(
        engine=engine, number=number, date=date, flags=flags, source="table",
        after=None if known else after, before=None if known else before,
    )  # fmt: skip


def _place(build: str) -> tuple[float, int | None, str | None]:
    """Return the order, number and date of a build's name."""
    if match := _NUMBER.fullmatch(build):
        number = int(match.group(1))
        return float(number), number, None
    if _DATE.fullmatch(build):
        order = float(build.replace("-", "")) / 1e5
        if build > "2026-04-01":  # from here on builds are known by number
            fix = "name the build by its number, for instance `b11549`"
            raise UserError(f"`{build}` is no known snapshot date", where="--build", fix=fix)
        return order, None, build
    fix = "`b9093`, `9093` or a snapshot date such as `2025-09-29`"
    raise UserError(f"`{build}` is no build of llama.cpp", where="--build", fix=fix)


@lru_cache(maxsize=32)
def _flags_at(known: str) -> Mapping[str, Flag]:
    position = KNOWN_BUILDS.index(known)
    return {
        name: flag
        for first, last, flag in _spellings()
        if first <= position <= last
        for name in flag.spellings
    }


@lru_cache(maxsize=1)
def _spellings() -> tuple[tuple[int, int, Flag], ...]:
    return tuple(_read_spellings())


def _read_spellings() -> Iterator[tuple[int, int, Flag]]:
    position = {name: i for i, name in enumerate(KNOWN_BUILDS)} | {"-": len(KNOWN_BUILDS) - 1}
    for line in _lines("llama_cpp"):
        first, last, names, *rest = line.split(" ")
        removed = rest[-1:] == ["removed"]
        env = rest[0].replace("@", "LLAMA_ARG_") if rest and rest[0] != "removed" else None
        yield position[first], position[last], _flag(names, env, removed=removed)


def _lines(engine: str) -> list[str]:
    """Return the lines of an engine's table of options, without its comment."""
    lines = shipped_text(f"facts/{engine}_options.txt").splitlines()
    return [line for line in lines if not line.startswith("#")]


def _flag(names: str, env: str | None, *, removed: bool = False) -> Flag:
    positive, _, negative = names.partition("/")
    return Flag(
        names=tuple(positive.split(",")),
        negations=tuple(negative.split(",")) if negative else (),
        env=env,
        removed=removed,
    )


def _in_both(older: Mapping[str, Flag], newer: Mapping[str, Flag]) -> Mapping[str, Flag]:
    """Keep the names that both have, and a variable only where both read it."""
    return {
        name: Flag(
            names=tuple(n for n in flag.names if n in newer),
            negations=tuple(n for n in flag.negations if n in newer),
            env=flag.env if flag.env == newer[name].env else None,
            removed=flag.removed or newer[name].removed,
        )
        for name, flag in older.items()
        if name in newer
    }


def since_and_until(*names: str) -> tuple[str | None, str | None]:
    """Return the first and last known builds of llama.cpp that accept any of `names`.

    The last is None when the newest known build still does; (None, None): no build does.
    """
    having = [
        build
        for build in KNOWN_BUILDS
        if any((flag := _flags_at(build).get(name)) and not flag.removed for name in names)
    ]
    if not having:
        return None, None
    return having[0], None if having[-1] == NEWEST else having[-1]


def _ik(build: str) -> BuildFacts:
    if build != IK_DATE:
        fix = f"ik_llama.cpp is known as of {IK_DATE}; `--help-file` tells of another"
        raise UserError(f"`{build}` is no known ik_llama.cpp", where="--build", fix=fix)
    flags = _plain("ik_llama_cpp")
    return BuildFacts(engine="ik_llama.cpp", number=None, date=build, flags=flags, source="table")


def _vllm(build: str) -> BuildFacts:
    match = _VERSION.fullmatch(build)
    if not match:
        fix = f"a version such as `{VLLM_VERSION}`"
        raise UserError(f"`{build}` is no version of vLLM", where="--build", fix=fix)
    version = match.group(1)
    flags = dict(_plain("vllm"))
    if tuple(int(part) for part in version.split(".")) < _VLLM_FLAG_SINCE:
        del flags["--prefix-cache-retention-interval"]
        flags[VLLM_ENV] = Flag(names=(), env=VLLM_ENV)
    return BuildFacts(engine="vllm", number=None, version=version, flags=flags, source="table")


@lru_cache(maxsize=4)
def _plain(engine: str) -> Mapping[str, Flag]:
    flags = [_flag(names, None) for line in _lines(engine) for names in line.split()]
    return {name: flag for flag in flags for name in flag.spellings}
