"""What can be done about a shared prefix, cheapest first, and which one of it to do.

| variant     | costs                                                              |
|-------------|--------------------------------------------------------------------|
| default     | nothing                                                            |
| primed      | reading the prefix once after each start; no restart               |
| interval=N  | a restart; more or fewer checkpoints (with priming on some builds) |
| split       | a restart; the context is divided among the slots                  |
| ubatch=N    | a restart; larger compute buffers                                  |
| unified     | a restart; a window cache for four                                 |
| swa_full    | a restart; every token's cells in every layer, and slower attention|
| reordered   | a change of the application                                        |
| values-last | the same, and what changes inside a block moved behind it          |

The first that lets (almost) as much be reused as the best is chosen; another order only where
it brings more than anything else does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from fleet.compiler.dialects import ik_llama_cpp, llama_cpp
from fleet.compiler.dialects.spelling import Spelled, say
from fleet.diagnose.interval_option import SETTING, interval_option
from fleet.errors import CannotExpress

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fleet.diagnose.prompts.placement import Memory
    from fleet.facts.build_facts import BuildFacts

SLACK_TOKENS = 20  # what opens a message, and the tokens between a checkpoint and the end
SLACK_SHARE = 0.01
ORDER_WORTH = 1.05  # another order is asked for when it brings more than this
INTERVALS: Mapping[str, tuple[int, ...]] = {
    "llama.cpp": (2048, 1024, 256), "ik_llama.cpp": (2048, 1024, 512, 256),
    "vllm": (4096, 2048, 1024, 512),
}  # fmt: skip
UBATCHES = (1024, 2048)  # up to the default batch
LEAST_INTERVAL = 64  # tokens
CLOSE = 256  # below every ubatch in use
INTERVAL_SETTING: Mapping[str, str] = {
    "llama.cpp": SETTING, "ik_llama.cpp": SETTING, "vllm": "prefix_retention_interval",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One remedy: how the engine would resume, what to set for it, and what people read."""

    name: str
    change: str
    memory: Memory
    settings: Mapping[str, int | bool] = field(default_factory=dict)
    primed: bool = False
    reordered: bool = False
    values_last: bool = False  # reordered, and what changes inside blocks moved out of them
    possible: bool = True  # fleet can do it, or a setting does


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The one remedy for these requests on this launch.

    `options` is how the build at hand spells `settings`; `slot_files` says that
    `slot_save_path` keeps what was primed over a restart.
    """

    variant: str
    change: str
    settings: Mapping[str, int | bool]
    options: tuple[str, ...]
    reusable_tokens: float
    slot_files: bool

    @property
    def restart(self) -> bool:
        """Whether the server has to be started anew for it."""
        return bool(self.settings)


def fitting_interval(shared: int) -> int:
    """Return half of what is shared as a power of two: a state then lies near its end."""
    return max(LEAST_INTERVAL, 1 << (max(2, shared) // 2).bit_length() - 1)


def variants_of(
    memory: Memory, *, shared: int, tail: int, groups: int, breaker: str | None = None
) -> tuple[Variant, ...]:
    """Return what could be done, the cheapest first.

    `shared` is what all requests begin with, `tail` the longest rest that one has for its
    own, in tokens; `groups` how many conversations there are; `breaker` what changes inside
    a block that is else in common.
    """
    return tuple(chain(_as_ordered(memory, shared, tail, groups), _other_order(memory, breaker)))


def _as_ordered(memory: Memory, shared: int, tail: int, groups: int) -> Iterator[Variant]:
    ours = memory.engine == "llama.cpp"
    yield Variant(name="default", change="nothing: it is reused as it is", memory=memory)
    yield Variant(
        name="primed", memory=memory, primed=True, possible=memory.engine != "vllm",
        change="prime the shared prefix (`fleet prompts prime NAME`, `shared_prefix:`)",
    )  # fmt: skip
    if memory.spaced and memory.spacing > memory.ubatch:
        yield Variant(
            name=f"primed+interval={CLOSE}", primed=True, settings={SETTING: CLOSE},
            memory=replace(memory, spacing=CLOSE),
            change=f"prime the shared prefix, with `{SETTING}: {CLOSE}`: this build keeps no "
            "checkpoint at its end that is nearer to another",
        )  # fmt: skip
    if memory.rewinds and groups < 2:  # noqa: PLR2004 - it goes back to any token
        return
    yield from _intervals(memory, shared)
    if memory.engine == "vllm":
        return
    slots = max(2, min(8, groups))
    yield Variant(
        name="split", change=f"a slot for each of {slots} conversations, each with its own cache",
        memory=replace(memory, slots=slots, unified=False),
        settings={"parallel": slots, "kv_unified": False},
    )  # fmt: skip
    if not memory.window or memory.full_window:
        return
    full = replace(memory, full_window=True)
    if ours and (larger := next((n for n in UBATCHES if n > max(tail, memory.ubatch)), 0)):
        yield Variant(
            name=f"ubatch={larger}", memory=replace(memory, ubatch=larger),
            change=f"batches longer than the tail (`ubatch_size: {larger}`)",
            settings={"ubatch_size": larger},
        )  # fmt: skip
    if ours:
        most = max(4, memory.slots)
        yield Variant(
            name="unified", memory=replace(memory, slots=most, unified=True),
            change=f"{most} slots with one unified cache",
            settings={"parallel": most, "kv_unified": True},
        )  # fmt: skip
    yield Variant(
        name="swa_full", change="keep the full window (`swa_full: true`), for memory and speed",
        memory=full, settings={"swa_full": True},
    )  # fmt: skip
    if groups > 1:
        yield Variant(
            name="split+swa_full", memory=replace(full, slots=slots, unified=False),
            change=f"a slot for each of {slots} conversations, each with the full window",
            settings={"parallel": slots, "kv_unified": False, "swa_full": True},
        )  # fmt: skip


def _intervals(memory: Memory, shared: int) -> Iterator[Variant]:
    steps = set(() if memory.rewinds else INTERVALS[memory.engine])
    if steps and memory.engine != "llama.cpp":
        steps.add(fitting_interval(shared))
    name = INTERVAL_SETTING[memory.engine]
    for step in sorted(steps, reverse=True):
        yield Variant(
            name=f"interval={step}", change=f"set `{name}: {step}`", settings={name: step},
            memory=replace(memory, spacing=step, interval=step),
        )  # fmt: skip


def _other_order(memory: Memory, breaker: str | None) -> Iterator[Variant]:
    yield Variant(
        name="reordered", reordered=True, memory=memory,
        change="put what all requests share first and what one has last",
    )  # fmt: skip
    yield Variant(
        name="reordered+primed", reordered=True, primed=True, memory=memory,
        possible=memory.engine != "vllm", change="put what all share first, and prime it",
    )  # fmt: skip
    if breaker:
        change = f"move what changes inside shared text ({breaker}) behind it"
        for primed in (False, True):
            yield Variant(
                name="values-last" + "+primed" * primed, reordered=True, values_last=True,
                primed=primed, change=change + ", and prime what is shared" * primed,
                memory=memory, possible=not primed or memory.engine != "vllm",
            )  # fmt: skip
    if memory.window and not memory.rewinds and memory.engine != "vllm":
        yield Variant(
            name="reordered+swa_full", reordered=True, settings={"swa_full": True},
            memory=replace(memory, full_window=True),
            change="put what all share first, and keep the full window (`swa_full: true`)",
        )  # fmt: skip


def order_helps(variants: Sequence[Variant], reusable: Mapping[str, float]) -> bool:
    """Whether another order brings more than all that can be done with this one."""
    best = {
        other: max(
            (reusable[one.name] for one in variants if one.possible and one.reordered is other),
            default=0.0,
        )
        for other in (False, True)
    }
    return best[True] > max(best[False] * ORDER_WORTH, best[False] + SLACK_TOKENS)


def choose(
    variants: Sequence[Variant], reusable: Mapping[str, float], build: BuildFacts | None
) -> Choice:
    """Return the cheapest of the variants that let almost as much be reused as the best."""
    other = order_helps(variants, reusable)
    possible = [one for one in variants if one.possible and (other or not one.reordered)]
    best = max(reusable[one.name] for one in possible)
    slack = max(SLACK_TOKENS, SLACK_SHARE * best)
    chosen = next(one for one in possible if reusable[one.name] >= best - slack)
    return Choice(
        variant=chosen.name,
        change=chosen.change,
        settings=chosen.settings,
        options=spelled(chosen.settings, build),
        reusable_tokens=reusable[chosen.name],
        slot_files=chosen.primed and chosen.memory.slot_files,
    )


def spelled(settings: Mapping[str, int | bool], build: BuildFacts | None) -> tuple[str, ...]:
    """Return `settings` as options of `build`; empty where it has no word, or is unknown."""
    if build is None:
        return ()
    if build.engine == "vllm":
        value = settings.get(INTERVAL_SETTING["vllm"])
        option = interval_option("vllm", build)
        return (option, str(value)) if value and option else ()
    ik = build.engine == "ik_llama.cpp"
    words = ik_llama_cpp.WORDS if ik else llama_cpp.WORDS
    spoken = Spelled()
    try:
        for name, value in settings.items():
            say(spoken, build, words, name, value)
    except CannotExpress:
        return ()
    return tuple(spoken.argv)
