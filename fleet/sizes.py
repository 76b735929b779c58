"""Sizes of memory and rates of memory traffic, parsed from and printed for people."""

from __future__ import annotations

import re
from typing import Self

from fleet.errors import UserError

KIB = 1024
MIB = 1024**2
GIB = 1024**3
TIB = 1024**4

_UNITS = {
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": TIB,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SIZE = re.compile(r"\s*(\d{1,40}(?:\.\d{1,40})?)\s*([a-zA-Z]+)\s*")
_RATE = re.compile(r"\s*(\d{1,40}(?:\.\d{1,40})?)\s*([a-zA-Z]+)/s\s*")


class ByteSize(int):
    """A number of bytes; `ByteSize.parse("24 GiB")`, printed as `24.0 GiB`."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `"24 GiB"` or `"512MB"`; a unit is required. Raises `UserError`."""
        return cls(_parse(text, _SIZE, "a size such as `24 GiB`"))

    @classmethod
    def from_mib(cls, mib: float) -> Self:
        """Return the whole number of bytes nearest to `mib` MiB."""
        return cls(round(mib * MIB))

    @property
    def mib(self) -> float:
        """The size in MiB."""
        return int(self) / MIB

    @property
    def gib(self) -> float:
        """The size in GiB."""
        return int(self) / GIB

    def __str__(self) -> str:
        """Print with the largest binary unit that leaves at least 1."""
        for name, unit in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
            if abs(int(self)) >= unit:
                return f"{int(self) / unit:.1f} {name}"
        return f"{int(self)} B"


class Bandwidth(int):
    """Bytes a second; `Bandwidth.parse("614.4 GB/s")`, printed as `614.4 GB/s`."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `"614.4 GB/s"`; a unit is required. Raises `UserError`."""
        return cls(_parse(text, _RATE, "a bandwidth such as `614.4 GB/s`"))

    def __str__(self) -> str:
        """Print in decimal GB/s, the unit that memory makers use."""
        return f"{int(self) / 10**9:.1f} GB/s"


def _parse(text: str, pattern: re.Pattern[str], wanted: str) -> int:
    match = pattern.fullmatch(text)
    unit = _UNITS.get(match.group(2).lower()) if match else None
    if match is None or unit is None:
        message = f"`{text}` is not {wanted}"
        fix = "units: B, KiB, MiB, GiB, TiB, KB, MB, GB, TB"
        raise UserError(message, fix=fix) from None
    return round(float(match.group(1)) * unit)
