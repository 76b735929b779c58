"""The grammar of `slot ... | task ... | TEXT`: how a line begins, and what it fills in.

One table from the first eight characters of TEXT to patterns, and to what takes the figures
that each finds; the wordings of all builds stand beside each other (llama.cpp 2025-02 to now,
and the timing lines that older builds print without the prefix).
"""

# ruff: noqa: D401 - the first words say which line, event or state is meant
from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleet.diagnose.read_log.rows import Row, keys, row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.diagnose.read_log.log_reading import LogReading, Task

_TIMING = (
    r"(?:prompt |generation )?eval time\s*=\s*(\d+\.?\d*) ms /\s*(\d+) (?:tokens|runs)"
    r"(?:\s*\(\s*(?:\d+\.?\d*|-?inf|-?nan) ms per token,"
    r"\s*(\d+\.?\d*|-?inf|-?nan) tokens per second)?"
)
_DRAFT = (
    r"draft acceptance(?: rate)?\s*=\s*(\d+\.?\d*) \(\s*(\d+) accepted /\s*(\d+) generated\)"
    r"(?:, mean (?:acceptance )?len(?:gth)?\s*=\s*(\d+\.?\d*))?"
    r"(?:, acceptance rate per position = \(([\d., ]*)\))?"
)
_SIMILAR = (
    r"selected slot by (\w+) similarity, (?:f_)?sim\w* = (\d+\.?\d*)"
    r"(?: \(> \d+\.?\d* thold\))?(?:, f_keep = (-?\d+\.?\d*))?"
)
_PROMPT = r"n_ctx_slot = (\d+)(?:, n_keep = -?\d+)?, (?:n_prompt_tokens|task\.n_tokens) = (\d+)"
_REUSE = (
    r"(?:(?:cached )?n_(?:tokens|past) = (?=\d+, memory_seq_rm \[\d)|kv cache rm (?:- )?\[)(\d+)"
)
_PLACE = keys("pos_max", "n_tokens")
_BACK = keys("n_past", "n_tokens", "pos_max")
SLACK = 0.03  # of a time, before its count and rate are said to disagree with it
HYBRID_WINDOWS = (0, 1)  # n_swa of a memory that is recurrent, newer and older builds
# how a slot line is read: by its row alone, for the slot, with more to do
TAKEN, OF_SLOT, HEADER, UNKNOWN, LAUNCH, CHOICE, RELEASE, TIMED = range(8)


def _rate(tokens: int, ms: float, rate: str) -> float | None:
    """Return the printed rate; builds of 2023 print none, and inf or nan is none."""
    if not rate:
        return round(tokens / ms * 1000, 2) if ms else None
    return None if "n" in rate else float(rate)


def _prompt_time(reading: LogReading, task: Task, time: str, count: str, rate: str) -> None:
    """`prompt eval time`: processed tokens only, whatever the build."""
    task.pp_ms, task.processed = ms, tokens = float(time), int(count)
    task.pp_tps = tps = _rate(tokens, ms, rate)
    if tps and tokens > 1 and abs(tokens / tps * 1000 - ms) > SLACK * ms:
        _disagrees(reading, task, "prompt", ms, tokens, tps)


def _eval_time(reading: LogReading, task: Task, time: str, count: str, rate: str) -> None:
    """`eval time` and `generation eval time`."""
    task.tg_ms, task.gen = ms, tokens = float(time), int(count)
    task.tg_tps = tps = _rate(tokens, ms, rate)
    if tps and tokens > 1 and abs(tokens / tps * 1000 - ms) > SLACK * ms:
        _disagrees(reading, task, "generation", ms, tokens, tps)


def _disagrees(
    reading: LogReading, task: Task, what: str, ms: float, tokens: int, tps: float
) -> None:
    """Note a time that its own count and rate contradict; builds differ by one token."""
    one_less = abs((tokens - 1) / tps * 1000 - ms) <= SLACK * ms
    if one_less or ms < 100 or len(reading.notes) > 20:  # noqa: PLR2004
        return
    reading.notes.append(
        f"task {task.task}: the {what} time of {ms / 1000:.1f} s does not agree with its "
        f"{tokens} tokens at {tps:g} tok/s, which take {tokens / tps:.1f} s"
    )


def _draft(
    reading: LogReading, task: Task, rate: str, accepted: str, drafted: str, mean: str, places: str
) -> str:
    """`draft acceptance`, with or without mean length and positions."""
    task.draft_rate = float(rate)
    task.draft_accepted, task.draft_generated = int(accepted), int(drafted)
    if mean:
        task.mean_len = float(mean)
    if places:
        _positions(reading, task, places)
    reading.draft_accepted += task.draft_accepted
    reading.draft_generated += task.draft_generated
    return "draft"


def _positions(_reading: LogReading, task: Task, shares: str) -> None:
    """`acc per pos = (...)` on a line of its own."""
    task.acc_per_pos = tuple(map(float, re.findall(r"\d+\.?\d*", shares)))


def _by_age(reading: LogReading, task: Task, last_used: str) -> str | None:
    """The slot that was not used for longest; -1 is one never used."""
    last = int(last_used)
    task.selected_by = "LRU"
    task.fresh = last < 0
    reading.slot_select = {"by": "LRU", "t_last": last}
    return "lru-miss" if last > 0 else None


def _by_likeness(reading: LogReading, task: Task, by: str, sim: str, keep: str = "") -> None:
    """The slot whose tokens agree most with the prompt."""
    task.selected_by = by.upper()
    task.sim = float(sim)
    select: dict[str, float | int | str] = {"by": task.selected_by, "sim": task.sim}
    if keep:
        task.f_keep = float(keep)
    if task.f_keep is not None:
        select["f_keep"] = task.f_keep
    if task.lcp is not None:
        select["lcp"] = task.lcp
    if task.prompt is not None:
        select["total"] = task.prompt
    reading.slot_select = select


def _by_length(reading: LogReading, task: Task, common: str, sim: str) -> None:
    """The same in the words of early 2025."""
    task.lcp = int(common)
    _by_likeness(reading, task, "LCS", sim)


def _compared(_reading: LogReading, task: Task, common: str, prompt: str) -> None:
    """`- checking sim = x (lcp/total)`: the best one so far is the slot's."""
    if task.lcp is None or int(common) >= task.lcp:
        task.lcp, task.prompt = int(common), int(prompt)


def _new_prompt(reading: LogReading, task: Task, context: str, prompt: str) -> None:
    """`new prompt, n_ctx_slot = ..`."""
    reading.n_ctx_slot = int(context)
    task.prompt = int(prompt)


def _reuse(reading: LogReading, task: Task, position: str) -> None:
    """`memory_seq_rm` and `kv cache rm`: the first of a task is the hit."""
    mark_reuse(reading, task, int(position))


def mark_reuse(reading: LogReading, task: Task, position: int) -> None:
    """Take the first marker as the hit and every later one as progress."""
    reading.marks.add("reuse")
    if task.first_rm is None and task.launched:
        task.first_rm = position
    task.reached = max(task.reached, position)


def _prompt_done(_reading: LogReading, task: Task) -> None:
    """`prompt done`, `prompt processing done`; progress in between says nothing."""
    task.prompt_done = True


def _made(
    reading: LogReading, task: Task, number: str, most: str, last: str, tokens: str
) -> str | None:
    """`created context checkpoint k of K`, `SWA checkpoint create`."""
    points = reading.checkpoints
    points.created += 1
    points.max = int(most)
    _position(reading, task, last, tokens)
    if number == most:
        return "ring-full"
    return None


def _restored(reading: LogReading, task: Task, past: str, tokens: str, last: str) -> str:
    """`restored context checkpoint`, `SWA checkpoint restore`."""
    reading.checkpoints.restored += 1
    task.restored = int(past or tokens or 0) or (int(last) + 1 if last else 0)
    return "restored"


def _invalidated(reading: LogReading, task: Task, last: str, tokens: str, window: str) -> str:
    """`erased invalidated context checkpoint`."""
    reading.checkpoints.erased_invalidated += 1
    task.erased += 1
    at = _position(reading, task, last, tokens)
    if at is not None:
        task.erased_from = min(at, task.erased_from or at)
        task.erased_to = max(at, task.erased_to or at)
    _window(reading, task, window)
    return "erased-invalidated"


def _erased_old(reading: LogReading, _task: Task) -> None:
    """`erasing old context checkpoint`, `SWA checkpoint erase`."""
    reading.checkpoints.erased_old += 1


def _forced(reading: LogReading, task: Task) -> str:
    """`forcing full prompt re-processing`."""
    reading.checkpoints.forced_full += 1
    task.forced = True
    return "forced-full"


def _held(reading: LogReading, task: Task, common: str, held: str, window: str) -> None:
    """`n_past = .., slot.prompt.tokens.size() = ..`: in common, and what the slot held."""
    task.lcp, task.held = int(common), int(held)
    _window(reading, task, window)


def _window(reading: LogReading, task: Task, window: str) -> None:
    if not window:
        return
    task.n_swa = int(window)
    if task.n_swa in HYBRID_WINDOWS:
        reading.hybrid = True
    else:
        reading.swa = True


def _position(reading: LogReading, task: Task, last: str, tokens: str) -> int | None:
    """Return how many tokens a checkpoint of the task holds."""
    task.checkpoints += 1
    if not (tokens or last):
        return None
    at = int(tokens) if tokens else int(last) + 1
    points = reading.checkpoints
    points.oldest = at if points.oldest is None else min(points.oldest, at)
    return at


def _live_rate(_reading: LogReading, task: Task, rate: str) -> None:
    """`n_decoded = .., tg = .. t/s`, every three seconds."""
    task.tg_live = float(rate)


def _release(_reading: LogReading, task: Task, tokens: str, truncated: str) -> str | None:
    """`stop processing: n_tokens = .., truncated = ..`."""
    task.released = int(tokens)
    task.truncated = truncated == "1"
    return "truncated" if task.truncated else None


def _shift(_reading: LogReading, task: Task) -> str:
    """`slot context shift`."""
    task.shifted = True
    return "context-shift"


def _launch(_reading: LogReading, task: Task) -> None:
    """`processing task`."""
    task.launched = True


def _restore_failed(_reading: LogReading, _task: Task) -> str:
    return "restore-failed"


def _new_slot(reading: LogReading, _task: Task, context: str) -> None:
    """`new slot, n_ctx = ..` and `new slot n_ctx_slot = ..`, one line a slot."""
    reading.n_ctx_slot = int(context)


NOTHING = Row()
NOT_KNOWN = Row(how=UNKNOWN)
PROMPT_TIME = row((_TIMING, _prompt_time), how=TIMED)
EVAL_TIME = row((_TIMING, _eval_time))
DRAFT = row((_DRAFT, _draft))
_PROGRESS = row((r"prompt(?: processing)? done", _prompt_done))
_RATE = row((r"tg\s*=\s*(\d+\.?\d*) t/s", _live_rate))
_SHIFT = row(("shift", _shift))
_REUSED = row((_REUSE, _reuse))
TABLE: Mapping[str, Row] = {
    "total ti": NOTHING,
    "graphs r": NOTHING,
    "speculat": NOTHING,
    "input to": NOTHING,
    "checking": NOTHING,
    "Checking": NOTHING,
    "supersed": NOTHING,
    "need to ": NOTHING,
    "saving i": NOTHING,
    "init sam": NOTHING,
    "new slot": row((r"(\d+)", _new_slot), how=OF_SLOT),
    "prompt e": PROMPT_TIME,
    "eval tim": EVAL_TIME,
    "generati": EVAL_TIME,
    "draft ac": DRAFT,
    "acc per ": row((r"\(([\d., ]*)", _positions)),
    "selected": row(
        (r"selected slot by LRU, t_last = (-?\d+)", _by_age),
        (_SIMILAR, _by_likeness),
        (r"(?i)lc[ps]_len = (\d+), similarity = (\d+\.?\d*)", _by_length),
        how=CHOICE,
    ),
    "- checki": row((r"sim = \d+\.?\d* \((\d+)/(\d+)\)", _compared)),
    "new prom": row((_PROMPT, _new_prompt)),
    "n_tokens": _REUSED,
    "cached n": _REUSED,
    "kv cache": _REUSED,
    "prompt d": _PROGRESS,
    "prompt p": _PROGRESS,
    "created ": row((r"created context checkpoint (\d+) of (\d+)" + _PLACE, _made)),
    "restored": row(("restored" + _BACK, _restored)),
    "SWA chec": row(
        (r"SWA checkpoint [^,]*fail", _restore_failed),
        (r"SWA checkpoint create(?=.*total = (\d+)/(\d+))" + _PLACE, _made),
        ("SWA checkpoint restore" + _BACK, _restored),
        ("SWA checkpoint erase(?!.*too close)", _erased_old),
    ),
    "erased i": row(("erased invalidated" + _PLACE + keys("n_swa"), _invalidated)),
    "erasing ": row(("erasing (?!.*too close)", _erased_old)),
    "forcing ": row(("forcing", _forced)),
    "n_past =": row(
        (_REUSE, _reuse),
        (
            r"n_past = (\d+), (?:slot\.prompt\.tokens|cache_tokens)\.size\(\) = (\d+)"
            + keys("n_swa"),
            _held,
        ),
        (r"n_swa = (\d+)", _window),
    ),
    "n_gen = ": _RATE,
    "n_gen  =": _RATE,
    "n_decode": _RATE,
    "stop pro": row((r"n_(?:tokens|past) = (\d+), truncated = (\d)", _release), how=RELEASE),
    "slot con": _SHIFT,
    "context ": _SHIFT,
    "processi": row(("processing", _launch), how=LAUNCH),
}
_HEADS = ("prompt e", "eval tim", "generati", "draft ac", "acc per ", "total ti", "graphs r")
UNSTAMPED: Mapping[str, Row] = {head: TABLE[head] for head in _HEADS}
