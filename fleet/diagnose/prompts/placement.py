"""Where an engine can resume: one placement rule for each kind of memory.

llama.cpp makes checkpoints `ubatch + 4` and 4 tokens before a prompt's end (not before where
it began to read), at the last user message, and at earlier ones that are `spacing` apart. A
checkpoint at c holds the window's cells before it and gives back c - 1 tokens. A sliding
window can also rewind within its live cells. Before b9873 a checkpoint beyond the place where
prompts part is cut back to it, when its window reaches behind it; of b9388 and later the
window is then gone, and the next request finds none. Until b10566 (measured; b11063 no more)
builds with `--checkpoint-min-step` want that distance between any two checkpoints, those at
the end too: of a shorter prompt only the first is made. ik_llama.cpp makes one every `interval`
tokens; vLLM finds whole blocks, on window and recurrent groups only at multiples of the
retention interval.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from fleet.diagnose.prompts.tokens import common_length

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.diagnose.prompts.tokens import Prompt
    from fleet.facts.build_facts import BuildFacts
    from fleet.facts.model_facts import ModelFacts

Engine = Literal["llama.cpp", "ik_llama.cpp", "vllm"]
END = 4  # tokens before the end of a prompt where the last checkpoint lies
PAD = 256
RING = 32
_INTERVAL = "checkpoint_interval"
OURS = ("llama.cpp", "embedded")
_BEYOND = (9538, 9873)  # between these builds checkpoints beyond the common part became useless
_CUT_WINDOW = (9093, 9538)
_UNSPACED = (10566, 11063)


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """The model's and launch's figures that decide what can be reused."""

    engine: Engine = "llama.cpp"
    window: int = 0  # tokens of the sliding window, 0 without one
    recurrent: bool = False
    ubatch: int = 512
    slots: int = 1
    unified: bool = False
    full_window: bool = False
    spacing: int = 8192
    checkpoints: bool = True  # the build makes them
    cuts_back: bool = False  # a checkpoint beyond what is in common
    keeps_window: bool = True  # ... and what lies before the cut
    spaced: bool = False  # any two checkpoints lie `spacing` apart
    similarity: float = 0.1  # share of a prompt that makes it take the slot that has it
    block: int = 16  # vLLM
    interval: int | None = None  # ik_llama.cpp, vLLM

    @property
    def rewinds(self) -> bool:
        """Whether any token can be resumed at."""
        return not self.recurrent and (not self.window or self.full_window)

    @property
    def slot_files(self) -> bool:
        """Whether a slot's file holds its checkpoints (a recurrent state's are left out)."""
        return self.engine == "llama.cpp" and self.checkpoints and not self.recurrent

    @property
    def live_cells(self) -> int:
        """Cells of the window cache: pad(window x sequences + ubatch, 256)."""
        sequences = self.slots if self.unified else 1
        return -(-(self.window * sequences + self.ubatch) // PAD) * PAD


def memory_of(
    settings: Mapping[str, Any], facts: ModelFacts | None, build: BuildFacts | None
) -> Memory:
    """Return how a launch resumes; what `settings` leave out is as fleet launches it.

    A model without `facts` is taken for one that keeps every token.
    """
    engine: str = build.engine if build else "llama.cpp"
    ours = build if build and engine in OURS else None
    early = ours is not None and ours.changed(*_BEYOND) is False
    spaced = ours and ours.changed(*_CUT_WINDOW) and ours.changed(*_UNSPACED) is False
    interval = settings.get("prefix_retention_interval" if engine == "vllm" else _INTERVAL)
    return Memory(
        engine="llama.cpp" if engine in OURS else engine,  # type: ignore[arg-type]
        window=facts.n_swa if facts else 0,
        recurrent=bool(facts and (facts.is_recurrent or facts.is_hybrid)),
        ubatch=int(settings.get("ubatch_size") or 512),
        slots=int(settings.get("parallel") or 1),
        unified=settings.get("kv_unified") is True,
        # ik_llama.cpp keeps whole windows unless told not to
        full_window=settings.get("swa_full", engine == "ik_llama.cpp") is True,
        spacing=int(interval or (256 if spaced and early else 8192)),
        checkpoints=settings.get("swa_checkpoints") != 0
        and (engine != "llama.cpp" or not build or "--swa-checkpoints" in build),
        cuts_back=early,
        spaced=bool(spaced),
        keeps_window=ours is None or ours.changed(*_CUT_WINDOW) is not True,
        similarity=float(settings.get("slot_prompt_similarity", 0.1)),
        block=int(settings.get("block_size") or 16),
        interval=int(interval) if interval and engine in {"ik_llama.cpp", "vllm"} else None,
    )


@dataclass(slots=True)
class SlotModel:
    """One slot as the rule sees it: what it holds, and its checkpoints (token counts).

    A checkpoint's value is where its window begins, as `oldest` is of what is held.
    """

    memory: Memory
    held: Sequence[int] = ()
    checkpoints: dict[int, int] = field(default_factory=dict)
    oldest: int = 0

    def take(self, tokens: Sequence[int], user_starts: Sequence[int] = ()) -> int:
        """Return the tokens reused of a prompt, and hold it afterwards."""
        past = self._resume(tokens)
        kept = {c: oldest for c, oldest in self.checkpoints.items() if c - 1 <= past}
        kept |= {c: self._oldest(c) for c in self._made(tokens, user_starts, past)}
        self.checkpoints = dict(sorted(kept.items())[-RING:])
        self.held = tokens
        return past

    def _oldest(self, end: int) -> int:
        return max(self.oldest, end - self.memory.live_cells)

    def _resume(self, tokens: Sequence[int]) -> int:
        memory = self.memory
        same = min(common_length(self.held, tokens), len(tokens) - 1)
        if memory.engine == "vllm":
            return _vllm(memory, same, whole=same >= len(self.held)) if same > 0 else 0
        if same > 0 and (memory.rewinds or same >= len(self.held) or self._live(same)):
            return same
        if memory.cuts_back and not memory.recurrent:
            return self._cut_back(same)
        past = max((c - 1 for c in self.checkpoints if c - 1 <= same), default=0)
        self.oldest = 0
        return past

    def _cut_back(self, same: int) -> int:
        """Resume at the newest checkpoint whose window reaches behind `same`."""
        seen = max(0, same - self.memory.window)
        usable = [(c, low) for c, low in self.checkpoints.items() if low < seen or low == 0]
        if not usable or same <= 0:
            self.oldest = 0
            return 0
        made, low = max(usable)
        past = min(same, made - 1) if made <= same else same
        self.oldest = low if self.memory.keeps_window else past
        return past

    def _live(self, same: int) -> bool:
        """Whether the window's cells still reach back to what the tokens at `same` see."""
        if self.memory.recurrent:
            return False
        return self._oldest(len(self.held)) < max(0, same - self.memory.window)

    def _made(self, tokens: Sequence[int], user_starts: Sequence[int], past: int) -> list[int]:
        memory, end = self.memory, len(tokens)
        if memory.rewinds or not memory.checkpoints or memory.engine == "vllm":
            return []
        if memory.engine == "ik_llama.cpp":
            step = memory.interval or 512
            return list(range(step * (past // step + 1), end + 1, step))
        ends = [max(past, end - END - memory.ubatch), end - END]
        if memory.spaced:
            return self._apart(sorted([*user_starts, *ends]), past)
        made, last = ends, max(self.checkpoints, default=0)
        for number, start in enumerate(user_starts, start=1):
            if start > past and (number == len(user_starts) or start - last >= memory.spacing):
                made.append(start)
                last = start
        return [c for c in made if c > 0 and c >= past]

    def _apart(self, wanted: Sequence[int], past: int) -> list[int]:
        """Return what is made where any two checkpoints lie apart."""
        made: list[int] = []
        last = max((c for c in self.checkpoints if c - 1 <= past), default=-self.memory.spacing)
        for c in wanted:
            if c > 0 and c >= past and c - last >= self.memory.spacing:
                made.append(c)
                last = c
        return made


def _vllm(memory: Memory, same: int, *, whole: bool) -> int:
    if not memory.window and not memory.recurrent:
        return same // memory.block * memory.block
    step = memory.interval or 0
    if whole or not step:
        return same // memory.block * memory.block if whole else 0
    return same // step * step


def reused(prompts: Sequence[Prompt], memory: Memory, *, primed: int = 0) -> list[int]:
    """Return the tokens that each request in turn reuses of the slot that the server chooses.

    `primed` tokens of the first prompt were sent alone to every slot before, and again is
    where the first request resumes. Slots of one unified pool are taken for one.
    """
    if primed and memory.engine == "vllm" and (memory.window or memory.recurrent):
        memory = replace(memory, interval=primed // memory.block * memory.block or None)
    slots = [SlotModel(memory=memory) for _ in range(1 if memory.unified else memory.slots)]
    if primed and prompts:
        for slot in slots:
            slot.take(prompts[0].tokens[:primed])
    counts = []
    for prompt in prompts:
        slot = _chosen(slots, prompt.tokens)
        slots = [*(other for other in slots if other is not slot), slot]  # the oldest first
        counts.append(slot.take(prompt.tokens, prompt.user_starts))
    return counts


def _chosen(slots: Sequence[SlotModel], tokens: Sequence[int]) -> SlotModel:
    """Return the slot that has most of `tokens`, else the one that was used longest ago."""
    best = max(slots, key=lambda slot: common_length(slot.held, tokens))
    likeness = common_length(best.held, tokens) / max(1, len(tokens))
    return best if likeness > best.memory.similarity else slots[0]


def after_first(counts: Sequence[int]) -> float:
    """Return the mean over the requests after the first, which reads all anyway."""
    rest = counts[1:] or counts
    return round(sum(rest) / len(rest), 2) if rest else 0.0
