"""What a program said, what that means, and what mends it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Cause(NamedTuple):
    """A regular expression for what was said, in any case, its meaning and the cure."""

    said: str
    message: str
    fix: str


def cause_of(said: str, causes: Iterable[Cause]) -> Cause | None:
    """Return the first of `causes` that was said."""
    return next((it for it in causes if re.search(it.said, said, re.IGNORECASE)), None)
