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
from fleet.diagnose.read_log.known_lines import (
    CHOICE,
    FUNCTION,
    HEADER,
    LAUNCH,
    OF_BUILD,
    OF_SLOT,
    PLAIN,
    RELEASE,
    SILENT,
    TAKEN,
    TIMED,
    TIMING,
    UNKNOWN,
    Envelope,
    Known,
    SlotLine,
    envelope_of,
    slot_line_of,
)
from fleet.diagnose.read_log.lines import batch_of, line_batches
from fleet.diagnose.read_log.log_reading import SHOWN, LogReading, Task
from fleet.diagnose.read_log.prefixes import clock_seconds, source_place, strip_prefixes
from fleet.diagnose.read_log.structured_lines import Places
from fleet.diagnose.read_log.task_assembly import TaskAssembly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fleet.diagnose.read_log.known_lines import Reader
    from fleet.diagnose.read_log.lines import Batch
    from fleet.diagnose.read_log.task_assembly import Key


_SRV = re.compile(r"(?:srv|cmn|spec)\s+\S+?:?\s+(?:- )?")
_BUILD = re.compile(
    r"(?:build_info: (b\d+)|build: (\d+) \(|version: (\d+) \(|\(build (\d+), |build = (\d+) \()"
)
_NAME = re.compile(r"([A-Za-z_]\w*)\s*: ?")
NEW = ()  # a shape not seen before
SHAPES = 20_000  # remembered at most, between batches
LONG = 4000  # characters; Python refuses numbers of more than 4,300 digits
_RESTART_S = 1.0  # a clock that goes back by more is a new start


class LogReader:
    """Feed it batches of lines, then ask for the reading.

    Logs say the same again and again with other figures. What a line turned out to be is
    remembered for its shape (`lines.Batch`): that it says nothing, or who reads it where.
    """

    def __init__(self, on_task: Callable[[Task], None] | None = None) -> None:
        """Start with nothing read; `on_task` sees every finished task."""
        self.reading = LogReading()
        self.assembly = TaskAssembly(self.reading, on_task=on_task)
        self._clock = 0.0
        self._seen_slots = False
        # lines of one task follow each other: what the last slot line began with
        self._head, self._source, self._key, self._number = "", "", ("", 0), -1
        self._task = Task()
        self._line = 0
        self._command = ""  # line with options, the last
        self._shape = b""
        self._known: dict[bytes, SlotLine | Known | Places | Envelope | None] = {}  # None: silent
        self._troubles: dict[bytes, error_lines.Trouble | None] = {}

    def feed(self, batch: Batch) -> None:
        """Read a batch."""
        lines, shapes = batch
        number = self._line
        known, sides = self._known, self.reading.sides
        if max(map(len, lines), default=0) > LONG:  # what follows is no figure
            lines = [line if line[:1] == "{" else line[:LONG] for line in lines]
            self.forget()
        if len(known) > SHAPES:
            self.forget()
        for whole, whole_shape in zip(lines, shapes, strict=True):
            number += 1
            line, shape = whole, whole_shape
            what = known.get(shape, NEW)
            if what.__class__ is Envelope:
                line, shape = line[what.begin : what.end], shape[what.begin : what.end]
                what = known.get(shape, NEW)
            if what is None and (not sides or old_lines.are_full(sides)):
                continue
            self._shape = shape
            if what.__class__ is SlotLine:
                self._slot_line(line, what, number)
            elif what.__class__ is Known:
                self._known_line(line, what, number)
            elif what.__class__ is Places:
                self._bracket(line, what, line[what.named], number)
            elif self._new_line(line, number):
                known[shape] = None
        self._line = self.reading.lines = number

    def forget(self) -> None:
        """Forget what lines of each shape are; only memory and time depend on it."""
        self._known.clear()
        self._troubles.clear()

    def _new_line(self, line: str, number: int) -> bool:
        """Read a line of a new shape; True when it says nothing, whatever its figures."""
        at = line.find(" | task ")
        if at >= 0:
            place = slot_line_of(line, at) if line[0] != "{" else None
            if place is None:
                return self._other(line, number)
            if not self._seen_slots:
                self._first_slot_line(line)
            if place.how == SILENT and line[at + 8] == "-":
                return True  # it begins no task either
            if place.how != UNKNOWN:
                self._known[self._shape] = place
            self._slot_line(line, place, number)
            return False
        bare = line.lstrip()
        if (handler := slot_lines.UNSTAMPED.get(bare[:8])) is not None:
            self.reading.marks.add("timing")
            if handler is slot_lines.nothing:
                return True
            self._remember(handler, bare, line, TIMING)
            self._timing(handler, bare, "", line, number)
            return False
        return not bare or self._other(line, number)

    def _known_line(self, line: str, known: Known, number: int) -> None:
        """Read a line whose shape was seen before, and not as a slot's."""
        read, begin, kind, named = known
        if kind == TIMING:
            self._timing(read, line[begin:], line[named], line, number)
            return
        self.reading.line = number
        event = read(self.reading, line[begin:])
        if event == "idle":
            self.assembly.idle()
        elif event and kind != OF_BUILD:
            self.reading.saw(event, number, line)
        if kind == FUNCTION and event in {None, "kv-failed"}:
            self._trouble(line[begin:], line, number)

    def _remember(self, read: Reader, text: str, line: str, kind: int) -> Known:
        """Let `read` have what stands where `text` does in lines of this shape from now on."""
        known = Known(read, len(line) - len(text), kind, source_place(line))
        self._known[self._shape] = known
        return known

    def finish(self) -> LogReading:
        """Close what is open and return the reading."""
        self.assembly.end()
        self.assembly.drop_middle()
        self.assembly.last_figures()
        vllm_lines.finish_metrics(self.reading)
        settle_generation(self.reading)
        return self.reading

    def _slot_line(self, line: str, place: SlotLine, number: int) -> None:
        """Read `... id  N | task M | TEXT`."""
        start, at, end, begin, handler, how, named = place
        if how == OF_SLOT:
            handler(self.reading, self._task, line[begin:])
            slots = int(line[start + 4 : at]) + 1
            self.reading.n_slots = max(self.reading.n_slots or 0, slots)
            return
        head, source = line[start:end], line[named]
        if head == self._head and source == self._source:
            task = self._task
        else:
            self._number = int(line[at + 8 : end])
            self._key = (source, int(line[start + 4 : at]))
            task = self._task = self.assembly.of(self._key, self._number, number, line)
            self._head, self._source = head, source
        if how == TAKEN:
            event = handler(self.reading, task, line[begin:])
            if event is not None:
                self.reading.saw(event, number, line)
        elif how != SILENT:
            self._special(task, place, line, number)

    def _special(self, task: Task, place: SlotLine, line: str, number: int) -> None:
        """Read a line that begins or ends something, or that no row of the table takes."""
        how, handler = place.how, place.handler
        if how == HEADER:
            self._header(task, self._key)
            return
        if how == UNKNOWN:
            self._unknown_text(task, place, line, number)
            return
        if how == LAUNCH:
            task = self._launched(task, self._key, line, number)
        elif how == CHOICE and self._number < 0:
            task.line, task.text = number, line[:SHOWN]  # not when the slot was made
        event = handler(self.reading, task, line[place.begin :])
        if event is not None:
            self.reading.saw(event, number, line)
        if how == RELEASE:
            self.assembly.release(task)
            self._tick(line)
        elif how == TIMED and self._number < 0:
            self._head = ""
            self.assembly.tasks[self._key] = task

    def _header(self, task: Task, key: Key) -> None:
        """Builds to b9093 print `id N | task M |` alone, and the timings below it."""
        self.assembly.turn_to(key[0], task)
        if task.task is None:
            self._head = ""
            self.assembly.tasks[key] = task
            self.assembly.chosen.pop(key, None)

    def _unknown_text(self, task: Task, place: SlotLine, line: str, number: int) -> None:
        if self._trouble(line[place.begin :], line, number):
            self._known[self._shape] = place._replace(how=SILENT)
        elif self._troubles.get(self._shape) in error_lines.FORCED:  # ik_llama.cpp's words
            task.forced = True

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

    def _timing(self, handler: Reader, bare: str, source: str, line: str, number: int) -> None:
        """Read a timing line that stands below its header and names no task."""
        task = self.assembly.currents.get(source) or self._current(source, number, line)
        event = handler(self.reading, task, bare)
        if event:
            self.reading.saw(event, number, line)

    def _other(self, line: str, number: int) -> bool:
        text, source, stamped = strip_prefixes(line.lstrip())
        text = text.lstrip()
        if stamped:
            self.reading.marks.add("stamps")
        if len(text) < len(line) and (handler := slot_lines.UNSTAMPED.get(text[:8])):
            self.reading.marks.add("timing")
            if handler is slot_lines.nothing:
                return True
            self._remember(handler, text, line, TIMING)
            self._timing(handler, text, source, line, number)
            return False
        if text.startswith("{") and self._json(text, source, line, number):
            return False
        if text.startswith("vllm:") and text[5:6] != " ":
            known = self._remember(vllm_lines.read_metric, text, line, PLAIN)
            self._known_line(line, known, number)
            return False
        return self._message(text, source, line, number)

    def _current(self, source: str, number: int, line: str) -> Task:
        """Return the task that lines of `source` without a task belong to."""
        assembly = self.assembly
        if source not in assembly.currents:
            running = [
                task for key, task in assembly.tasks.items()
                if key[0] == source and task.released is None
            ]  # fmt: skip
            alone = running[0] if len(running) == 1 else None
            assembly.turn_to(source, alone or assembly.open((source, None), None, number, line))
        return assembly.currents[source]

    def _message(self, text: str, source: str, line: str, number: int) -> bool:
        """Try the grammars whose first letters fit, then the named functions."""
        kind = _FIRST.get(text[:3])
        if kind is None:
            return self._named(text, line, number)
        if kind == "srv":
            return not self._srv(text, line, number) and self._last_trouble(text, line, number)
        if kind == "dash":
            return not self._srv_text(text.lstrip(" -"), line, number) and self._named(
                text, line, number
            )
        if kind == "bracket" and (
            places := structured_lines.bracket_places(line, len(line) - len(text.lstrip()))
        ):
            self._known[self._shape] = places
            self._bracket(line, places, source, number)
        elif kind == "timing" and old_lines.is_old_timing(text):
            self._old_timing(text, source, line, number)
        elif kind != "old" or not old_lines.read_old(self.assembly, source, text, number):
            return self._named(text, line, number)
        return False

    def _old_timing(self, text: str, source: str, line: str, number: int) -> None:
        self.reading.marks.add("old-timing" if "print_timings" in text[:20] else "timing")
        bare = text.partition(":")[2].lstrip()
        handler = slot_lines.TABLE.get(bare[:8])
        if handler is not None:
            self._remember(handler, bare, line, TIMING)
            self._timing(handler, bare, source, line, number)

    def _srv(self, text: str, line: str, number: int) -> bool:
        found = _SRV.match(text)
        return found is not None and self._srv_text(text[found.end() :].lstrip(" -"), line, number)

    def _srv_text(self, text: str, line: str, number: int) -> bool:
        handler = srv_lines.TABLE.get(text[: srv_lines.HEAD])
        if handler is None:
            return False
        self.reading.marks.add("srv")
        self._known_line(line, self._remember(handler, text, line, PLAIN), number)
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
            inner = message.rstrip("\n")
            escapes = len(message) - len(inner)
            if (envelope := envelope_of(line, inner, escapes=escapes)) is not None:
                self._known[self._shape] = envelope
            self.feed_inner(inner, number)
        return True

    def feed_inner(self, message: str, number: int) -> None:
        """Read the line inside a JSON envelope under the envelope's number."""
        before = self._line
        self._line = number - 1
        self.feed(batch_of(message.replace("\n", " ").encode(errors="replace")))
        self._line = before

    def _bracket(self, line: str, places: Places, source: str, number: int) -> None:
        values = places.values_of(line)
        self._structured(places.text(line), values, source, line, number)

    def _structured(
        self, text: str, values: dict[str, object], source: str, line: str, number: int
    ) -> None:
        event = structured_lines.read_structured(self.assembly, source, text, values, number)
        if event:
            self.reading.saw(event, number, line)
        elif not text.startswith(("kv cache", "slot", "prompt", "generation")):
            self._trouble(f"{text} {values.get('error', '')}", line, number)

    def _named(self, text: str, line: str, number: int) -> bool:  # noqa: C901, PLR0911 - a chain
        """Read `FUNCTION: text`, a build, an option line, vLLM; else look for trouble."""
        reading = self.reading
        found = _NAME.match(text)
        if text.startswith("main: build = ") and self._build(reading, text):
            return False
        if found and (reader := start_lines.TABLE.get(found[1])) is not None:
            return self._function(found[1], reader, text[found.end() :].lstrip(), line, number)
        if text.startswith("Device "):
            reading.gpus.add("GPU")
            return True
        if "statistics" in text[:24]:
            start_lines.statistics(reading, text.lstrip())
        elif "speculati" in text and (event := start_lines.speculation(reading, text)):
            self._remember(start_lines.speculation, text, line, PLAIN)
            reading.saw(event, number, line)
            return False
        if (vllm := vllm_lines.reader_of(reading, text)) is not None:
            if event := vllm(reading, text):
                reading.saw(event, number, line)
                self._remember(vllm, text, line, PLAIN)
                return False
        elif ("build" in text or "version: " in text) and self._build(reading, text):
            self._remember(self._build, text, line, OF_BUILD)
            return False
        elif text == self._command:
            return False
        elif not (" --" in text or " -c" in text) or not old_lines.read_options(reading, text):
            return self._last_trouble(text, line, number)
        else:
            self._command = text
        if not self._trouble(text, line, number):
            self._command = ""
        return False

    def _function(self, name: str, reader: Reader, text: str, line: str, number: int) -> bool:
        """Read what a function named in front says; True when it says nothing."""
        self.reading.marks.add(name)
        begins = name in _STARTERS and "loading model" in text
        if begins and self.reading.loads:
            self._maybe_restart(text)
        event = reader(self.reading, text)
        if event:
            self.reading.saw(event, number, line)
        silent = event in {None, "kv-failed"} and self._trouble(text, line, number)
        if not begins and not silent:
            self._remember(reader, text, line, FUNCTION)
        return silent and event is None and not begins

    def _build(self, reading: LogReading, text: str) -> str | None:
        """Take the number of a build; after tasks it is a new start's."""
        found = _BUILD.search(text)
        if found is None:
            return None
        if reading.build is not None and reading.task_count:
            self._restart()
        reading.build = next(part for part in found.groups() if part)
        return reading.build

    def _maybe_restart(self, text: str) -> None:
        """Loading a model after tasks were served is a new start, not a draft."""
        if "tensors" in text and (self.reading.task_count or self.assembly.tasks):
            self._restart()

    def _last_trouble(self, text: str, line: str, number: int) -> bool:
        """Look for a sentence that means trouble in a line that says nothing else."""
        before = self.reading.said
        silent = self._trouble(text, line, number)
        trouble = self._troubles.get(self._shape)
        if trouble is not None and trouble.event != "mismatch" and self.reading.said > before:
            self._remember(trouble.take, text, line, PLAIN)
        return silent

    def _trouble(self, text: str, line: str, number: int) -> bool:
        """Look for a sentence that means trouble; True when there is none of any kind."""
        if self._shape in self._troubles:
            trouble = self._troubles[self._shape]
        else:
            trouble = error_lines.find_trouble(text)
            if not error_lines.depends_on_figures(self._shape):
                self._troubles[self._shape] = trouble
        self.reading.line = number
        if trouble is not None and (event := trouble.take(self.reading, text)):
            self.reading.saw(event, number, line)
            if event == "mismatch":
                old_lines.mark_mismatch(self.assembly, number, line)
            return False
        if "devices:" in text or "Device 0" in text or "buffer size" in text:
            start_lines.device(self.reading, text)
        elif not old_lines.read_rest(self.assembly, text, number):
            return False
        return trouble is None and self._shape in self._troubles


_FIRST = {
    "srv": "srv", "cmn": "srv", "spe": "srv",
    "- c": "dash", "- p": "dash", "- s": "dash", "- l": "dash", "- f": "dash",
    "INF": "bracket", "WAR": "bracket", "ERR": "bracket", "VER": "bracket", "DEB": "bracket",
    "DBG": "bracket",
    "pri": "timing", "lla": "timing",
    "slo": "old", "===": "old",
}  # fmt: skip
_STARTERS = frozenset({"load_tensors", "llm_load_tensors"})


def read_log(chunks: Iterable[bytes], on_task: Callable[[Task], None] | None = None) -> LogReading:
    """Read a log from chunks of bytes (about a MiB each is fast).

    `on_task` sees each task as it is finished, those too that are not kept. Raises
    `UserError` for content that is no log text.
    """
    reader = LogReader(on_task)
    for batch in line_batches(chunks):
        reader.feed(batch)
    return reader.finish()
