"""The context that a slot will really have, from what is asked for.

llama.cpp pads the context of a sequence to 256 cells (`src/llama-context.cpp`), divides the
whole among slots unless the KV cache is one pool, and caps it at what the model was trained
with. That cap follows YaRN's scale since b10809 and not until b10434, asked of the engines.
vLLM takes the number as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleet.compiler.dialects.spelling import Settings
    from fleet.facts.build_facts import BuildFacts

_PAD = 256
_CAP_FOLLOWS_YARN = (10434, 10809)
_STRETCHES = ("rope_scaling", "rope_scale", "rope_freq_scale", "rope_freq_base", "yarn_orig_ctx")


def planned_slot_context(settings: Settings) -> int | None:
    """Return the tokens that one slot may hold, None when no context is asked for."""
    if "ctx_size" not in settings:
        return None
    whole, slots = int(settings["ctx_size"]), int(settings.get("parallel", 1))
    unified = bool(settings.get("kv_unified", False))
    return padded(whole) if unified else padded(padded(whole) // slots)


def longest_context(settings: Settings, trained: int | None, build: BuildFacts) -> int | None:
    """Return the most tokens that this build lets a slot have, None for no bound."""
    if trained is None:
        return None
    if build.engine not in {"llama.cpp", "embedded"}:
        return None if any(name in settings for name in _STRETCHES) else trained
    scale = _scale(settings)
    if settings.get("rope_scaling") != "yarn" or scale == 1:
        return trained
    if build.changed(*_CAP_FOLLOWS_YARN) is not True:
        return trained
    return int(int(settings.get("yarn_orig_ctx", 0) or trained) * scale)


def padded(tokens: int) -> int:
    """Return `tokens` rounded up to whole cells."""
    return -(-tokens // _PAD) * _PAD


def _scale(settings: Settings) -> float:
    """Return how far positions are stretched; the last of the two options wins."""
    if settings.get("rope_freq_scale"):
        return 1 / float(settings["rope_freq_scale"])
    return float(settings.get("rope_scale", 1))
