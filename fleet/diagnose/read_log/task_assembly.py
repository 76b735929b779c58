"""Put the lines of one request together, and derive what was not printed.

A task stays open after its release until its slot is used again, since some builds print
its last lines late.
"""

# ruff: noqa: D401 - the first words say which line, event or state is meant
from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet.diagnose.read_log.log_reading import KEPT_ENDS, KEPT_WHOLE, SHOWN, LogReading, Task

if TYPE_CHECKING:
    from collections.abc import Callable

Key = tuple[str, int | None]
SLOWED = 0.6  # generation below this share of an undisturbed task's rate
ENOUGH_GENERATED = 16
TOTALS = ("prompt", "processed", "cached", "gen", "pp_ms", "tg_ms")
LAST = {
    "pp_tps": "pp_tps", "tg_tps": "tg_tps", "prompt": "prompt_tokens",
    "processed": "processed_tokens", "cached": "cached_tokens", "gen": "gen_tokens",
    "draft_rate": "draft_acceptance",
}  # fmt: skip


@dataclass(slots=True)
class TaskAssembly:
    """The tasks that are open, by the server they came from and the slot."""

    reading: LogReading
    tasks: dict[Key, Task] = field(default_factory=dict)
    chosen: dict[Key, Task] = field(default_factory=dict)  # slot choices without a task yet
    busy: list[Task] = field(default_factory=list)
    just_done: list[Task] = field(default_factory=list)  # since all slots were idle
    current: Task | None = None  # whose lines follow without a prefix
    currents: dict[str, Task] = field(default_factory=dict)  # ... by the server
    sources: set[str] = field(default_factory=set)  # servers that had tasks since their start
    held: dict[Key, int] = field(default_factory=dict)  # tokens in the slot after a release
    on_task: Callable[[Task], None] | None = None
    sums: list[float] = field(default_factory=lambda: [0] * len(TOTALS))

    def of(self, key: Key, number: int, line: int, text: str) -> Task:
        """Return the task that a slot line speaks of; -1 is a choice for the next task."""
        task = self.tasks.get(key)
        if number < 0:
            if task is not None and task.released is None:
                return task
            return self.choice(key, line, text)
        if task is not None and task.task == number:
            return task
        return self.open(key, number, line, text)

    def choice(self, key: Key, line: int, text: str) -> Task:
        """Return what is known of the next task of a slot before it has a number."""
        task = self.chosen.get(key)
        if task is None:
            task = self.chosen[key] = _new_task(key, line, text)
        return task

    def open(self, key: Key, number: int | None, line: int, text: str) -> Task:
        """Begin a task on a slot; the one before it is complete now."""
        before = self.tasks.pop(key, None)
        if before is not None:
            self.close(before, key)
        task = self.chosen.pop(key, None) or _new_task(key, line, text)
        task.task = number
        task.start = self.reading.starts
        if task.held is None:
            task.held = self.held.get(key)
        self.tasks[key] = task
        self.sources.add(key[0])
        self._meet(task)
        return task

    def _meet(self, task: Task) -> None:
        """Remember which tasks ran at the same time, a few of them."""
        if self.busy or self.just_done:
            others = [*self.busy, *self.just_done][-4:]
            task.peers = tuple(peer for peer in others if peer.slot != task.slot)
            for peer in self.busy:
                if len(peer.peers) < 4:  # noqa: PLR2004
                    peer.peers += (task,)
        self.busy.append(task)

    def release(self, task: Task) -> None:
        """The slot is free; what the task left in it can be reused by the next."""
        if task in self.busy:
            self.busy.remove(task)
        if not task.launched:
            self.just_done.append(task)

    def idle(self) -> None:
        """All slots are idle: nothing runs beside what comes next."""
        self.busy.clear()
        self.just_done.clear()
        self.current = None
        self.currents.clear()

    def turn_to(self, source: str, task: Task) -> None:
        """Lines of `source` that name no task are this one's from now on."""
        self.current = self.currents[source] = task

    def served(self, source: str) -> bool:
        """Whether a server had tasks since it was started."""
        return source in self.sources

    def restart(self, source: str) -> None:
        """A server starts again: its slots are empty and its numbers begin again."""
        self.sources.discard(source)
        for key in [key for key in self.tasks if key[0] == source]:
            self.close(self.tasks.pop(key), key)
        for key in [key for key in self.held if key[0] == source]:
            del self.held[key]
        self.idle()

    def end(self) -> None:
        """The log is over: close what is open."""
        for key, task in self.tasks.items():
            self.close(task, key)
        self.tasks.clear()
        for key, task in self.chosen.items():
            if task.lcp is not None or task.processed is not None:
                self.close(task, key)
        self.chosen.clear()
        if self.reading.task_count:
            self.reading.totals.update(zip(TOTALS, self.sums, strict=True))

    def close(self, task: Task, key: Key) -> None:
        """Derive what is missing and hand the task on."""
        derive(task)
        if task.released is not None:
            self.held[key] = task.released
        if task.peers:
            _compare_with_peers(task)
            task.peers = ()
        if task in self.busy:
            self.busy.remove(task)
        self._keep(task)

    def _keep(self, task: Task) -> None:
        reading = self.reading
        if _says_nothing(task):
            return
        reading.task_count += 1
        if len(reading.first_tasks) < KEPT_WHOLE:
            reading.first_tasks.append(task)
        else:
            reading.last_tasks.append(task)
        self._sum(task)
        if self.on_task is not None:
            self.on_task(task)

    def _sum(self, task: Task) -> None:
        """Add to the totals; one name after the other, since a loop takes four times as long."""
        sums = self.sums
        if task.prompt is not None:
            sums[0] += task.prompt
        if task.processed is not None:
            sums[1] += task.processed
        if task.cached is not None:
            sums[2] += task.cached
        if task.gen is not None:
            sums[3] += task.gen
        if task.pp_ms is not None:
            sums[4] += task.pp_ms
        if task.tg_ms is not None:
            sums[5] += task.tg_ms

    def drop_middle(self) -> None:
        """Keep only the first and last thousand of a log with more than ten thousand."""
        reading = self.reading
        if reading.task_count > KEPT_WHOLE:
            tail = [*reading.first_tasks, *reading.last_tasks][-KEPT_ENDS:]
            reading.last_tasks.clear()
            reading.last_tasks.extend(tail)
            del reading.first_tasks[KEPT_ENDS:]

    def last_figures(self) -> None:
        """Keep the last known figure of each kind, as a log is summed up in one row."""
        for task in self.reading.tasks():
            for name, word in LAST.items():
                value = getattr(task, name)
                if value is not None:
                    self.reading.last[word] = value


def _new_task(key: Key, line: int, text: str) -> Task:
    task = Task()
    task.slot, task.line, task.text = key[1], line, text[:SHOWN]
    return task


def _says_nothing(task: Task) -> bool:
    return (
        task.task is None
        and task.processed is None
        and task.prompt is None
        and task.cached is None
        and task.gen is None
        and task.draft_rate is None
    )


def derive(task: Task) -> None:
    """Fill in cached, prompt and processed tokens where the log leaves them out.

    `cached = released - generated + 1 - processed` is exact unless the context was
    truncated or shifted, whatever the build and with drafts too.
    """
    if task.cached is None:
        if task.first_rm is not None:
            task.cached = task.first_rm
        elif task.forced:
            task.cached = 0
        elif task.restored is not None:
            task.cached = task.restored
        elif _exact(task):
            left = (task.released or 0) - (task.gen or 0) + 1 - (task.processed or 0)
            task.cached = left if left >= 0 else None
    if task.prompt is None and task.cached is not None and task.processed is not None:
        task.prompt = task.cached + task.processed
    if task.processed is None and task.prompt_done and None not in (task.prompt, task.cached):
        task.processed = (task.prompt or 0) - (task.cached or 0)


def _exact(task: Task) -> bool:
    known = None not in (task.released, task.gen, task.processed)
    return known and not task.truncated and not task.shifted


def _compare_with_peers(task: Task) -> None:
    """Mark the slower of two tasks that ran at once: its rate is not the machine's."""
    for peer in task.peers:
        for one, other in ((task, peer), (peer, task)):
            if not one.tg_tps or not other.tg_tps or (one.gen or 0) < ENOUGH_GENERATED:
                continue
            if one.tg_tps < SLOWED * other.tg_tps:
                alone = (one.gen or 0) / other.tg_tps
                one.lost_s = max(one.lost_s, (one.gen or 0) / one.tg_tps - alone)
