"""Read a log of any generation, line by line, in constant memory.

Each line goes to the first grammar that knows its beginning: slot lines, timing lines
without a prefix, `srv` lines, structured lines, vLLM, named functions; what is left is
searched for sentences that mean trouble.
"""

# ruff: noqa: D401 - the first words say which line, event or state is meant
from __future__ import annotations

import re
from itertools import count, repeat
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
from fleet.diagnose.read_log.known_lines import envelope_of, figures_at, slot_line_of
from fleet.diagnose.read_log.lines import SHAPE, line_batches
from fleet.diagnose.read_log.log_reading import SHOWN, LogReading, Task
from fleet.diagnose.read_log.prefixes import clock_place, microseconds, source_place, strip_prefixes
from fleet.diagnose.read_log.structured_lines import number_of
from fleet.diagnose.read_log.task_assembly import TaskAssembly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fleet.diagnose.read_log.known_lines import Figures, SlotLine, TaskPlace
    from fleet.diagnose.read_log.lines import Batch
    from fleet.diagnose.read_log.rows import Row, Spans, Take
    from fleet.diagnose.read_log.structured_lines import Places, Values

    Reads = Callable[[str, int], object]  # a line of one shape, and its number

_SRV = re.compile(r"(?:srv|cmn|spec)\s+\S+?:?\s+(?:- )?")
_BUILD = re.compile(
    r"(?:build_info: (b\d+)|build: (\d+) \(|version: (\d+) \(|\(build (\d+), |build = (\d+) \()"
)
_NAME = re.compile(r"([A-Za-z_]\w*)\s*: ?")
SHAPES = 20_000  # remembered at most, between batches
LONG = 4000  # characters; Python refuses numbers of more than 4,300 digits
_RESTART_US = 1_000_000  # a clock that goes back by more is a new start


class LogReader:
    """Feed it batches of lines, then ask for the reading.

    Logs say the same again and again with other figures. How lines of a shape (`lines.Batch`)
    are read is found out once, and kept: None when they say nothing, whatever their figures.
    """

    def __init__(self, on_task: Callable[[Task], None] | None = None) -> None:
        """Start with nothing read; `on_task` sees every finished task."""
        self.reading = LogReading()
        self.assembly = TaskAssembly(self.reading, on_task=on_task)
        self._clocks: dict[str, int] = {}  # by the server, of several in one log
        self._seen_slots = False
        # lines of one task follow each other: what the last slot line began with
        self._head, self._source, self._key, self._number = "", "", ("", 0), -1
        self._task = Task()
        self._line = 0
        self._loading = ""  # the server that loaded a model last, of several
        self._shape, self._shapes = b"", [b""]
        self._known: dict[bytes, Reads | None] = {}
        self._troubles: dict[bytes, error_lines.Trouble | None] = {}

    def feed(self, batch: Batch) -> None:
        """Read a batch."""
        lines, shapes = batch
        if max(map(len, lines), default=0) > LONG:  # what follows is no figure
            lines = [line if line[:1] == "{" else line[:LONG] for line in lines]
            self.forget()
        if len(self._known) > SHAPES:
            self.forget()
        first, self._shapes, sides = self._line + 1, shapes, self.reading.sides
        reads = map(self._known.get, shapes, repeat(self._first_of_shape))
        for line, number, read in zip(lines, count(first), reads):
            if read is not None:
                read(line, number)
            elif sides and not old_lines.are_full(sides):
                self._first_of_shape(line, number)
        self._line = self.reading.lines = first + len(lines) - 1

    def forget(self) -> None:
        """Forget how lines of each shape are read; only memory and time depend on it."""
        self._known.clear()
        self._troubles.clear()

    def _first_of_shape(self, line: str, number: int) -> None:
        self._read_new(line, self._shapes[number - self._line - 1], number)

    def _read_new(self, line: str, shape: bytes, number: int) -> None:
        self._shape = shape
        if self._new_line(line, number):
            self._known[shape] = None

    def _new_line(self, line: str, number: int) -> bool:
        """Read a line of a new shape; True when it says nothing, whatever its figures."""
        at = line.find(" | task ")
        if at >= 0:
            place = slot_line_of(line, at) if line[0] != "{" else None
            if place is None:
                return self._other(line, number)
            if not self._seen_slots:
                self._first_slot_line(line)
            return self._new_slot_line(line, place, number)
        bare = line.lstrip()
        if (row := slot_lines.UNSTAMPED.get(bare[:8])) is not None:
            self.reading.marks.add("timing")
            return self._timing(row, bare, line, number)
        return not bare or self._other(line, number)

    def _remember(self, read: Reads, line: str, number: int) -> None:
        """Let `read` have lines of this shape from now on, and this one."""
        self._known[self._shape] = read
        read(line, number)

    def finish(self) -> LogReading:
        """Close what is open and return the reading."""
        self.assembly.end()
        self.assembly.drop_middle()
        self.assembly.last_figures()
        vllm_lines.finish_metrics(self.reading)
        settle_generation(self.reading)
        return self.reading

    def _new_slot_line(self, line: str, place: SlotLine, number: int) -> bool:
        """Read `... id  N | task M | TEXT`; True when lines of this shape begin no task either."""
        row = place.row
        found = row.find(line, place.begin)
        if place.how == slot_lines.UNKNOWN:
            self._unknown_text(place, line, number)
        elif place.how == slot_lines.HEADER:
            self._remember(self._header_reader(place), line, number)
        elif found is None:
            if line[place.task.number] == "-1":
                return True
            self._remember(self._opener(place.task), line, number)
        elif place.how == slot_lines.OF_SLOT:
            self._remember(self._slot_reader(place, figures_at(found[1])), line, number)
        else:
            self._remember(self._task_reader(place.task, place.how, found, line), line, number)
        return False

    def _opener(self, place: TaskPlace) -> Callable[[str, int], Task]:
        """Return what finds the task of a line of this shape."""
        named, whole, slot, task = place

        def task_of(line: str, number: int) -> Task:
            head, source = line[whole], line[named]
            if head == self._head and source == self._source:
                return self._task
            self._number = int(line[task])
            self._key = (source, int(line[slot]))
            self._head, self._source = head, source
            self._task = self.assembly.of(self._key, self._number, number, line)
            return self._task

        return task_of

    def _task_reader(
        self, place: TaskPlace, how: int, found: tuple[Take, Spans], line: str
    ) -> Reads:
        """Return what takes the figures of lines of this shape for their task."""
        reading, task_of, take, figures = (
            self.reading, self._opener(place), found[0], figures_at(found[1])
        )  # fmt: skip
        named, head, _, task_number = place
        clock, no_task = clock_place(line), line[task_number].startswith("-")

        def taken(line: str, number: int) -> None:
            same = line[head] == self._head and line[named] == self._source  # no call: it is fast
            task = self._task if same else task_of(line, number)
            if event := take(reading, task, *figures(line)):
                reading.saw(event, number, line)

        def with_more(line: str, number: int) -> None:
            task = task_of(line, number)
            if how == slot_lines.LAUNCH:
                task = self._launched(task, clock and line[clock], line, number)
            elif how == slot_lines.CHOICE:
                task.line, task.text = number, line[:SHOWN]  # not when the slot was made
            event = take(reading, task, *figures(line))
            if event is not None:
                reading.saw(event, number, line)
            if how == slot_lines.RELEASE:
                self.assembly.release(task)
                self._tick(clock and line[clock])
            elif how == slot_lines.TIMED:
                self._head = ""
                self.assembly.tasks[self._key] = task

        only_so = how in {slot_lines.TIMED, slot_lines.CHOICE} and not no_task
        return taken if how == slot_lines.TAKEN or only_so else with_more

    def _slot_reader(self, place: SlotLine, figures: Figures) -> Reads:
        """Return what reads `new slot`."""
        ((_, take),) = place.row.patterns

        def of_slot(line: str, _number: int) -> None:
            take(self.reading, self._task, *figures(line))
            slots = int(line[place.task.slot]) + 1
            self.reading.n_slots = max(self.reading.n_slots or 0, slots)

        return of_slot

    def _header_reader(self, place: SlotLine) -> Reads:
        """Builds to b9093 print `id N | task M |` alone, and the timings below it."""
        task_of = self._opener(place.task)

        def header(line: str, number: int) -> None:
            task, key = task_of(line, number), self._key
            self.assembly.turn_to(key[0], task)
            if task.task is None:
                self._head = ""
                self.assembly.tasks[key] = task
                self.assembly.chosen.pop(key, None)

        return header

    def _unknown_text(self, place: SlotLine, line: str, number: int) -> None:
        """Look for trouble in a slot line that no row of the table takes."""
        task_of, shape = self._opener(place.task), self._shape
        silent = self._trouble(shape, line[place.begin :], line, number)
        if silent:
            self._known[shape] = None if line[place.task.number] == "-1" else task_of
        if not silent or self._known[shape]:
            task = task_of(line, number)
            task.forced |= self._troubles.get(shape) in error_lines.FORCED  # ik_llama.cpp's words

    def _first_slot_line(self, line: str) -> None:
        """Tell the generation by whether slot lines carry a clock."""
        self._seen_slots = True
        self.reading.marks.add("stamps" if clock_place(line) else "slots")

    def _launched(self, task: Task, clock: str | None, line: str, number: int) -> Task:
        """Begin a task; a clock that went back, or a number used twice, is a new start."""
        again = task.launched and task.released is not None
        if self._tick(clock) or again:
            self._restart(self._source)
            task = self._task = self.assembly.open(self._key, self._number, number, line)
        return task

    def _tick(self, clock: str | None) -> bool:
        """Move the clock; True when it went back."""
        if clock is None or "stamps" not in self.reading.marks:
            return False
        now, clocks = microseconds(clock), self._clocks
        before, clocks[self._source] = clocks.get(self._source, 0), now
        return now < before - _RESTART_US

    def _restart(self, source: str) -> None:
        """Begin anew with one of the servers: slots are empty, numbers begin again."""
        reading = self.reading
        if self.assembly.served(source):
            reading.starts += 1
            self.assembly.restart(source)
        self._head = ""
        reading.loads = 0
        reading.kvs.clear()
        reading.n_ctx = None

    def _timing(self, row: Row, text: str, line: str, number: int) -> bool:
        """Read a timing line that stands below its header and names no task."""
        found = row.find(line, len(line) - len(text))
        if found is None:
            return True
        reading, currents = self.reading, self.assembly.currents
        take, figures, named = found[0], figures_at(found[1]), source_place(line)

        def timing(line: str, number: int) -> None:
            source = line[named]
            task = currents.get(source) or self._current(source, number, line)
            if event := take(reading, task, *figures(line)):
                reading.saw(event, number, line)

        self._remember(timing, line, number)
        return False

    def _other(self, line: str, number: int) -> bool:
        text, source, stamped = strip_prefixes(line.lstrip())
        text = text.lstrip()
        if stamped:
            self.reading.marks.add("stamps")
        if len(text) < len(line) and (row := slot_lines.UNSTAMPED.get(text[:8])) is not None:
            self.reading.marks.add("timing")
            return self._timing(row, text, line, number)
        if text.startswith("{") and self._json(text, source, line, number):
            return False
        if text.startswith("vllm:") and text[5:6] != " ":
            return not self._row(vllm_lines.METRIC, text, line, number)
        return self._message(text, line, number)

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

    def _message(self, text: str, line: str, number: int) -> bool:  # noqa: PLR0911 - a chain
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
        if kind == "bracket":
            places = structured_lines.bracket_places(line, len(line) - len(text.lstrip()))
            if places is None:
                return self._named(text, line, number)
            self._remember(self._bracket_reader(places, line), line, number)
        elif kind == "timing" and old_lines.is_old_timing(text):
            return self._old_timing(text, line, number)
        elif kind != "old" or not self._old(text, line, number):
            return self._named(text, line, number)
        return False

    def _old(self, text: str, line: str, number: int) -> bool:
        """Read `slot N ...` of 2023 and `======== Cache:` of ik_llama.cpp; False for others."""
        read = old_lines.reader_of(line, len(line) - len(text))
        if read is None:
            return False
        assembly, named = self.assembly, source_place(line)
        self._remember(lambda line, number: read(assembly, line[named], line, number), line, number)
        return True

    def _old_timing(self, text: str, line: str, number: int) -> bool:
        self.reading.marks.add("old-timing" if "print_timings" in text[:20] else "timing")
        bare = text.partition(":")[2].lstrip()
        row = slot_lines.UNSTAMPED.get(bare[:8])
        return row is None or self._timing(row, bare, line, number)

    def _srv(self, text: str, line: str, number: int) -> bool:
        found = _SRV.match(text)
        return found is not None and self._srv_text(text[found.end() :].lstrip(" -"), line, number)

    def _srv_text(self, text: str, line: str, number: int) -> bool:
        row = srv_lines.TABLE.get(text[: srv_lines.HEAD])
        if row is None:
            return False
        self.reading.marks.add("srv")
        if row is srv_lines.IDLE:
            self._remember(lambda _line, _number: self.assembly.idle(), line, number)
        elif not self._row(row, text, line, number):
            self._known[self._shape] = None
        return True

    def _row(self, row: Row, text: str, line: str, number: int) -> bool:
        """Let a row have a text, and those of its shape; False when it finds nothing in it."""
        if row.once:
            row.once(self.reading, text)
        found = row.find(line, len(line) - len(text))
        if found is None:
            return False
        reading, take, figures = self.reading, found[0], figures_at(found[1])

        def taken(line: str, number: int) -> None:
            if event := take(reading, *figures(line)):
                reading.saw(event, number, line)

        self._remember(taken, line, number)
        return True

    def _json(self, text: str, source: str, line: str, number: int) -> bool:
        found = structured_lines.json_line(text)
        if found is None:
            return False
        if told := structured_lines.timings_of(found):
            self._timings(told, source, line, number)
            return True
        message = found.get("msg", found.get("message", found.get("log")))
        if not isinstance(message, str):
            return False
        if "tid" in found or "function" in found:
            self.reading.marks.add("json23" if "message" in found else "brackets")
            place = envelope_of(line, message)
            if place and (places := structured_lines.json_places(line, place)):
                self._remember(self._bracket_reader(places, line), line, number)
            else:
                self._structured(None, message, found, source, line, number)
        else:
            self.reading.marks.add("jsonl")
            inner = message.rstrip("\n")
            escapes = len(message) - len(inner)
            shape = inner.encode(errors="replace").translate(SHAPE)
            if place := envelope_of(line, inner, escapes=escapes):
                self._known[self._shape] = self._inner_reader(place, shape)
            self._inner_line(inner.replace("\n", " "), shape.replace(b"\n", b" "), number)
        return True

    def _timings(self, told: Values, source: str, line: str, number: int) -> None:
        """Take an answer's timings, and those of lines of the same shape from now on."""
        structured_lines.take_timings(self.assembly, source, told, number, line)
        places, named = structured_lines.number_places(line, told), source_place(line)
        if places is None:
            return

        def timings(line: str, number: int) -> None:
            told = {name: number_of(line[place]) for name, place in places.items()}
            structured_lines.take_timings(self.assembly, line[named], told, number, line)

        self._known[self._shape] = timings

    def _inner_reader(self, place: slice, shape: bytes) -> Reads:
        return lambda line, number: self._inner_line(line[place], shape, number)

    def _inner_line(self, line: str, shape: bytes, number: int) -> None:
        """Read the line of a log that stands in one of JSON."""
        read = self._known.get(shape)
        if read is not None:
            read(line, number)
        elif shape not in self._known or self.reading.sides:
            self._read_new(line, shape, number)

    def _bracket_reader(self, places: Places, line: str) -> Reads:
        """Return what reads lines `INFO [ f] text | k=v k=v` of this shape."""
        place, words, stamp = places.task(line), places.text(line), places.number(line, "timestamp")
        reading, assembly, named, shape = self.reading, self.assembly, places.named, self._shape

        def bracket(line: str, number: int) -> None:
            values = places.values_of(line)
            self._structured(shape, places.text(line), values, line[named], line, number)

        if place is None:
            return bracket
        if stamp:
            structured_lines.era(reading, int(line[stamp]))
        if found := structured_lines.printed(line, places.begin):
            return self._task_reader(place, slot_lines.TAKEN, found, line)
        take, names = structured_lines.task_line(words)
        task_of, wanted = self._opener(place), places.only(names)
        if take is None:
            silent = "error" not in places.values and error_lines.find_trouble(words) is None
            return task_of if silent else bracket

        def of_task(line: str, number: int) -> None:
            if stamp and reading.engine is None:
                structured_lines.era(reading, int(line[stamp]))
            event = take(assembly, line[named], task_of(line, number), wanted.values_of(line))
            if event:
                reading.saw(event, number, line)

        return of_task

    def _structured(
        self,
        shape: bytes | None,
        text: str,
        values: Values,
        source: str,
        line: str,
        number: int,
    ) -> None:
        event = structured_lines.read_structured(self.assembly, source, text, values, number)
        if event:
            self.reading.saw(event, number, line)
        elif not text.startswith(("kv cache", "slot", "prompt", "generation")):
            self._trouble(shape, f"{text} {values.get('error', '')}", line, number)

    def _named(self, text: str, line: str, number: int) -> bool:  # noqa: C901, PLR0911 - a chain
        """Read `FUNCTION: text`, a build, an option line, vLLM; else look for trouble."""
        reading = self.reading
        found = _NAME.match(text)
        if text.startswith("main: build = ") and self._build(line, text):
            return False
        if found and (row := start_lines.TABLE.get(found[1])) is not None:
            return self._function(found[1], row, text[found.end() :].lstrip(), line, number)
        if text.startswith("Device "):
            reading.gpus.add("GPU")
            return True
        if "statistics" in text[:24]:
            start_lines.statistics(reading, text.lstrip())
        elif "speculati" in text and self._row(start_lines.SPECULATION, text, line, number):
            return False
        if vllm_lines.seen(reading, text) and self._row(vllm_lines.ROW, text, line, number):
            if error_lines.find_trouble(text) is None:
                return False
            del self._known[self._shape]
        elif ("build" in text or "version: " in text) and self._build(line, text):
            begin = len(line) - len(text)
            self._known[self._shape] = lambda line, _number: self._build(line, line[begin:])
            return False
        elif options := old_lines.options_of(text):
            reading.options.update(options)
            if self._trouble(self._shape, text, line, number):
                self._known[self._shape] = self._command_reader(
                    len(line) - len(text), text, options
                )
            return False
        return self._last_trouble(text, line, number)

    def _command_reader(self, begin: int, text: str, options: Mapping[str, str]) -> Reads:
        """Return what takes a server's command line, most often the same one again."""

        def command(line: str, _number: int) -> None:
            again = line[begin:]
            self.reading.options.update(options if again == text else old_lines.options_of(again))

        return command

    def _function(self, name: str, row: Row, text: str, line: str, number: int) -> bool:
        """Read what a function named in front says; True when it says nothing."""
        reading, shape = self.reading, self._shape
        reading.marks.add(name)
        begins = name in _STARTERS and "loading model" in text
        if begins and "tensors" in text:
            named = source_place(line)
            self._remember(lambda line, _number: self._maybe_restart(line[named]), line, number)
            return False
        source = line[source_place(line)] if "offloaded" in text else ""
        if source not in {"", self._loading}:  # one server of several, not a draft
            self._loading, reading.loads = source, 0
        before = reading.said
        found = self._row(row, text, line, number)
        if source:
            self._known.pop(shape, None)
        if reading.said > before:
            return False
        silent = self._last_trouble(text, line, number)
        if found and not silent:
            self._known.pop(shape, None)  # to be looked at again
        return silent and not found

    def _build(self, line: str, text: str) -> bool:
        """Take the number of a build, if there is one; after tasks it is a new start's."""
        reading, found = self.reading, _BUILD.search(text)
        if found is None:
            return False
        source = line[source_place(line)]
        if reading.build is not None and self.assembly.served(source):
            self._restart(source)
        reading.build = next(part for part in found.groups() if part)
        return True

    def _maybe_restart(self, source: str) -> None:
        """Loading a model after tasks were served is a new start, not a draft."""
        if self.reading.loads and self.assembly.served(source):
            self._restart(source)

    def _last_trouble(self, text: str, line: str, number: int) -> bool:
        """Look for a sentence that means trouble in a line that says nothing else."""
        before = self.reading.said
        silent = self._trouble(self._shape, text, line, number)
        trouble = self._troubles.get(self._shape)
        if trouble is not None and self.reading.said > before:
            self._known[self._shape] = self._trouble_reader(trouble, len(line) - len(text))
        return silent

    def _trouble_reader(self, trouble: error_lines.Trouble, begin: int) -> Reads:
        """Return what reads lines that say the same sentence."""
        reading, read, event = self.reading, trouble.read, trouble.event

        def sentence(line: str, number: int) -> None:
            reading.saw(event, number, line)
            if event == "mismatch":
                old_lines.mark_mismatch(self.assembly, number, line)

        def with_figures(line: str, number: int) -> None:
            reading.line = number
            if read and (event := read(reading, line[begin:])):
                reading.saw(event, number, line)

        return with_figures if read else sentence

    def _trouble(self, shape: bytes | None, text: str, line: str, number: int) -> bool:
        """Look for a sentence that means trouble; True when there is none of any kind.

        What is found in a line of a shape is found in all of them, but for some figures.
        """
        known = shape in self._troubles
        if known and shape is not None:
            trouble = self._troubles[shape]
        else:
            trouble = error_lines.find_trouble(text)
            if shape is not None and not error_lines.depends_on_figures(shape):
                self._troubles[shape] = trouble
                known = True
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
        return trouble is None and known


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
    """Read a log from chunks of bytes (some 64 KiB each is fast).

    `on_task` sees each task as it is finished, those too that are not kept. Raises
    `UserError` for content that is no log text.
    """
    reader = LogReader(on_task)
    for batch in line_batches(chunks):
        reader.feed(batch)
    return reader.finish()
