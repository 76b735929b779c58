"""What one task says about prefix and cache; tallied while the log is read.

Shares are of the prompt (`reused`), or of what the slot held before (`kept`). A prompt that
only grew keeps everything, however small its reused share is.
"""

# ruff: noqa: D401 - the first words say which line, event or state is meant
from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet.diagnose.finding import Hit

if TYPE_CHECKING:
    from fleet.diagnose.read_log.log_reading import Task

HALF = 0.5
STABLE = 0.9
LITTLE = 0.1
KEPT = 0.95  # the last token or two of a slot are always read again
KEPT_ALL = 0.99
FEW_TOKENS = 32  # a template's header, no conversation
DEFAULT_SPACING = 8192  # tokens, `-cms`
SLOW_PP_BATCH = 512
TAIL = 0.1  # the share of a prompt that is its tail
SLOW_PP = 100.0
TIMES_PERFECT = 1


@dataclass(slots=True)
class TaskTally:
    """Hits by code, and the figures that need all tasks."""

    hits: dict[str, Hit] = field(default_factory=dict)
    known: int = 0
    stable: int = 0
    cached_tasks: int = 0
    released: int = 0
    without_reuse_line: int = 0
    timed: int = 0
    shortest: int | None = None
    longest: int = 0
    generated: set[int] = field(default_factory=set)
    largest: int = 0
    spec_tg: list[float] = field(default_factory=lambda: [0.0, 0.0])  # tokens, seconds
    plain_tg: list[float] = field(default_factory=lambda: [0.0, 0.0])
    before: Task | None = None
    perfect: int = 0
    at_tail: int = 0  # checkpoints thrown away that all lay near the end of their prompt

    def add(self, task: Task) -> None:
        """Judge one finished task."""
        prompt, cached, lcp = task.prompt, task.cached, task.lcp
        ms = task.pp_ms / task.processed if task.pp_ms and task.processed else 0.0
        reused = cached / prompt if prompt and cached is not None else None
        similar = lcp / prompt if prompt and lcp is not None else task.sim
        kept = _kept(task)
        self._count(task)
        self._reuse(task, reused, ms)
        if kept is None or kept < KEPT_ALL or task.mismatch:
            self._diverges(task, similar, reused, kept, ms)
        if task.selected_by == "timings":
            self._sequence(task)
        if task.forced:
            self._forced(task, ms)
        if task.erased:
            self._erased(task, ms)
        if task.first_rm == 0 and _nothing_kept(task, similar):
            self.hit("CACHE_OFF_SERVER", task, _again(task, ms))
        if task.not_cached_on_release:
            self.hit("CACHE_OFF_REQUEST", task, (task.pp_ms or 0) / 1000)
        if task.lost_s:
            self.hit("TG_HIT_BY_CONCURRENCY", task, task.lost_s)
        if task.pp_tps and task.pp_tps < SLOW_PP and (task.processed or 0) >= SLOW_PP_BATCH:
            self.hit("SLOW_PP", task, (task.pp_ms or 0) / 1000)

    def _diverges(
        self,
        task: Task,
        similar: float | None,
        reused: float | None,
        kept: float | None,
        ms: float,
    ) -> None:
        """Judge a prompt that does not begin with all that the slot held."""
        if _early(task, similar, reused, kept):
            self.hit("PREFIX_DIVERGES_EARLY", task, _again(task, ms))
        elif _late(task, similar, kept):
            self.hit("PREFIX_DIVERGES_LATE", task, _again(task, ms))
        elif task.mismatch:
            late = reused is not None and reused >= HALF
            self.hit(f"PREFIX_DIVERGES_{'LATE' if late else 'EARLY'}", task, _again(task, ms))
        if _other_conversation(task, kept):
            self.hit("DIFFERENT_CONVERSATION", task)
        if _taken_over(task):
            self.hit("SLOT_SIM_THRESHOLD_TOO_LOW", task)

    def hit(self, code: str, task: Task, cost_s: float | None = None) -> None:
        """Count a task under a code."""
        if code not in self.hits:
            self.hits[code] = Hit()
        self.hits[code].add(task.line, task.text, cost_s)

    def _count(self, task: Task) -> None:
        released, prompt, gen = task.released, task.prompt, task.gen
        if task.cached:
            self.cached_tasks += 1
        if released is not None:
            self.released += 1
            self.largest = max(self.largest, released)
            if task.selected_by and task.first_rm is None:
                self.without_reuse_line += 1
        if prompt and task.pp_tps:
            self.timed += 1
            self.longest = max(self.longest, prompt)
            if self.shortest is None or prompt < self.shortest:
                self.shortest = prompt
            if len(self.generated) < 64:  # noqa: PLR2004 - enough to see that they differ
                self.generated.add(gen or 0)
        if gen and task.tg_ms:
            rates = self.spec_tg if task.draft_generated else self.plain_tg
            rates[0] += gen
            rates[1] += task.tg_ms / 1000

    def _reuse(self, task: Task, reused: float | None, ms: float) -> None:
        cold = task.fresh or task.held == 0 or (task.task == 0 and task.held is None)
        if cold and not task.cached:
            if task.cached == 0:
                self.hit("COLD_START", task)
            return
        if reused is None and task.lcp and task.held and task.cached:
            reused = task.cached / task.held
        if reused is None:
            reused = task.sim if task.cached and (task.f_keep or 0) >= STABLE else None
        if reused is None:
            return
        self.known += 1
        if reused >= STABLE:
            self.stable += 1
            self.hit("PREFIX_STABLE", task)
        elif reused >= LITTLE:
            self.hit("PARTIAL_REUSE", task, None if _had(task) is None else _again(task, ms))

    def _forced(self, task: Task, ms: float) -> None:
        self.hit("FULL_REPROCESS_SWA_HYBRID", task, _again(task, ms))
        if (task.lcp or 0) <= FEW_TOKENS:
            return
        self.hit("CHECKPOINT_NONE_USABLE", task, _again(task, ms))
        if not task.checkpoints and (task.prompt or task.held or 0) < DEFAULT_SPACING:
            self.hit("CHECKPOINT_INTERVAL_GT_PREFIX", task, _again(task, ms))

    def _erased(self, task: Task, ms: float) -> None:
        """Checkpoints were thrown away: a loss where tokens in common were read again."""
        had, cached = _had(task), task.cached or 0
        some = max(FEW_TOKENS, (1 - KEPT) * (had or 0))
        if not task.forced and (cached if had is None else had - cached <= some):
            return
        self.hit("CHECKPOINTS_INVALIDATED", task, _again(task, ms))
        low, high = task.erased_from, task.erased_to
        if low is None or high is None or low < (1 - TAIL) * high:
            return
        self.at_tail += task.erased
        self.hit("CHECKPOINTS_CLUSTERED_AT_TAIL", task, _again(task, ms))
        hit = self.hits["CHECKPOINTS_CLUSTERED_AT_TAIL"]
        hit.detail = hit.detail or f"all between token {low} and {high}"

    def _sequence(self, task: Task) -> None:
        """Look at answers in a row: all reused, all reused, then nothing although it grew."""
        before, self.before = self.before, task
        if before is None or None in (before.prompt, before.gen, task.cached, task.prompt):
            return
        whole = (before.prompt or 0) + (before.gen or 0) - 1
        cached = task.cached or 0
        if abs(cached - whole) <= 2:  # noqa: PLR2004 - a token at the boundary
            self.perfect += 1
        elif self.perfect >= TIMES_PERFECT and (task.prompt or 0) > (before.prompt or 0):
            ms = task.pp_ms / task.processed if task.pp_ms and task.processed else 0.0
            if cached < STABLE * whole:
                self.hit("THINK_STRIPPED", task, (whole - cached) * ms / 1000)
            if cached == 0:
                self.hit("FULL_REPROCESS_SWA_HYBRID", task, whole * ms / 1000)


def _kept(task: Task) -> float | None:
    """What share of the slot's tokens the new prompt begins with."""
    if task.f_keep is not None and task.f_keep >= 0:
        return task.f_keep
    if task.lcp is not None and task.held:
        return min(1.0, task.lcp / task.held)
    if task.cached and task.held and not task.restored:
        return min(1.0, task.cached / task.held)
    return None


def _early(  # noqa: PLR0911 - one a kind of evidence
    task: Task, similar: float | None, reused: float | None, kept: float | None
) -> bool:
    if task.held == 0 or (kept is not None and kept >= KEPT):
        return False
    if task.lcp is not None and similar is not None:
        return similar < HALF
    if similar is not None:
        return similar < HALF and not _taken_over(task)
    if task.lcp is not None and kept is not None:
        return kept < HALF
    if not task.cached:
        return False
    if kept is not None and reused is not None:
        return reused < HALF
    return task.cached < LITTLE * max(task.prompt or 0, task.reached)


def _late(task: Task, similar: float | None, kept: float | None) -> bool:
    if similar is None and task.lcp is not None:
        similar = kept  # ik_llama.cpp tells what it held, not how long the prompt is
    return similar is not None and similar >= HALF and kept is not None and kept < KEPT_ALL


def _other_conversation(task: Task, kept: float | None) -> bool:
    if task.lcp is not None and kept is not None:
        return 0 < task.lcp <= FEW_TOKENS and kept < HALF
    return _taken_over(task)


def _taken_over(task: Task) -> bool:
    """A slot taken by similarity although nearly all it holds is lost."""
    by = task.selected_by in {"LCP", "LCS"}
    return by and task.f_keep is not None and task.f_keep < LITTLE and (task.sim or 1.0) <= HALF


def _nothing_kept(task: Task, similar: float | None) -> bool:
    return (
        not task.forced
        and task.restored is None
        and similar is not None
        and similar >= HALF
        and (task.f_keep is None or task.f_keep >= HALF)
    )


def _had(task: Task) -> int | None:
    """Return how many tokens the prompt has in common with what the slot held."""
    if task.lcp is not None:
        return task.lcp
    return round(task.sim * task.prompt) if task.sim is not None and task.prompt else None


def _again(task: Task, ms: float) -> float | None:
    """Seconds for reading again what the slot held already."""
    if not ms or task.prompt is None:
        return None
    had = _had(task)
    if had is None:
        had = min(task.held or task.prompt, task.prompt)
    return max(0.0, min(had, task.prompt) - (task.cached or 0)) * ms / 1000
