"""Read a log of any generation, line by line, in constant memory.

Each line goes to the first grammar that knows its beginning: slot lines, timing lines
without a prefix, `srv` lines, structured lines, vLLM, named functions; what is left is
searched for sentences that mean trouble.
"""

# ruff: noqa: D401 - the first words say which line, event or state is meant
from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleet.diagnose.read_log import (
    error_lines,
    old_lines,
    slot_lines,
    srv_lines,
    start_lines,
    structured_lines,
    vllm_lines,
)
from fleet.diagnose.read_log.generation import settle_generation
from fleet.diagnose.read_log.lines import line_batches
from fleet.diagnose.read_log.log_reading import SHOWN, LogReading, Task
from fleet.diagnose.read_log.prefixes import clock_seconds, strip_prefixes
from fleet.diagnose.read_log.task_assembly import TaskAssembly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fleet.diagnose.read_log.task_assembly import Key

_SRV = re.compile(r"(?:srv|cmn|spec)\s+\S+?:?\s+(?:- )?")
_SOURCE = re.compile(r"\[(\d+)\] |([\w.\-]+) +\| ")
_BUILD = re.compile(
    r"(?:build_info: (b\d+)|build: (\d+) \(|version: (\d+) \(|\(build (\d+), |build = (\d+) \()"
)
_NAME = re.compile(r"([A-Za-z_]\w*)\s*: ?")
LONG = 4000  # characters; Python refuses numbers of more than 4,300 digits
_RESTART_S = 1.0  # a clock that goes back by more is a new start


class LogReader:
    """Feed it batches of lines, then ask for the reading."""

    def __init__(self, on_task: Callable[[Task], None] | None = None) -> None:
        """Start with nothing read; `on_task` sees every finished task."""
        self.reading = LogReading()
        self.assembly = TaskAssembly(self.reading, on_task=on_task)
        self._clock = 0.0
        self._seen_slots = False
        # lines of one task follow each other: what the last slot line began with
        self._head, self._key, self._number = "", ("", 0), -1
        self._task = Task()
        self._line = 0

    def feed(self, lines: list[str]) -> None:
        """Read a batch."""
        number = self._line
        slot_line, other, unstamped = self._slot_line, self._other, self._unstamped
        heads = slot_lines.UNSTAMPED
        if lines and max(map(len, lines)) > LONG:  # what follows is no figure
            lines = [line if line[:1] == "{" else line[:LONG] for line in lines]
        for line in lines:
            number += 1
            at = line.find(" | task ")
            if at >= 0:
                if line[0] != "{" and slot_line(line, at, number):
                    continue
            elif (bare := line.lstrip())[:8] in heads:
                unstamped(bare, line, number)
                continue
            elif not bare:
                continue
            other(line, number)
        self._line = self.reading.lines = number

    def finish(self) -> LogReading:
        """Close what is open and return the reading."""
        self.assembly.end()
        self.assembly.drop_middle()
        self.assembly.last_figures()
        vllm_lines.finish_metrics(self.reading)
        settle_generation(self.reading)
        return self.reading

    def _slot_line(self, line: str, at: int, number: int) -> bool:
        """Read `... id  N | task M | TEXT`; False when it is something else after all."""
        start = line.rfind(" id ", 0, at)
        mid = line.find(" |", at + 8)
        end = mid if mid >= 0 else len(line)
        head = line[start:end]
        if head == self._head and line[0] != "[":
            task, key = self._task, self._key
        else:
            try:
                slot, self._number = int(line[start + 4 : at]), int(line[at + 8 : end])
            except ValueError:
                return False
            first = line[0]
            key = ("" if first == "s" or first.isdigit() else _source(line), slot)
            task = self.assembly.of(key, self._number, number, line)
            self._head, self._task, self._key = head, task, key
            if not self._seen_slots:
                self._first_slot_line(line)
        text = line[end + 2 :].lstrip() if mid >= 0 else ""
        if text:
            self._task_text(task, key, text, line, number)
        else:
            self._header(task, key)
        return True

    def _header(self, task: Task, key: Key) -> None:
        """Builds to b9093 print `id N | task M |` alone, and the timings below it."""
        self.assembly.current = task
        if task.task is None:
            self._head = ""
            self.assembly.tasks[key] = task
            self.assembly.chosen.pop(key, None)

    def _task_text(self, task: Task, key: Key, text: str, line: str, number: int) -> None:
        handler = slot_lines.TABLE.get(text[:8])
        if handler is None:
            told = slot_lines.told_forced(self.reading, task, text)
            if told:
                self.reading.saw(told, number, line)
            else:
                self._trouble(text, line, number)
            return
        if self._number < 0 and handler is slot_lines.selected:
            task.line, task.text = number, line[:SHOWN]  # not when the slot was made
        elif handler is slot_lines.launch:
            task = self._launched(task, key, line, number)
        event = handler(self.reading, task, text)
        if event is not None:
            self.reading.saw(event, number, line)
        if handler is slot_lines.release:
            self.assembly.release(task)
            self._tick(line)
        elif self._number < 0 and handler is slot_lines.prompt_timing:
            self._head = ""
            self.assembly.tasks[key] = task

    def _first_slot_line(self, line: str) -> None:
        """Tell the generation by whether slot lines carry a clock."""
        self._seen_slots = True
        self.reading.marks.add("slots" if clock_seconds(line) is None else "stamps")

    def _launched(self, task: Task, key: Key, line: str, number: int) -> Task:
        """Begin a task; a clock that went back, or a number used twice, is a new start."""
        again = task.launched and task.released is not None
        if self._tick(line) or again:
            self._restart()
            task = self.assembly.open(key, self._number, number, line)
            self._task = task
        return task

    def _tick(self, line: str) -> bool:
        """Move the clock; True when it went back."""
        seconds = clock_seconds(line) if "stamps" in self.reading.marks else None
        if seconds is None:
            return False
        back = seconds < self._clock - _RESTART_S
        self._clock = seconds
        return back

    def _restart(self) -> None:
        reading = self.reading
        if reading.task_count or self.assembly.tasks:
            reading.starts += 1
            self.assembly.restart()
        self._head = ""
        reading.loads = 0
        reading.kvs.clear()
        reading.n_ctx = None

    def _unstamped(self, bare: str, line: str, number: int) -> None:
        """Read a timing line that stands without prefix below its header."""
        self.reading.marks.add("timing")
        handler = slot_lines.UNSTAMPED[bare[:8]]
        event = handler(self.reading, self._current(number, line), bare)
        if event:
            self.reading.saw(event, number, line)

    def _other(self, line: str, number: int) -> None:
        text, source, stamped = strip_prefixes(line.lstrip())
        if stamped:
            self.reading.marks.add("stamps")
        if text.startswith("{") and self._json(text, source, line, number):
            return
        if text.startswith("vllm:") and text[5:6] != " ":
            event = vllm_lines.read_metric(self.reading, text)
            if event:
                self.reading.saw(event, number, line)
            return
        self._message(text, source, line, number)

    def _current(self, number: int, line: str) -> Task:
        """Return the task that lines without a prefix belong to."""
        assembly = self.assembly
        if assembly.current is not None:
            return assembly.current
        running = [task for task in assembly.tasks.values() if task.released is None]
        if len(running) == 1:
            assembly.current = running[0]
        else:
            assembly.current = assembly.open(("", None), None, number, line)
        return assembly.current

    def _message(self, text: str, source: str, line: str, number: int) -> None:
        """Try the grammars whose first letters fit, then the named functions."""
        kind = _FIRST.get(text[:3])
        if kind is None:
            self._named(text, line, number)
        elif kind == "srv":
            if not self._srv(text, line, number):
                self._trouble(text, line, number)
        elif kind == "dash":
            if not self._srv_text(text.lstrip(" -"), line, number):
                self._named(text, line, number)
        elif kind == "bracket":
            if (pairs := structured_lines.bracket_line(text)) is not None:
                self._structured(pairs[0], pairs[1], source, line, number)
            else:
                self._named(text, line, number)
        elif kind == "timing" and old_lines.is_old_timing(text):
            self._old_timing(text, line, number)
        elif kind != "old" or not old_lines.read_old(self.assembly, source, text, number):
            self._named(text, line, number)

    def _old_timing(self, text: str, line: str, number: int) -> None:
        self.reading.marks.add("old-timing" if "print_timings" in text[:20] else "timing")
        bare = text.partition(":")[2].lstrip()
        handler = slot_lines.TABLE.get(bare[:8])
        if handler is not None:
            handler(self.reading, self._current(number, line), bare)

    def _srv(self, text: str, line: str, number: int) -> bool:
        found = _SRV.match(text)
        return found is not None and self._srv_text(text[found.end() :].lstrip(" -"), line, number)

    def _srv_text(self, text: str, line: str, number: int) -> bool:
        handler = srv_lines.TABLE.get(text[: srv_lines.HEAD])
        if handler is None:
            return False
        self.reading.marks.add("srv")
        event = handler(self.reading, text)
        if event == "idle":
            self.assembly.idle()
        elif event is not None:
            self.reading.saw(event, number, line)
        return True

    def _json(self, text: str, source: str, line: str, number: int) -> bool:
        found = structured_lines.json_line(text)
        if found is None:
            return False
        if structured_lines.read_timings(self.assembly, source, found, number, text[:300]):
            return True
        message = found.get("msg", found.get("message", found.get("log")))
        if not isinstance(message, str):
            return False
        if "tid" in found or "function" in found:
            self.reading.marks.add("json23" if "message" in found else "brackets")
            self._structured(message, found, source, line, number)
        else:
            self.reading.marks.add("jsonl")
            self.feed_inner(message.rstrip("\n"), number)
        return True

    def feed_inner(self, message: str, number: int) -> None:
        """Read the line inside a JSON envelope under the envelope's number."""
        before = self._line
        self._line = number - 1
        self.feed([message])
        self._line = before

    def _structured(
        self, text: str, values: dict[str, object], source: str, line: str, number: int
    ) -> None:
        event = structured_lines.read_structured(self.assembly, source, text, values, number)
        if event:
            self.reading.saw(event, number, line)
        elif not text.startswith(("kv cache", "slot", "prompt", "generation")):
            self._trouble(f"{text} {values.get('error', '')}", line, number)

    def _named(self, text: str, line: str, number: int) -> None:  # noqa: C901 - one chain
        """Read `FUNCTION: text`, a build, an option line, vLLM; else look for trouble."""
        reading = self.reading
        found = _NAME.match(text)
        if found and (reader := start_lines.TABLE.get(found[1])) is not None:
            name = found[1]
            reading.marks.add(name)
            if name in _STARTERS and reading.loads and "loading model" in text:
                self._maybe_restart(text)
            rest = text[found.end() :].lstrip()
            event = reader(reading, rest)
            if event:
                reading.saw(event, number, line)
            if event in {None, "kv-failed"}:
                self._trouble(rest, line, number)
            return
        if text.startswith("Device "):
            reading.gpus.add("GPU")
            return
        if "statistics" in text[:24]:
            start_lines.statistics(reading, text.lstrip())
        elif "speculati" in text:
            event = start_lines.speculation(reading, text)
            if event:
                reading.saw(event, number, line)
                return
        if vllm_lines.is_vllm(text):
            event = vllm_lines.read_vllm(reading, text)
            if event:
                reading.saw(event, number, line)
                return
        if ("build" in text or "version: " in text) and self._build(text):
            return
        if " --" in text or " -c" in text:
            old_lines.read_options(reading, text)
        self._trouble(text, line, number)

    def _build(self, text: str) -> bool:
        found = _BUILD.search(text)
        if found is None:
            return False
        number = next(part for part in found.groups() if part)
        if self.reading.build is not None and self.reading.task_count:
            self._restart()
        self.reading.build = number
        return True

    def _maybe_restart(self, text: str) -> None:
        """Loading a model after tasks were served is a new start, not a draft."""
        if "tensors" in text and (self.reading.task_count or self.assembly.tasks):
            self._restart()

    def _trouble(self, text: str, line: str, number: int) -> None:
        event = error_lines.read_trouble(self.reading, text)
        if event:
            self.reading.saw(event, number, line)
            if event == "mismatch":
                old_lines.mark_mismatch(self.assembly, number, line)
        elif "devices:" in text or "Device 0" in text or "buffer size" in text:
            start_lines.device(self.reading, text)
        else:
            old_lines.read_rest(self.assembly, text, number)


_FIRST = {
    "srv": "srv", "cmn": "srv", "spe": "srv",
    "- c": "dash", "- p": "dash", "- s": "dash", "- l": "dash", "- f": "dash",
    "INF": "bracket", "WAR": "bracket", "ERR": "bracket", "VER": "bracket", "DEB": "bracket",
    "DBG": "bracket",
    "pri": "timing", "lla": "timing",
    "slo": "old", "===": "old",
}  # fmt: skip
_STARTERS = frozenset({"load_tensors", "llm_load_tensors"})


def _source(line: str) -> str:
    found = _SOURCE.match(line)
    return (found[1] or found[2]) if found else ""


def read_log(chunks: Iterable[bytes], on_task: Callable[[Task], None] | None = None) -> LogReading:
    """Read a log from chunks of bytes (about a MiB each is fast).

    `on_task` sees each task as it is finished, those too that are not kept. Raises
    `UserError` for content that is no log text.
    """
    reader = LogReader(on_task)
    for batch in line_batches(chunks):
        reader.feed(batch)
    return reader.finish()
