"""An argument list taken apart into options with their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def options(argv: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each option with its value, None for a switch; plain words are left out.

    A word that starts with a dash and no digit is an option, `-1` is a value.
    """
    words = list(argv)
    while words:
        name = words.pop(0)
        if not _is_option(name):
            continue
        yield name, words.pop(0) if words and not _is_option(words[0]) else None


def _is_option(word: str) -> bool:
    return word.startswith("-") and not word[1:2].isdigit()
