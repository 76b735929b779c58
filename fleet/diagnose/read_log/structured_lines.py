"""Lines that carry named values: `INFO [function] text | key=value`, JSON of 2023 to now.

ik_llama.cpp and llama.cpp of 2024 write the same shapes; 2023 wrote JSON objects with
`message`; `--log-format json` writes `msg`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from fleet.diagnose.read_log import slot_lines
from fleet.diagnose.read_log.known_lines import TaskPlace
from fleet.diagnose.read_log.log_reading import SHOWN
from fleet.diagnose.read_log.prefixes import source_place

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from fleet.diagnose.read_log.log_reading import LogReading, Task
    from fleet.diagnose.read_log.rows import Spans, Take
    from fleet.diagnose.read_log.task_assembly import TaskAssembly

    TakeTask = Callable[[TaskAssembly, str, Task, Mapping[str, Any]], str | None]

Values = dict[str, Any]
LEVELS = frozenset({"INFO", "WARN", "ERR", "ERROR", "VERB", "VERBOSE", "DBG", "DEBUG"})
WANTED = frozenset(
    {
        "id_slot", "slot_id", "id_task", "task_id", "p0", "n_past", "n_cache_tokens", "n_ctx",
        "n_ctx_slot", "n_slots", "truncated", "timestamp", "build", "error",
    }
)  # fmt: skip
_PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)')
_JSON_PAIR = re.compile(r'"(\w+)":\s*("[^"]*"|[^\s,}]+)')
_NUMBER = re.compile(r'"(\w+)":\s*(-?\d[\d.eE+-]*)')
MAINLINE_CHANGED = 1_725_500_000  # September 2024: llama.cpp left this shape, ik kept it
LIMIT = 256 * 1024


class Places(NamedTuple):
    """Where text and values of interest stand in a line `INFO [ f] text | k=v k=v`."""

    named: slice  # the server, by another program in front
    begin: int
    end: int
    values: Mapping[str, slice]

    def text(self, line: str) -> str:
        """Return the text."""
        return line[self.begin : self.end].strip()

    def values_of(self, line: str) -> Values:
        """Return the values of interest."""
        return {key: _value(line[place]) for key, place in self.values.items()}

    def only(self, names: Container[str]) -> Places:
        """Return the places of some values."""
        kept = {key: place for key, place in self.values.items() if key in names}
        return self._replace(values=kept)

    def number(self, line: str, *names: str) -> slice | None:
        """Return where the first of `names` stands if it is a number in lines like `line`."""
        place = next((self.values[name] for name in names if name in self.values), None)
        return place if place and isinstance(_value(line[place]), int) else None

    def task(self, line: str) -> TaskPlace | None:
        """Return where slot and task stand, None where lines like `line` do not name both."""
        slot = self.number(line, "id_slot", "slot_id")
        number = self.number(line, "id_task", "task_id")
        if slot is None or number is None or number.start < slot.start:
            return None
        return TaskPlace(self.named, slice(slot.start, number.stop), slot, number)


def bracket_places(line: str, begin: int) -> Places | None:
    """Return where things stand in a line whose own words start at `begin`, None in others."""
    bracket, end = line.find("[", begin), line.find("] ", begin)
    if not begin <= bracket < end or line[begin:bracket].strip() not in LEVELS:
        return None
    bar = line.find(" | ", end)
    stop = len(line) if bar < 0 else bar
    values = {
        found[1]: slice(*found.span(2))
        for found in _PAIR.finditer(line, stop, LIMIT)
        if found[1] in WANTED
    }
    return Places(source_place(line), end + 2, stop, values)


def json_places(line: str, message: slice) -> Places | None:
    """Return the same for a flat JSON object whose `message` stands there."""
    values = {
        found[1]: slice(*found.span(2)) for found in _JSON_PAIR.finditer(line) if found[1] in WANTED
    }
    flat = line.count("{") == 1
    return Places(source_place(line), message.start, message.stop, values) if flat else None


def _value(text: str) -> Any:  # noqa: ANN401 - whatever the log says
    try:
        return int(text)
    except ValueError:
        return WORDS.get(text) if text in WORDS else text.strip('"')


WORDS = {"true": True, "false": False}


def json_line(line: str) -> Values | None:
    """Return the object of a JSON line, or None."""
    try:
        found = json.loads(line[:LIMIT])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_structured(
    assembly: TaskAssembly, source: str, text: str, values: Mapping[str, Any], line: int
) -> str | None:
    """Take one structured line into the reading; return the event it is, if any."""
    reading = assembly.reading
    era(reading, values.get("timestamp"))
    text = text.lstrip()
    if text.startswith("build info"):
        reading.build = str(values.get("build", reading.build))
        return "build"
    task = _task_of(assembly, source, values, line, text)
    if text.startswith("all slots are idle"):
        assembly.idle()
        return None
    if task is None:
        return _no_task(reading, text, values)
    if (found := printed(text, 0)) is not None:
        take_figures, spans = found
        return take_figures(reading, task, *(text[slice(*span)] for span in spans))
    take, _ = task_line(text)
    return take(assembly, source, task, values) if take else None


def era(reading: LogReading, stamp: object) -> None:
    """Tell ik_llama.cpp, which kept this shape, by when the line was written."""
    if isinstance(stamp, int):
        reading.marks.add("brackets")
        if stamp > MAINLINE_CHANGED:
            reading.engine = "ik_llama.cpp"


def _task_of(
    assembly: TaskAssembly, source: str, values: Mapping[str, Any], line: int, text: str
) -> Task | None:
    slot = values.get("id_slot", values.get("slot_id"))
    number = values.get("id_task", values.get("task_id"))
    if not isinstance(slot, int):
        return None
    if not isinstance(number, int):
        return assembly.tasks.get((source, slot))
    return assembly.of((source, slot), number, line, text[:SHOWN])


def _no_task(reading: LogReading, text: str, values: Mapping[str, Any]) -> str | None:
    for name in ("n_ctx", "n_ctx_slot", "n_slots"):
        value = values.get(name)
        if isinstance(value, int) and value > 0 and "slot" in text:
            setattr(reading, name, value)
    if text.startswith(("HTTP server listening", "model loaded", "initializing slots")):
        reading.marks.add("started")
    return None


def _begun(assembly: TaskAssembly, source: str, task: Task, _values: Mapping[str, Any]) -> None:
    task.launched = True
    assembly.turn_to(source, task)


def _reuse(assembly: TaskAssembly, _source: str, task: Task, values: Mapping[str, Any]) -> None:
    position = values.get("p0", values.get("n_past"))
    if isinstance(position, int):
        slot_lines.mark_reuse(assembly.reading, task, position)


def _released(
    assembly: TaskAssembly, _source: str, task: Task, values: Mapping[str, Any]
) -> str | None:
    past, kept = values.get("n_past"), values.get("n_cache_tokens")
    if isinstance(past, int):
        task.released = past
    if isinstance(values.get("n_ctx"), int):
        assembly.reading.n_ctx = values["n_ctx"]
    task.truncated = values.get("truncated") is True
    task.not_cached_on_release = kept == 0 and bool(past)
    assembly.release(task)
    if task.not_cached_on_release:
        return "nothing-kept"
    return "truncated" if task.truncated else None


def _shifted(assembly: TaskAssembly, _source: str, task: Task, values: Mapping[str, Any]) -> str:
    if isinstance(values.get("n_ctx"), int):
        assembly.reading.n_ctx = values["n_ctx"]
    task.shifted = True
    return "context-shift"


POSITION = ("p0", "n_past")
TASK_LINES: tuple[tuple[str, TakeTask, tuple[str, ...]], ...] = (
    ("slot is processing", _begun, ()),
    ("kv cache rm", _reuse, POSITION),
    ("updated prompt", _reuse, POSITION),
    ("slot released", _released, ("n_past", "n_cache_tokens", "n_ctx", "truncated")),
    ("context shift", _shifted, ("n_ctx",)),
)  # what a line of a task says, what takes it, and the values that it wants


def printed(line: str, begin: int) -> tuple[Take, Spans] | None:
    """Return what takes the figures of a text that other builds print as a slot's, and where."""
    words = line[begin:].lstrip()
    row = slot_lines.UNSTAMPED.get(words[:8])
    return row.find(line, begin) if row else None


def task_line(text: str) -> tuple[TakeTask | None, tuple[str, ...]]:
    """Return what takes a task's line and which values it wants."""
    return next(((take, names) for words, take, names in TASK_LINES if words in text), (None, ()))


def timings_of(found: Mapping[str, Any]) -> Values | None:
    """Return the figures of an answer's `timings` object, None for other objects."""
    timings = found.get("timings")
    if not isinstance(timings, dict) or "prompt_n" not in timings:
        return None
    told = {name: found.get(name) for name in NUMBERS} | timings
    wanted = (*NUMBERS, *_TIMINGS.values())
    return {name: told[name] for name in wanted if type(told.get(name)) in {int, float}}


def number_places(line: str, names: Iterable[str]) -> Mapping[str, slice] | None:
    """Return where the numbers of a JSON line stand, None unless each is named once."""
    places = {found[1]: slice(*found.span(2)) for found in _NUMBER.finditer(line)}
    once = all(name in places and line.count(f'"{name}"') == 1 for name in names)
    return {name: places[name] for name in names} if once else None


def number_of(text: str) -> float:
    """Return a number as JSON writes it, an int where it is one."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def take_timings(
    assembly: TaskAssembly, source: str, told: Mapping[str, Any], line: int, text: str
) -> None:
    """Take an answer's timings as a task; numbered by `call` or in order."""
    reading = assembly.reading
    number = told.get("call", told.get("id_task"))
    if number is None:
        number = reading.task_count + len(assembly.tasks) + 1
    task = assembly.open((source, told.get("id_slot")), number, line, text)
    reading.marks.add("timings")
    task.selected_by = "timings"
    for name, key in _TIMINGS.items():
        if key in told:
            setattr(task, name, told[key])
    if task.draft_generated:
        task.draft_rate = (task.draft_accepted or 0) / task.draft_generated
        reading.draft_generated += task.draft_generated
        reading.draft_accepted += task.draft_accepted or 0
    if task.prompt is None and task.cached is not None and task.processed is not None:
        task.prompt = task.cached + task.processed


NUMBERS = ("call", "id_task", "id_slot")
_TIMINGS = {
    "cached": "cache_n", "processed": "prompt_n", "gen": "predicted_n",
    "pp_ms": "prompt_ms", "tg_ms": "predicted_ms", "pp_tps": "prompt_per_second",
    "tg_tps": "predicted_per_second", "draft_generated": "draft_n",
    "draft_accepted": "draft_n_accepted",
}  # fmt: skip
