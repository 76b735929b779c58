"""Speculative decoding in llama-server's words, which changed most of all.

A draft model alone was enough until b9113; since b9246 it is loaded and not used unless
`--spec-type` says so. The types were written with `_` and without `draft-` until b9093.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.compiler.dialects.spelling import (
    Spelled,
    Value,
    Wish,
    Words,
    cannot_express,
    known_name,
    say,
    say_row,
)
from fleet.errors import CannotExpress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleet.facts.build_facts import BuildFacts

_DASHES = (9093, 9246)
_NEEDS_TYPE = (9113, 9246)

_DRAFT_KINDS = ("draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark")
_FOR_DRAFTS = (
    "draft_p_min", "draft_p_split", "draft_sampling", "draft_gpu_layers", "draft_devices",
    "draft_cache_type_k", "draft_cache_type_v", "draft_threads", "draft_threads_batch",
    "draft_cpu_moe", "draft_cpu_moe_layers",
)  # fmt: skip
_FOR_CACHES = ("lookup_cache_static", "lookup_cache_dynamic")
_NGRAM_PARTS = {"ngram_size_n": "size-n", "ngram_size_m": "size-m", "ngram_min_hits": "min-hits"}
_NGRAM_KINDS = ("ngram-simple", "ngram-map-k", "ngram-map-k4v")
_FOR_MOD = ("ngram_mod_match", "ngram_mod_min", "ngram_mod_max")
SPECULATION_SETTINGS = frozenset(
    {
        "speculation", "draft_model", "draft_max", "draft_min",
        *_FOR_DRAFTS, *_FOR_CACHES, *_NGRAM_PARTS, *_FOR_MOD,
    }
)  # fmt: skip


def kinds_of_speculation(speculation: object) -> tuple[str, ...]:
    """Return the kinds that are wanted, none for `none`."""
    words = str(speculation or "none").split(",")
    return tuple(word for word in words if word != "none")


def say_speculation(spelled: Spelled, wish: Wish, words: Words) -> None:
    """Add the words for drafts and n-grams. Raises `CannotExpress`."""
    settings, build = wish.settings, wish.build
    kinds = kinds_of_speculation(settings.get("speculation"))
    used = set(_say_kinds(spelled, wish, kinds, words)) if kinds else set()
    unused = sorted((SPECULATION_SETTINGS & settings.keys()) - used - {"speculation"})
    if unused:
        names = ", ".join(f"`{name}`" for name in unused)
        spelled.warn("unused-setting", f"{names}: without effect in this kind of speculation")
    if not kinds and "speculation" in settings and "--spec-type" in build:
        spelled.argv += ["--spec-type", "none"]


def _say_kinds(spelled: Spelled, wish: Wish, kinds: tuple[str, ...], words: Words) -> Iterable[str]:
    """Say each kind with its own settings; yield the settings that took part."""
    settings, build = wish.settings, wish.build
    _say_types(spelled, build, kinds)
    if set(kinds) & set(_DRAFT_KINDS) and "draft_model" in settings:
        spelled.argv += ["-md", str(settings["draft_model"])]
        yield "draft_model"
    used = [
        *((*_FOR_DRAFTS, "draft_max", "draft_min") if set(kinds) & set(_DRAFT_KINDS) else ()),
        *(_FOR_CACHES if "ngram-cache" in kinds else ()),
        *(_FOR_MOD if "ngram-mod" in kinds else ()),
    ]
    for name in used:
        if name in settings:
            say(spelled, build, words, name, settings[name])
            yield name
    yield from _say_ngrams(spelled, wish, kinds)


def _say_types(spelled: Spelled, build: BuildFacts, kinds: tuple[str, ...]) -> None:
    flag = build.flags.get("--spec-type")
    listed = flag.choices if flag else ()
    only_draft = kinds == ("draft-simple",)
    if not listed and only_draft and build.changed(*_NEEDS_TYPE) is False:
        return  # the draft model alone is enough
    if flag is None:
        raise cannot_express(build, "speculation", ("--spec-type",))
    words = [_type_word(build, kind, listed) for kind in kinds]
    spelled.argv += ["--spec-type", ",".join(words)]


def _type_word(build: BuildFacts, kind: str, listed: tuple[str, ...]) -> str:
    """Return the kind as the build writes it, from its help if that lists the kinds."""
    old = {"draft-simple": "draft", "draft-eagle3": "eagle3"}.get(kind, kind.replace("-", "_"))
    if listed:
        for word in (kind, old, old.replace("_", "-")):
            if word in listed:
                return word
        message = f"{build.engine} {build.name} knows only {', '.join(listed)}"
        raise CannotExpress(message, where="speculation", fix="use one of these")
    dashes = build.changed(*_DASHES)
    if dashes is None:
        message = f"{build.engine} {build.name}: how `--spec-type` writes `{kind}` changed here"
        fix = "use another build, or give its own help with `--help-file`"
        raise CannotExpress(message, where="speculation", fix=fix)
    _check_kind_exists(build, kind)
    return kind if dashes else old


# the first builds whose own help or options were seen to have the kind
_FIRST = {"draft-mtp": 10434, "draft-dflash": 10434, "draft-dspark": 10434, "ngram-mod": 9093}


def _check_kind_exists(build: BuildFacts, kind: str) -> None:
    first = _FIRST.get(kind)
    if first is not None and build.order < first:
        message = f"{build.engine} {build.name} does not surely know `{kind}`"
        raise CannotExpress(message, where="speculation", fix=f"use b{first} or later")


def _say_ngrams(spelled: Spelled, wish: Wish, kinds: tuple[str, ...]) -> Iterable[str]:
    settings, build = wish.settings, wish.build
    for kind in _NGRAM_KINDS:
        if kind not in kinds:
            continue
        for name, part in _NGRAM_PARTS.items():
            if name in settings:
                names = (f"--spec-{kind}-{part}", f"--spec-ngram-{part}")
                # the older option serves all kinds at once
                if known_name(build, names) not in spelled.argv:
                    say_row(spelled, build, name, Value(names), settings[name])
                yield name
