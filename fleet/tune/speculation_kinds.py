"""Speculation as one parameter: what drafts and how long drafts are stand in one value.

`draft-simple max=8 p_min=0.5` is a value of the search's parameter `speculation`; a profile
and a launch get the settings it stands for. Lengths mean nothing without the kind.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.facts.build_facts import BuildFacts
    from fleet.tune.search_space import Settings, Value

PARAMETER = "speculation"
_WORDS: Mapping[str, str] = {
    "max": "draft_max", "p_min": "draft_p_min", "n": "ngram_size_n", "m": "ngram_size_m",
    "longest": "ngram_mod_max",
}  # fmt: skip
_NGRAMS: Mapping[str, tuple[str, ...]] = {
    "ngram-simple": ("", "m=16"),
    "ngram-map-k": ("", "m=16"),
    "ngram-mod": ("", "longest=16"),
}
DRAFT_LENGTHS, DRAFT_P_MIN = (2, 4, 8, 16), (0.0, 0.5, 0.75)


def speculation_values(build: BuildFacts, *, draft: bool, mtp: bool) -> list[Value]:
    """Return off, and the kinds that the build knows, each with some lengths."""
    flag = build.flags.get("--spec-type")
    if flag is None or flag.removed:
        return ["none"]
    known = [*_NGRAMS, "draft-simple", "draft-mtp"]
    kinds = [kind for kind in known if not flag.choices or kind in flag.choices]
    values: list[Value] = ["none"]
    for kind in kinds:
        if kind in _NGRAMS:
            values += [f"{kind} {words}".strip() for words in _NGRAMS[kind]]
        elif (kind == "draft-simple" and draft) or (kind == "draft-mtp" and mtp):
            values += [
                f"{kind} max={length} p_min={least}"
                for length, least in product(DRAFT_LENGTHS, DRAFT_P_MIN)
            ]
    return values


def one_value(settings: Mapping[str, Value]) -> Value:
    """Return the parameter's value that stands for the settings of a launch."""
    kind = settings.get(PARAMETER) or "none"
    if kind == "none":
        return "none"
    words = (
        f"{word}={settings[name]}"
        for word, name in _WORDS.items()
        if settings.get(name) is not None
    )
    return " ".join([str(kind), *words])


def governed() -> frozenset[str]:
    """Return the settings that the parameter stands for."""
    return frozenset({PARAMETER, *_WORDS.values()})


def spelled_out(settings: Mapping[str, Value]) -> Settings:
    """Return settings as a profile has them: `speculation` with its lengths apart."""
    found = dict(settings)
    kind, *words = str(found.get(PARAMETER) or "").split()[:9] or [""]
    if not kind:
        return found
    return {**found, PARAMETER: kind, **dict(map(_setting, words))}


def _setting(word: str) -> tuple[str, Value]:
    name, _, number = word.partition("=")
    value = float(number) if "." in number else int(number)
    return _WORDS[name], value


def kinds_in(values: Sequence[Value]) -> tuple[str, ...]:
    """Return the kinds among a parameter's values, each once."""
    return tuple(dict.fromkeys(str(value).split()[0] for value in values))
