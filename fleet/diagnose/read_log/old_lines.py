"""Shapes of 2023, of ik_llama.cpp's cache lines, command lines, and mismatch dumps."""

# ruff: noqa: D401 - the first words say which line, event or state is meant
from __future__ import annotations

import re
import shlex
from contextlib import suppress
from typing import TYPE_CHECKING

from fleet.diagnose.read_log.known_lines import figures_at
from fleet.diagnose.read_log.log_reading import SHOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fleet.diagnose.read_log.known_lines import Figures
    from fleet.diagnose.read_log.log_reading import LogReading, Task
    from fleet.diagnose.read_log.task_assembly import Key, TaskAssembly

    Read = Callable[[TaskAssembly, str, str, int], None]  # the server, a line and its number

_IK_CACHE = re.compile(r"Cache: cache_size = (\d+), (.*)")
_PAIR = re.compile(r"(\w+)\s*=\s*(\d+)")
_OLD_TIMING = re.compile(
    r"(?:print_timings|llama_print_timings|llama_perf_context_print|slot print_timing): "
)
_SPANS = re.compile(r"last user message: .*text_n_tokens=(\d+)")
OPTIONS = {
    "--cache-type-k": "ctk", "-ctk": "ctk", "--cache-type-v": "ctv", "-ctv": "ctv",
    "--ctx-size": "ctx", "--ctx_size": "ctx", "-c": "ctx", "--parallel": "np", "-np": "np",
    "--ctx-checkpoints": "ctxcp", "--swa-checkpoints": "ctxcp", "-ctxcp": "ctxcp",
    "--checkpoint-min-step": "cms", "-cms": "cms", "--cache-ram": "cram", "-cram": "cram",
    "--flash-attn": "fa", "-fa": "fa", "--n-gpu-layers": "ngl", "-ngl": "ngl",
    "--spec-type": "spec", "--n-cpu-moe": "ncmoe", "-ncmoe": "ncmoe", "-ot": "ot",
    "--override-tensor": "ot", "--numa": "numa", "--threads": "threads", "-t": "threads",
}  # fmt: skip
SWITCHES = {
    "--no-cache-prompt": "no_cache_prompt", "--cpu-moe": "cmoe", "-cmoe": "cmoe",
    "--swa-full": "swa_full", "--no-kv-offload": "nkvo", "-nkvo": "nkvo",
    "--no-enable-prefix-caching": "no_cache_prompt",
}  # fmt: skip


def is_old_timing(text: str) -> bool:
    """Whether a timing line is led by a function's name only."""
    return _OLD_TIMING.match(text) is not None


def reader_of(line: str, begin: int) -> Read | None:
    """Return what reads 2023's `slot N ...` and ik's `======== Cache:`; None for others."""
    if line.startswith("=", begin) and "ache: " in line:
        return lambda assembly, _source, line, _number: _ik_cache(assembly, line)
    for pattern, take in SLOT_2023:
        if found := pattern.search(line, begin):
            return _slot_2023(take, figures_at(found.regs[1:]))
    return None


def _slot_2023(take: Callable[..., None], figures: Figures) -> Read:
    def read(assembly: TaskAssembly, source: str, line: str, number: int) -> None:
        slot, *rest = figures(line)
        take(assembly, (source, int(slot)), (number, line), *rest)
        assembly.reading.marks.add("slots23")

    return read


def _processing(assembly: TaskAssembly, key: Key, line: tuple[int, str], task: str) -> None:
    begun = assembly.open(key, int(task), *line)
    begun.launched = True
    assembly.turn_to(key[0], begun)


def _in_cache(
    assembly: TaskAssembly, key: Key, line: tuple[int, str], cached: str, left: str
) -> None:
    task = assembly.tasks.get(key)
    if task is None or task.released is not None:
        task = assembly.open(key, None, *line)
    task.cached = int(cached)
    task.prompt = task.cached + int(left)
    assembly.turn_to(key[0], task)


def _removed(assembly: TaskAssembly, key: Key, _line: tuple[int, str], position: str) -> None:
    task = assembly.tasks.get(key)
    if task is not None and task.first_rm is None:
        task.first_rm = int(position)


def _released(assembly: TaskAssembly, key: Key, _line: tuple[int, str], tokens: str) -> None:
    """Take the tokens in the cache: one more than builds that stop before the last."""
    task = assembly.tasks.get(key)
    if task is not None:
        task.released = int(tokens)
        assembly.release(task)
    assembly.current = None
    assembly.currents.pop(key[0], None)


def _shifted(assembly: TaskAssembly, key: Key, line: tuple[int, str]) -> None:
    task = assembly.tasks.get(key)
    if task is not None:
        task.shifted = True
    assembly.reading.saw("context-shift", *line)


SLOT_2023 = (
    (re.compile(r"slot (\d+) is processing \[task id: (\d+)\]"), _processing),
    (re.compile(r"slot (\d+) ?: in cache: (\d+) tokens \| to process: (\d+) tokens"), _in_cache),
    (re.compile(r"slot (\d+) ?: kv cache rm - \[(\d+)"), _removed),
    (re.compile(r"slot (\d+) released \((\d+) tokens in cache\)"), _released),
    (re.compile(r"slot (\d+) ?: context shift"), _shifted),
)


def _ik_cache(assembly: TaskAssembly, text: str) -> None:
    assembly.reading.marks.add("ik-cache")
    found = _IK_CACHE.search(text)
    if found is None:
        return
    keys = {key: int(value) for key, value in _PAIR.findall(found[2])}
    past = keys.get("n_past1", keys.get("n_past"))
    task = _running(assembly)
    if task is not None and past is not None:
        task.held, task.lcp = int(found[1]), past
        if task.first_rm is None:
            task.cached = past


def _running(assembly: TaskAssembly) -> Task | None:
    """Return the task that a line without any name speaks of."""
    task = assembly.current
    if task is not None and task.released is None:
        return task
    running = [one for one in assembly.tasks.values() if one.released is None]
    return running[-1] if running else task


def mark_mismatch(assembly: TaskAssembly, number: int, line: str) -> None:
    """`Common part does not match fully`: the running task's prompt differs from the cache."""
    assembly.reading.marks.add("ik-cache")
    task = _running(assembly)
    if task is not None:
        task.mismatch = True
        task.line, task.text = number, line[:SHOWN]


def options_of(text: str) -> dict[str, str]:
    """Return the options of a command line that stands in the log; none when it is no such."""
    if not (" --" in text or " -c" in text):
        return {}
    if not ("llama" in text or "vllm" in text or "command" in text.lower() or "args" in text):
        return {}
    words = text.split()
    if any(mark in text for mark in "'\"\\"):
        with suppress(ValueError):
            words = shlex.split(text, comments=False)
    options = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, _, value = word.partition("=")
        if name in OPTIONS:
            options[OPTIONS[name]] = value or following
        elif word in SWITCHES:
            options[SWITCHES[word]] = "on"
    return options


_OLD_SIDE = re.compile(r"^(?:cache\s*:|old: ?(?:\.\.\.)?)\s?(.*)")
_NEW_SIDE = re.compile(r"^(?:prompt\s*:|new: ?(?:\.\.\.)?)\s?(.*)")
_VOLATILE = re.compile(r"cch=[0-9a-f]{3,}|\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\b\d\d:\d\d:\d\d\b")
_THINK = re.compile(r"</?think(?:ing)?>|</?seed:think>")
_END = (
    r"(?:<\|(?:im_end|eot_id|eom_id|end|endoftext|end_of_text|return)\|>|</s>|<end_of_turn>|<turn\|>"
    "|<\uff5cend\u2581of\u2581sentence\uff5c>)"
)
_ENDS_TWICE = re.compile(rf"{_END}\s*{_END}")
_TOOL = re.compile(r'"name"\s*:\s*"([\w.\-]+)|^\s*"?([\w.\-]+)"\s*,\s*"(?:description|parameters)"')
SIDE = 4000  # characters kept of each side
BAR = " | "  # stands where cache and prompt part


def are_full(sides: Sequence[str]) -> bool:
    """Whether no more of a mismatch's text is kept."""
    return len(sides[-1]) >= SIDE


def read_rest(assembly: TaskAssembly, text: str, number: int) -> bool:
    """Read what no other grammar took: message spans, the two sides of a mismatch.

    A side can go on over lines of its own, which carry nothing but the prompt's text.
    True when `text` is none of these by itself.
    """
    reading = assembly.reading
    sides, plain = reading.sides, False
    if found := _SPANS.search(text):
        reading.last["spans_tokens"] = int(found[1])
    elif found := _OLD_SIDE.match(text):
        sides[:] = [found[1][:SIDE]]
    elif found := _NEW_SIDE.match(text):
        if not sides:
            return False
        sides[1:] = [found[1][:SIDE]]
    elif sides and not are_full(sides):
        sides[-1] += "\n" + text
        plain = True
    else:
        return True
    if len(sides) == 2:  # noqa: PLR2004 - both
        _compare_sides(reading, number, text)
    return plain


def _compare_sides(reading: LogReading, number: int, text: str) -> None:
    """Name what differs between the cached text and the prompt, once for each pair."""
    for kind, differs in SIDES:
        if differs(*reading.sides):
            reading.saw(kind, number, text)
            reading.sides.clear()
            return


def _parted(cache: str, prompt: str) -> tuple[str, str, str]:
    """Return what both say before they part, and what each says after."""
    before, bar, cached = cache.partition(BAR)
    _, other, asked = prompt.partition(BAR)
    return (before, cached, asked) if bar and other else ("", cache, prompt)


def _think(cache: str, prompt: str) -> bool:
    _, cached, asked = _parted(cache, prompt)
    return bool(_THINK.search(cached)) != bool(_THINK.search(asked))


def _tools(cache: str, prompt: str) -> bool:
    before, cached, asked = _parted(cache, prompt)
    found = [_TOOL.search(before[-40:] + rest) for rest in (cached, asked)]
    names = [one and (one[1] or one[2]) for one in found]
    return None not in names and names[0] != names[1]


def _end_twice(cache: str, prompt: str) -> bool:
    before, cached, asked = _parted(cache, prompt)
    tail = before[-40:]
    if _ENDS_TWICE.search(tail + cached) and not _ENDS_TWICE.search(tail + asked):
        return True
    return not before and bool(re.match(_END, cached)) and not re.match(_END, asked)


def _volatile(cache: str, prompt: str) -> bool:
    return _VOLATILE.search(cache) is not None and _VOLATILE.search(prompt) is not None


SIDES = (
    ("think-differs", _think),
    ("tools-differ", _tools),
    ("eos-differs", _end_twice),
    ("volatile-differs", _volatile),
)
