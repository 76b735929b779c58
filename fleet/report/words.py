"""Figures as people read them in tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleet.bench.intervals import Estimate

NONE = "-"


def number(value: float | None, digits: int = 1, unit: str = "") -> str:
    """Return a figure with that many digits after the point, a dash for None."""
    return NONE if value is None else f"{value:,.{digits}f}{unit}"


def moment(said: object) -> str:
    """Return an ISO time of UTC as people write it, anything else as it is."""
    day, t, rest = str(said or NONE).partition("T")
    return (
        f"{day} {rest.removesuffix('+00:00')} UTC" if t and rest.endswith("+00:00") else str(said)
    )


def percent(value: float | None, digits: int = 0) -> str:
    """Return a share as per cent."""
    return NONE if value is None else f"{value * 100:.{digits}f}%"


def in_unit(value: float | None, unit: str) -> str:
    """Return a figure in its unit: shares as per cent, whole counts whole."""
    if unit == "share":
        return percent(value, 2)
    whole = value is not None and float(value).is_integer()
    digits = 3 if unit == "s" else 0 if whole else 2
    return number(value, digits, f" {unit}" if unit and value is not None else "")


def value_and_interval(found: Estimate | None, unit: str = "", digits: int = 2) -> tuple[str, str]:
    """Return a figure and its 95% interval, which is empty where there is none."""
    if found is None:
        return NONE, ""
    shown = number(found.value, digits, unit)
    if found.low is None or found.high is None:
        return shown, ""
    return shown, f"{number(found.low, digits)} to {number(found.high, digits)}"


def estimate(found: Estimate | None, unit: str = "") -> str:
    """Return a figure with its 95% interval in brackets, where there is one."""
    value, interval = value_and_interval(found, unit)
    return f"{value} ({interval})" if interval else value
