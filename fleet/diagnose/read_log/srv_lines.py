"""The grammar of `srv ... : TEXT`: prompt cache in RAM, start-up, refusals."""

# ruff: noqa: D401 - the first words say which line, event or state is meant
from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.diagnose.read_log.rows import keys, row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.diagnose.read_log.log_reading import LogReading
    from fleet.diagnose.read_log.rows import Row

HEAD = 8
_STATE = r"cache state: (\d+) prompts, (\d+\.?\d*) MiB \(limits: (-?\d+\.?\d*) MiB"
_LOOKUP = r"(base )?f_keep = (-?\d+\.?\d*), (?:f_)?sim = (\d+\.?\d*)"


def _cache_state(reading: LogReading, prompts: str, mib: str, limit: str) -> None:
    """`- cache state: n prompts, x MiB (limits: ..)`."""
    reading.prompt_cache = {"prompts": int(prompts), "mib": float(mib), "limit_mib": float(limit)}


def _evicted(_reading: LogReading) -> str:
    """`- cache size limit reached, removing oldest entry`."""
    return "cache-evicted"


def _lookup(reading: LogReading, base: str, keep: str, sim: str) -> None:
    """`- looking for better prompt, base f_keep = .., sim = ..` and `- found better ..`."""
    reading.lookup = {"base_f_keep" if base else "f_keep": float(keep), "sim": float(sim)}


def _diverging_lookup(reading: LogReading, base: str, keep: str, sim: str) -> str | None:
    """Say whether the slot and the request share little."""
    _lookup(reading, base, keep, sim)
    little = float(sim) < 0.5 and 0 <= float(keep) < 0.5  # noqa: PLR2004
    return "lookup-diverges" if base and little else None


def _saved(reading: LogReading, mib: str) -> str:
    """`- saving prompt with length n, total state size = x MiB`."""
    reading.saved_state_mib = max(reading.saved_state_mib, float(mib))
    return "state-saved"


def _cached_prompt(reading: LogReading, checkpoints: str) -> str | None:
    """`- prompt 0x..: n tokens, checkpoints: n, x MiB`."""
    if int(checkpoints):
        reading.cached_prompts_with_checkpoints += 1
        return None
    return "cached-without-checkpoints"


def _slots(reading: LogReading, slots: str, context: str, unified: str) -> None:
    """`initializing(, slots), n_slots = ..`."""
    if slots:
        reading.n_slots = int(slots)
    if context:
        reading.n_ctx_slot = int(context)
    if unified:
        reading.kv_unified = unified == "true"


def _no_limit(_reading: LogReading) -> str:
    """`prompt cache is enabled, size limit: ..`."""
    return "cache-unbounded"


def _checkpoints(reading: LogReading, most: str, spacing: str) -> None:
    """`context checkpoints enabled, max = .., min spacing = ..`."""
    reading.checkpoints.max = int(most)
    reading.checkpoints.spacing = int(spacing) if spacing else None


def _started(reading: LogReading, _text: str) -> None:
    """The server is up."""
    reading.marks.add("started")


def _spans(reading: LogReading, tokens: str) -> None:
    """`message_spans: last user message: ..`."""
    reading.last["spans_tokens"] = int(tokens)


IDLE = row()
TABLE: Mapping[str, Row] = {
    "cache st": row((_STATE, _cache_state)),
    "cache si": row((r"removing oldest", _evicted), (_STATE, _cache_state)),
    "looking ": row((_LOOKUP, _diverging_lookup)),
    "found be": row((_LOOKUP, _lookup)),
    "saving p": row((r"length \d+, total state size = (\d+\.?\d*) MiB", _saved)),
    "prompt 0": row((r"prompt 0x[0-9a-f]+:.*checkpoints:\s*(\d+)", _cached_prompt)),
    "initiali": row(
        (keys("n_slots", "n_ctx_slot") + r"(?=(?:.*?kv_unified = '?(true|false))?)", _slots),
        once=_started,
    ),
    "prompt c": row((r"size limit: (?:-1\b|no limit)", _no_limit)),
    "context ": row((r"max = (\d+)(?:, min spacing = (\d+))?", _checkpoints)),
    "listenin": row(once=_started),
    "model lo": row(once=_started),
    "all slot": IDLE,
    "message_": row((r"last user message: .*text_n_tokens=(\d+)", _spans)),
}
