"""Lengths of time as people write them on a command line."""

from __future__ import annotations

import re

from fleet.errors import UserError

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhd]?)+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")


def parse_seconds(text: str, *, where: str) -> float:
    """Return the seconds of `30m`, `90s`, `1h30m` or plain `90`. Raises `UserError`."""
    word = text.strip().lower()
    seconds = sum(float(amount) * _UNITS[unit] for amount, unit in _PART.findall(word))
    if not _DURATION.fullmatch(word) or seconds <= 0:
        raise UserError(f"`{text}` is no length of time", where=where, fix="such as `30m` or `90s`")
    return seconds
