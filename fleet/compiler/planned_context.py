"""The context that a slot will really have, from what is asked for.

llama.cpp pads the context of a sequence to 256 cells (`src/llama-context.cpp`), divides the
whole among slots unless the KV cache is one pool, and caps it at what the model was trained
with. vLLM takes the number as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleet.compiler.dialects.spelling import Settings

_PAD = 256


def planned_slot_context(settings: Settings, trained: int | None = None) -> int | None:
    """Return the tokens that one slot may hold, None when no context is asked for."""
    if "ctx_size" not in settings:
        return None
    whole, slots = int(settings["ctx_size"]), int(settings.get("parallel", 1))
    unified = bool(settings.get("kv_unified", False))
    slot = _padded(whole) if unified else _padded(_padded(whole) // slots)
    return min(slot, trained) if trained else slot


def _padded(tokens: int) -> int:
    return -(-tokens // _PAD) * _PAD
