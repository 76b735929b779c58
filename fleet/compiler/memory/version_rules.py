"""What changed between builds of llama.cpp that changes a plan, in one table.

Sources: the pull requests named beside each row; the numbers of builds are those of the
release that first carried them, within a day.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryRules:
    """How one build lays out memory; the defaults are those of October 2026."""

    context_padding: int = 256
    swa_padding: int = 256
    swa_tail: Literal["ubatch", "batch", "everything"] = "ubatch"
    mla_stores_v: bool = False
    split_streams: bool = True  # `-np` splits the context unless unified
    outputs: Literal["sequences", "ubatch"] = "sequences"
    mask_bytes: int = 2
    dequant_in_compute: bool = True
    mla_types_must_match: bool = True
    maps_what_it_repacks: bool = False


class RuleChange(NamedTuple):
    """Until `build` (exclusive) the older rule held."""

    build: int
    date: str
    older: dict[str, object]
    why: str


# newest first; each is undone on the way back in time
CHANGES: tuple[RuleChange, ...] = (
    RuleChange(
        11669, "2026-11-01", {"maps_what_it_repacks": True},
        "",  # one mapping spanned repacked weights too: seen in b11549, no more in b11669
    ),
    RuleChange(
        9873,
        "2026-07-01",
        {"outputs": "ubatch", "mask_bytes": 4, "dequant_in_compute": False},
        "logits of a whole ubatch, f32 masks, and the f16 copy of a quantised cache outside "
        "the compute buffer (before July 2026)",
    ),
    RuleChange(
        7824, "2026-01-24", {"mla_stores_v": True, "mla_types_must_match": False},
        "MLA kept V beside the latent (before PR #19067)",
    ),
    RuleChange(
        6200, "2025-08-20", {"swa_padding": 32},
        "sliding windows were not padded to 256 cells (b6182 and before)",
    ),
    RuleChange(
        5913, "2025-07-16", {"split_streams": False},
        "slots shared one stream (before b5913)",
    ),
    RuleChange(
        5700, "2025-06-15", {"swa_tail": "batch"},
        "sliding windows held a whole batch, not a ubatch (PR #13194)",
    ),
    RuleChange(
        5427, "2025-05-20", {"swa_tail": "everything", "context_padding": 32},
        "sliding windows kept the whole context (before PR #13194)",
    ),
)  # fmt: skip

IK_RULES = MemoryRules(
    context_padding=1, swa_padding=1, swa_tail="everything", mla_types_must_match=False,
    split_streams=False, outputs="ubatch",
)  # fmt: skip


@lru_cache(maxsize=64)
def rules_for(
    engine: str, build: int | None, date: str | None = None
) -> tuple[MemoryRules, tuple[str, ...]]:
    """Return the rules of a build, and in words how it differs from today's."""
    if engine == "ik_llama.cpp":
        return IK_RULES, ("ik_llama.cpp pads nothing and keeps sliding windows whole",)
    rules, told = MemoryRules(), []
    for change in CHANGES:
        if _before(change, build, date):
            rules = replace(rules, **change.older)  # type: ignore[arg-type]
            told += [change.why] if change.why else []
    return rules, tuple(told)


def _before(change: RuleChange, build: int | None, date: str | None) -> bool:
    if build is not None:
        return build < change.build
    return date is not None and date < change.date
