"""The grammar of `srv ... : TEXT`: prompt cache in RAM, start-up, refusals."""

# ruff: noqa: D401 - the first words say which line, event or state is meant
from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleet.diagnose.read_log.log_reading import LogReading

    Handler = Callable[[LogReading, str], str | None]

HEAD = 8
_STATE = re.compile(r"cache state: (\d+) prompts, (\d+\.?\d*) MiB \(limits: (-?\d+\.?\d*) MiB")
_LOOKUP = re.compile(r"f_keep = (-?\d+\.?\d*), (?:f_)?sim = (\d+\.?\d*)")
_SAVED = re.compile(r"length (\d+), total state size = (\d+\.?\d*) MiB")
_PROMPT = re.compile(r"prompt 0x[0-9a-f]+:.*checkpoints:\s*(\d+)")
_SLOTS = re.compile(r"n_slots = (\d+)")
_SLOT_CTX = re.compile(r"n_ctx_slot = (\d+)")
_UNIFIED = re.compile(r"kv_unified = '?(true|false)")
_LIMIT = re.compile(r"size limit: (-?\d+|no limit)")
_CHECKPOINTS = re.compile(r"max = (\d+)(?:, min spacing = (\d+))?")


def cache_state(reading: LogReading, text: str) -> None:
    """`- cache state: n prompts, x MiB (limits: ..)`."""
    found = _STATE.search(text)
    if found:
        reading.prompt_cache = {
            "prompts": int(found[1]),
            "mib": float(found[2]),
            "limit_mib": float(found[3]),
        }


def cache_limit(reading: LogReading, text: str) -> str | None:
    """`- cache size limit reached, removing oldest entry`."""
    cache_state(reading, text)
    return "cache-evicted" if "removing oldest" in text else None


def lookup(reading: LogReading, text: str) -> None:
    """`- looking for better prompt, base f_keep = .., sim = ..` and `- found better ..`."""
    found = _LOOKUP.search(text)
    if found:
        base = "base_f_keep" if "base f_keep" in text else "f_keep"
        reading.lookup = {base: float(found[1]), "sim": float(found[2])}


def diverging_lookup(reading: LogReading, text: str) -> str | None:
    """Say whether the slot and the request share little."""
    lookup(reading, text)
    keep = (reading.lookup or {}).get("base_f_keep")
    sim = (reading.lookup or {}).get("sim", 1.0)
    if keep is None or keep < 0:
        return None
    return "lookup-diverges" if sim < 0.5 and keep < 0.5 else None  # noqa: PLR2004


def saved(reading: LogReading, text: str) -> str | None:
    """`- saving prompt with length n, total state size = x MiB`."""
    found = _SAVED.search(text)
    if not found:
        return None
    reading.saved_length = int(found[1])
    reading.saved_state_mib = max(reading.saved_state_mib, float(found[2]))
    return "state-saved"


def cached_prompt(reading: LogReading, text: str) -> str | None:
    """`- prompt 0x..: n tokens, checkpoints: n, x MiB`."""
    found = _PROMPT.search(text)
    if not found:
        return None
    if int(found[1]):
        reading.cached_prompts_with_checkpoints += 1
        return None
    reading.cached_prompts_without_checkpoints += 1
    return "cached-without-checkpoints"


def slots(reading: LogReading, text: str) -> None:
    """`initializing(, slots), n_slots = ..`."""
    if found := _SLOTS.search(text):
        reading.n_slots = int(found[1])
    if found := _SLOT_CTX.search(text):
        reading.n_ctx_slot = int(found[1])
    if found := _UNIFIED.search(text):
        reading.kv_unified = found[1] == "true"
    reading.marks.add("started")


def ram_cache(_reading: LogReading, text: str) -> str | None:
    """`prompt cache is enabled, size limit: ..`."""
    found = _LIMIT.search(text)
    if found and found[1] in {"no limit", "-1"}:
        return "cache-unbounded"
    return None


def checkpoints(reading: LogReading, text: str) -> None:
    """`context checkpoints enabled, max = .., min spacing = ..`."""
    found = _CHECKPOINTS.search(text)
    if found:
        reading.checkpoints.max = int(found[1])
        reading.checkpoints.spacing = int(found[2]) if found[2] else None


def listening(reading: LogReading, _text: str) -> None:
    """The server is up."""
    reading.marks.add("started")


def idle_slots(_reading: LogReading, _text: str) -> str | None:
    """`all slots are idle` is told to the assembly by its event."""
    return "idle"


TABLE: Mapping[str, Handler] = {
    "cache st": cache_state,
    "cache si": cache_limit,
    "looking ": diverging_lookup,
    "found be": lookup,
    "saving p": saved,
    "prompt 0": cached_prompt,
    "initiali": slots,
    "prompt c": ram_cache,
    "context ": checkpoints,
    "listenin": listening,
    "model lo": listening,
    "all slot": idle_slots,
}
