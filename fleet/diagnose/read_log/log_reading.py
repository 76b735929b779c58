"""What a log says: tasks, counters, memory, errors; filled line by line, read afterwards.

Tokens are counts, rates tokens a second, sizes MiB. A figure that the log does not print
and that cannot be derived is None.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

EVIDENCE = 5
KEPT_ENDS = 1_000
KEPT_WHOLE = 10_000
SHOWN = 300  # characters of a line kept as evidence


@dataclass(frozen=True, slots=True)
class Evidence:
    """A line of the log, numbered from 1."""

    line: int
    text: str


@dataclass(slots=True)
class Event:
    """How often something was said, and the first lines that said it."""

    count: int = 0
    evidence: list[Evidence] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Task:
    """One request as the log tells it.

    `processed` are the prompt tokens really computed, `cached` those reused, `lcp` those in
    common with what the slot held (`held` tokens). `first_rm` is the first cache marker of
    the task, the only one that is a hit; later ones are batch progress.
    """

    task: int | None = None
    slot: int | None = None
    line: int = 0
    text: str = ""
    launched: bool = False
    selected_by: str | None = None
    sim: float | None = None
    f_keep: float | None = None
    prompt: int | None = None
    processed: int | None = None
    cached: int | None = None
    gen: int | None = None
    pp_ms: float | None = None
    pp_tps: float | None = None
    tg_ms: float | None = None
    tg_tps: float | None = None
    tg_live: float | None = None
    draft_rate: float | None = None
    draft_accepted: int | None = None
    draft_generated: int | None = None
    mean_len: float | None = None
    acc_per_pos: tuple[float, ...] | None = None
    lcp: int | None = None
    held: int | None = None
    first_rm: int | None = None
    reached: int = 0
    prompt_done: bool = False
    restored: int | None = None
    forced: bool = False
    n_swa: int | None = None
    released: int | None = None
    truncated: bool = False
    shifted: bool = False
    not_cached_on_release: bool = False
    checkpoints: int = 0  # made and erased
    erased: int = 0  # those that its prompt made useless, and where they lay
    erased_from: int | None = None
    erased_to: int | None = None
    mismatch: bool = False
    lost_s: float = 0.0  # generation seconds lost to tasks that ran beside it
    fresh: bool = False  # the slot was empty
    start: int = 0
    peers: tuple[Task, ...] = ()


@dataclass(slots=True)
class Checkpoints:
    """Counts of what happened to context checkpoints over the whole log."""

    created: int = 0
    restored: int = 0
    erased_invalidated: int = 0
    erased_old: int = 0
    forced_full: int = 0
    max: int | None = None
    spacing: int | None = None
    oldest: int | None = None


@dataclass(slots=True)
class Kv:
    """One context's key-value cache as its lines add up (iSWA prints two)."""

    mib: float = 0.0
    k: str | None = None
    v: str | None = None
    k_mib: float = 0.0
    v_mib: float = 0.0
    mla: bool = False
    cells: int = 0
    loads: int = 0  # models loaded when it was made
    buffers: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Vllm:
    """vLLM's own figures, the last ones printed; rates are fractions of 1."""

    prefix_hit_rate: float | None = None
    kv_usage: float | None = None
    running: int | None = None
    waiting: int | None = None
    preemptions: int | None = None
    attention_block_size: int | None = None
    pp_tps: float | None = None
    tg_tps: float | None = None
    draft_acceptance: float | None = None
    draft_accepted: int | None = None
    draft_generated: int | None = None
    mean_len: float | None = None
    kv_available_gib: float | None = None
    kv_needed_gib: float | None = None
    max_model_len: int | None = None
    suggested_max_model_len: int | None = None
    prefix_queries: int | None = None
    prefix_hits: int | None = None
    intervals: deque[dict[str, float]] = field(default_factory=lambda: deque(maxlen=KEPT_ENDS))
    peak_kv_usage: float = 0.0
    lowest_acceptance: float | None = None
    seen: bool = False


@dataclass(slots=True)
class Oom:
    """The last allocation that failed: MiB, device number, what it was for."""

    mib: float | None = None
    device: int | None = None
    stage: str | None = None
    retried: bool = False


@dataclass(slots=True)
class Crash:
    """Where the engine died."""

    file: str | None = None
    line: int | None = None
    error: str | None = None


@dataclass(slots=True)
class LogReading:
    """Everything read from one log; `tasks` holds all, or the first and last thousand."""

    engine: str | None = None
    generation: str | None = None
    build: str | None = None
    lines: int = 0
    line: int = 0  # the one that is read for trouble
    starts: int = 1
    events: dict[str, Event] = field(default_factory=dict)
    said: int = 0  # events in all
    first_tasks: list[Task] = field(default_factory=list)
    last_tasks: deque[Task] = field(default_factory=lambda: deque(maxlen=KEPT_ENDS))
    task_count: int = 0
    totals: dict[str, float] = field(default_factory=dict)
    last: dict[str, float | int] = field(default_factory=dict)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    slot_select: dict[str, float | int | str] | None = None
    prompt_cache: dict[str, float | int] | None = None
    lookup: dict[str, float] | None = None
    saved_state_mib: float = 0.0
    cached_prompts_with_checkpoints: int = 0
    kvs: list[Kv] = field(default_factory=list)
    gpu_layers: str | None = None
    loads: int = 0
    n_ctx: int | None = None
    n_ctx_slot: int | None = None
    n_slots: int | None = None
    kv_unified: bool | None = None
    flash_attn: bool | None = None
    rs_mib: float | None = None
    hybrid: bool = False
    swa: bool = False
    plain_kv: bool = False
    graph_splits: int | None = None
    arch: str | None = None
    gpus: set[str] = field(default_factory=set)
    spec_type: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    oom: Oom | None = None
    crash: Crash | None = None
    vllm: Vllm = field(default_factory=Vllm)
    notes: list[str] = field(default_factory=list)
    sides: list[str] = field(default_factory=list)  # of a mismatch: cached text, prompt
    marks: set[str] = field(default_factory=set)  # what tells the generation
    draft_accepted: int = 0
    draft_generated: int = 0
    live: dict[str, float] = field(default_factory=dict)
    live_slots: list[dict[str, Any]] = field(default_factory=list)

    def tasks(self) -> Iterator[Task]:
        """Yield the kept tasks in the order of their first lines."""
        yield from sorted((*self.first_tasks, *self.last_tasks), key=lambda task: task.line)

    def saw(self, kind: str, line: int, text: str) -> None:
        """Count an event and keep its line while there are few."""
        event = self.events.get(kind)
        if event is None:
            event = self.events[kind] = Event()
        event.count += 1
        self.said += 1
        if len(event.evidence) < EVIDENCE:
            event.evidence.append(Evidence(line, text[:SHOWN]))

    def count(self, *kinds: str) -> int:
        """Return how often any of `kinds` was seen."""
        return sum(self.events[kind].count for kind in kinds if kind in self.events)

    @property
    def kv(self) -> Kv | None:
        """The target's cache: the first context's (a draft's or an MTP head's come later)."""
        return next((kv for kv in self.kvs if kv.k or kv.mib), None)
