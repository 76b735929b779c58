"""The one table of settings: every word a profile may use, one row each, in `settings.txt`.

How an engine build spells a setting is the dialects' business (`compiler/dialects/`). `None`
or the word `default` leaves it to the engine.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from fleet.errors import UserError, near_hint
from fleet.shipped_files import shipped_text
from fleet.sizes import MIB, ByteSize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SettingScalar = str | int | float | bool | None
SettingKind = Literal["int", "float", "bool", "choice", "choices", "text", "path", "layers", "mib"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingRow:
    """One setting and what its value may be.

    `dangerous` ones need `allow_dangerous`; `engine` names the only engine that knows it.
    """

    name: str
    kind: SettingKind
    meaning: str
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    unit: str
    dangerous: bool
    engine: Literal["ik_llama.cpp", "vllm"] | None


def _rows() -> Iterator[SettingRow]:
    engine: Any = None
    for line in shipped_text("profiles/settings.txt").splitlines():
        if line.startswith("["):
            engine = line[1:-1] if line[1:-1] in {"ik_llama.cpp", "vllm"} else None
        elif line and not line.startswith("#"):
            yield _row(line, engine)


def _row(line: str, engine: Any) -> SettingRow:  # noqa: ANN401 - as below
    """Read one row; the shipped file is trusted."""
    name, what, meaning = re.split(r" {2,}", line)
    kind: Any  # one of its words
    kind, bounds, unit = [*what.split(" "), "", ""][:3]
    low, _, high = bounds.partition("..") if ".." in bounds else ("", "", "")
    return SettingRow(
        name=name.removeprefix("!"),
        kind=kind,
        meaning=meaning,
        minimum=_number(low),
        maximum=_number(high),
        choices=tuple(bounds.split(",")) if kind in {"choice", "choices"} else (),
        unit="MiB" if kind == "mib" else unit,
        dangerous=name.startswith("!"),
        engine=engine,
    )


def _number(text: str) -> float | None:
    if not text:
        return None
    return int(text) if text.lstrip("-").isdigit() else float(text)


SETTINGS: Mapping[str, SettingRow] = MappingProxyType({row.name: row for row in _rows()})
KV_TYPES = SETTINGS["draft_cache_type_k"].choices
# of ik_llama.cpp only
IK_KV_TYPES = tuple(word for word in SETTINGS["cache_type_k"].choices if word not in KV_TYPES)

_TRUE = frozenset({"true", "on", "yes", "1"})
_FALSE = frozenset({"false", "off", "no", "0"})


def parse_setting(name: str, value: object) -> SettingScalar:
    """Return `value` as the setting's own kind; text from `--set` and YAML values alike.

    Raises `UserError` for an unknown name (with the near one), a wrong kind, a value out
    of bounds or not among the choices.
    """
    row = SETTINGS.get(name)
    if row is None:
        fix = near_hint(name, SETTINGS, "see `fleet schema deployment`")
        raise UserError("unknown setting", where=name, fix=fix)
    if value is None or value == "default":
        return None
    return _PARSERS[row.kind](row, value)


def _wrong(row: SettingRow, value: object, wanted: str) -> UserError:
    return UserError(f"`{value}` is not {wanted}", where=row.name, fix=row.meaning)


def _bounded(row: SettingRow, value: float, shown: object) -> None:
    low, high = row.minimum, row.maximum
    if (low is not None and value < low) or (high is not None and value > high):
        unit = f" {row.unit}" if row.unit else ""
        raise _wrong(row, shown, f"between {_shown(low)} and {_shown(high)}{unit}")


def _shown(bound: float | None) -> str:
    return f"{bound:,.0f}" if bound is not None and bound == int(bound) else f"{bound:g}"


_ENOUGH = 40  # digits of a number beyond every bound; Python reads no more than 4300


def _parse_int(row: SettingRow, value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d+\s*", value, re.ASCII):
        value = int(value.strip()[:_ENOUGH])
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(row, value, "a whole number")
    _bounded(row, value, value)
    return int(value)


def _parse_float(row: SettingRow, value: object) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise _wrong(row, value, "a number") from None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise _wrong(row, value, "a number")
    _bounded(row, value, value)
    return float(value)


def _parse_bool(row: SettingRow, value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise _wrong(row, value, "true or false")


def _parse_choice(row: SettingRow, value: object) -> str:
    if isinstance(value, bool):  # YAML reads a bare `on` and `off` as truth values
        value = "on" if value else "off"
    if value not in row.choices:
        raise _wrong(row, value, f"one of {', '.join(row.choices)}")
    return str(value)


def _parse_choices(row: SettingRow, value: object) -> str:
    words = [word.strip() for word in str(value).split(",")]
    for word in words:
        _parse_choice(row, word)
    return ",".join(words)


def _parse_text(row: SettingRow, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _wrong(row, value, "text")
    text = str(value)
    if not text.strip() or "\0" in text or "\n" in text.strip():
        raise _wrong(row, value, "one line of text")
    return text


def _parse_layers(row: SettingRow, value: object) -> int | str:
    if value in {"all", "auto"}:
        return str(value)
    try:
        return _parse_int(row, value)
    except UserError:
        raise _wrong(row, value, "a number of layers, `all` or `auto`") from None


def _parse_mib(row: SettingRow, value: object) -> int:
    """MiB as a whole number, or a size with its unit such as `8 GiB`."""
    if isinstance(value, str) and value.strip()[-1:].isalpha():
        value = int(ByteSize.parse(value)) // MIB
    return _parse_int(row, value)


_PARSERS: Mapping[SettingKind, Callable[[SettingRow, object], SettingScalar]] = {
    "int": _parse_int,
    "float": _parse_float,
    "bool": _parse_bool,
    "choice": _parse_choice,
    "choices": _parse_choices,
    "text": _parse_text,
    "path": _parse_text,
    "layers": _parse_layers,
    "mib": _parse_mib,
}
