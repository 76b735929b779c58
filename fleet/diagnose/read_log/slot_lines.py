"""The grammar of `slot ... | task ... | TEXT`: how a line begins, and what it fills in.

One table from the first eight characters of TEXT to the function that reads the rest; the
wordings of all builds stand beside each other (llama.cpp 2025-02 to now, and the timing
lines that older builds print without the prefix).
"""

# ruff: noqa: D401 - the first words say which line, event or state is meant
from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleet.diagnose.read_log.log_reading import LogReading, Task

    Handler = Callable[[LogReading, Task, str], str | None]

_TIMING = re.compile(
    r"(?:prompt |generation )?eval time\s*=\s*(\d+\.?\d*) ms /\s*(\d+) (?:tokens|runs)"
    r"(?:\s*\(\s*(?:\d+\.?\d*|-?inf|-?nan) ms per token,"
    r"\s*(\d+\.?\d*|-?inf|-?nan) tokens per second)?"
)
_DRAFT = re.compile(
    r"draft acceptance(?: rate)?\s*=\s*(\d+\.?\d*) \(\s*(\d+) accepted /\s*(\d+) generated\)"
    r"(?:, mean (?:acceptance )?len(?:gth)?\s*=\s*(\d+\.?\d*))?"
    r"(?:, acceptance rate per position = \(([\d., ]*)\))?"
)
_NUMBER = re.compile(r"\d+")
_SIMILAR = re.compile(
    r"selected slot by (\w+) similarity, (?:f_)?sim\w* = (\d+\.?\d*)"
    r"(?: \(> \d+\.?\d* thold\))?(?:, f_keep = (-?\d+\.?\d*))?"
)
_LCS = re.compile(r"lc[ps]_len = (\d+), similarity = (\d+\.?\d*)", re.IGNORECASE)
_LRU = re.compile(r"selected slot by LRU, t_last = (-?\d+)")
_CHECKING = re.compile(r"sim = (\d+\.?\d*) \((\d+)/(\d+)\)")
_PROMPT = re.compile(
    r"n_ctx_slot = (\d+)(?:, n_keep = -?\d+)?, (?:n_prompt_tokens|task\.n_tokens) = (\d+)"
)
_REUSE = re.compile(r"(?:cached )?n_(?:tokens|past) = (\d+), memory_seq_rm \[(\d+)")
_KV_RM = re.compile(r"kv cache rm (?:- )?\[(\d+)")
_MADE = re.compile(r"created context checkpoint (\d+) of (\d+)")
_KEY = re.compile(r"(pos_min|pos_max|n_tokens|n_past|n_swa|pos_next|total) = (-?\d+)")
_OLD_MADE = re.compile(r"total = (\d+)/(\d+)")
_HELD = re.compile(r"n_past = (\d+), (?:slot\.prompt\.tokens|cache_tokens)\.size\(\) = (\d+)")
_SWA = re.compile(r"n_swa = (\d+)")
_TG_LIVE = re.compile(r"tg\s*=\s*(\d+\.?\d*) t/s")
_RELEASE = re.compile(r"n_(?:tokens|past) = (\d+), truncated = (\d)")
_POSITIONS = re.compile(r"\d+\.?\d*")
SLACK = 0.03  # of a time, before its count and rate are said to disagree with it
HYBRID_WINDOWS = (0, 1)  # n_swa of a memory that is recurrent, newer and older builds


def _rate(found: re.Match[str]) -> float | None:
    """Return the printed rate; builds of 2023 print none, and inf or nan is none."""
    if found[3] is None:
        return round(int(found[2]) / float(found[1]) * 1000, 2) if float(found[1]) else None
    return None if "n" in found[3] else float(found[3])


def prompt_timing(reading: LogReading, task: Task, text: str) -> None:
    """`prompt eval time`: processed tokens only, whatever the build."""
    found = _TIMING.match(text)
    if found:
        task.pp_ms, task.processed = ms, tokens = float(found[1]), int(found[2])
        task.pp_tps = tps = _rate(found)
        if tps and tokens > 1 and abs(tokens / tps * 1000 - ms) > SLACK * ms:
            _disagrees(reading, task, "prompt", ms, tokens, tps)


def eval_timing(reading: LogReading, task: Task, text: str) -> None:
    """`eval time` and `generation eval time`."""
    found = _TIMING.match(text)
    if found:
        task.tg_ms, task.gen = ms, tokens = float(found[1]), int(found[2])
        task.tg_tps = tps = _rate(found)
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


def draft(reading: LogReading, task: Task, text: str) -> str | None:
    """`draft acceptance`, with or without mean length and positions."""
    found = _DRAFT.search(text)
    if not found:
        return None
    task.draft_rate = float(found[1])
    task.draft_accepted, task.draft_generated = int(found[2]), int(found[3])
    if found[4]:
        task.mean_len = float(found[4])
    if found[5]:
        task.acc_per_pos = tuple(float(part) for part in _POSITIONS.findall(found[5]))
    reading.draft_accepted += task.draft_accepted
    reading.draft_generated += task.draft_generated
    return "draft"


def positions(_reading: LogReading, task: Task, text: str) -> None:
    """`acc per pos = (...)` on a line of its own."""
    task.acc_per_pos = tuple(float(part) for part in _POSITIONS.findall(text.partition("(")[2]))


def selected(reading: LogReading, task: Task, text: str) -> str | None:
    """How the server chose the slot."""
    if found := _LRU.match(text):
        last = int(found[1])
        task.selected_by = "LRU"
        task.fresh = last < 0
        reading.slot_select = {"by": "LRU", "t_last": last}
        return "lru-miss" if last > 0 else None
    found = _SIMILAR.match(text)
    lcs = None if found else _LCS.search(text)
    if not found and not lcs:
        return None
    by = found[1].upper() if found else "LCS"
    task.selected_by = by
    task.sim = float(lcs[2] if lcs else found[2] if found else 0)
    if lcs:
        task.lcp = int(lcs[1])
    if found and found[3]:
        task.f_keep = float(found[3])
    select: dict[str, float | int | str] = {"by": by, "sim": task.sim}
    if task.f_keep is not None:
        select["f_keep"] = task.f_keep
    if task.lcp is not None:
        select["lcp"] = task.lcp
    if task.prompt is not None:
        select["total"] = task.prompt
    reading.slot_select = select
    return None


def compared(_reading: LogReading, task: Task, text: str) -> None:
    """`- checking sim = x (lcp/total)`: the best one so far is the slot's."""
    found = _CHECKING.search(text)
    if found and (task.lcp is None or int(found[2]) >= task.lcp):
        task.lcp, task.prompt = int(found[2]), int(found[3])


def new_prompt(reading: LogReading, task: Task, text: str) -> None:
    """`new prompt, n_ctx_slot = ..`."""
    found = _PROMPT.search(text, 10)
    if found:
        reading.n_ctx_slot = int(found[1])
        task.prompt = int(found[2])


def reuse(reading: LogReading, task: Task, text: str) -> None:
    """`memory_seq_rm` and `kv cache rm`: the first of a task is the hit."""
    found = _REUSE.search(text) or _KV_RM.search(text)
    if found:
        mark_reuse(reading, task, int(found[1]))


def mark_reuse(reading: LogReading, task: Task, position: int) -> None:
    """Take the first marker as the hit and every later one as progress."""
    reading.marks.add("reuse")
    if task.first_rm is None and task.launched:
        task.first_rm = position
    task.reached = max(task.reached, position)


def prompt_done(_reading: LogReading, task: Task, text: str) -> None:
    """`prompt done`, `prompt processing done`, and progress in between."""
    task.prompt_done = task.prompt_done or " done" in text[:24]


def made(reading: LogReading, task: Task, text: str) -> str | None:
    """`created context checkpoint k of K`, `SWA checkpoint create`."""
    found = _MADE.search(text) or _OLD_MADE.search(text)
    if not found:
        return None
    points = reading.checkpoints
    points.created += 1
    points.max = int(found[2])
    task.checkpoints_made += 1
    _keep_position(reading, task, text)
    if found[1] == found[2]:
        points.filled = True
        return "ring-full"
    return None


def restored(reading: LogReading, task: Task, text: str) -> str:
    """`restored context checkpoint`, `SWA checkpoint restore`."""
    reading.checkpoints.restored += 1
    keys = dict(_KEY.findall(text))
    position = keys.get("n_past") or keys.get("n_tokens")
    if position is None and "pos_max" in keys:
        position = str(int(keys["pos_max"]) + 1)
    task.restored = int(position) if position else 0
    return "restored"


def erased(reading: LogReading, task: Task, text: str) -> str | None:
    """`erased invalidated`, `erasing old`, `SWA checkpoint erase`."""
    points = reading.checkpoints
    if "invalidated" in text:
        points.erased_invalidated += 1
        _keep_position(reading, task, text)
        _window(reading, task, text)
        return "erased-invalidated"
    if "too close" not in text:
        points.erased_old += 1
    return None


def forced(reading: LogReading, task: Task, _text: str) -> str:
    """`forcing full prompt re-processing`."""
    reading.checkpoints.forced_full += 1
    task.forced = True
    return "forced-full"


def held(reading: LogReading, task: Task, text: str) -> None:
    """`n_past = .., slot.prompt.tokens.size() = ..`: in common, and what the slot held."""
    if "memory_seq_rm" in text:
        return reuse(reading, task, text)
    found = _HELD.search(text)
    if found:
        task.lcp, task.held = int(found[1]), int(found[2])
    return _window(reading, task, text)


def _window(reading: LogReading, task: Task, text: str) -> None:
    found = _SWA.search(text)
    if found:
        task.n_swa = int(found[1])
        if task.n_swa in HYBRID_WINDOWS:
            reading.hybrid = True
        else:
            reading.swa = True


def _keep_position(reading: LogReading, task: Task, text: str) -> None:
    keys = dict(_KEY.findall(text))
    if "n_tokens" in keys:
        at = int(keys["n_tokens"])
    elif "pos_max" in keys:
        at = int(keys["pos_max"]) + 1
    else:
        return
    points = reading.checkpoints
    points.oldest = at if points.oldest is None else min(points.oldest, at)
    points.newest = at if points.newest is None else max(points.newest, at)
    task.oldest_checkpoint = min(at, task.oldest_checkpoint or at)
    task.newest_checkpoint = max(at, task.newest_checkpoint or at)


def live_rate(_reading: LogReading, task: Task, text: str) -> None:
    """`n_decoded = .., tg = .. t/s`, every three seconds."""
    found = _TG_LIVE.search(text)
    if found:
        task.tg_live = float(found[1])


def release(_reading: LogReading, task: Task, text: str) -> str | None:
    """`stop processing: n_tokens = .., truncated = ..`."""
    found = _RELEASE.search(text)
    if not found:
        return None
    task.released = int(found[1])
    task.truncated = found[2] == "1"
    return "truncated" if task.truncated else None


def shift(_reading: LogReading, task: Task, text: str) -> str | None:
    """`slot context shift`."""
    if "shift" not in text:
        return None
    task.shifted = True
    return "context-shift"


def launch(_reading: LogReading, task: Task, _text: str) -> None:
    """`processing task`."""
    task.launched = True


def window_checkpoint(reading: LogReading, task: Task, text: str) -> str | None:
    """`SWA checkpoint create|restore|erase`, the words of September 2025."""
    words = {"create": made, "restore": restored, "erase": erased}
    word = text[len("SWA checkpoint ") :].partition(",")[0]
    if "fail" in word:
        return "restore-failed"
    return words[word](reading, task, text) if word in words else None


def new_slot(reading: LogReading, _task: Task, text: str) -> None:
    """`new slot, n_ctx = ..` and `new slot n_ctx_slot = ..`, one line a slot."""
    if found := _NUMBER.search(text):
        reading.n_ctx_slot = int(found[0])


def unknown(_reading: LogReading, _task: Task, _text: str) -> None:
    """Stand for what no row below takes."""


def nothing(_reading: LogReading, _task: Task, _text: str) -> None:
    """Read nothing from a line that is known and says nothing new."""


TABLE: Mapping[str, Handler] = {
    "total ti": nothing,
    "graphs r": nothing,
    "new slot": new_slot,
    "speculat": nothing,
    "input to": nothing,
    "checking": nothing,
    "Checking": nothing,
    "supersed": nothing,
    "need to ": nothing,
    "saving i": nothing,
    "init sam": nothing,
    "prompt e": prompt_timing,
    "eval tim": eval_timing,
    "generati": eval_timing,
    "draft ac": draft,
    "acc per ": positions,
    "selected": selected,
    "- checki": compared,
    "new prom": new_prompt,
    "n_tokens": reuse,
    "cached n": reuse,
    "kv cache": reuse,
    "prompt d": prompt_done,
    "prompt p": prompt_done,
    "created ": made,
    "restored": restored,
    "SWA chec": window_checkpoint,
    "erased i": erased,
    "erasing ": erased,
    "forcing ": forced,
    "n_past =": held,
    "n_gen = ": live_rate,
    "n_gen  =": live_rate,
    "n_decode": live_rate,
    "stop pro": release,
    "slot con": shift,
    "context ": shift,
    "processi": launch,
}
_HEADS = ("prompt e", "eval tim", "generati", "draft ac", "acc per ", "total ti", "graphs r")
UNSTAMPED: Mapping[str, Handler] = {head: TABLE[head] for head in _HEADS}
