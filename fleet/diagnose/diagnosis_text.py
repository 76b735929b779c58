"""A diagnosis as text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.diagnose.compare_runs import Comparison
    from fleet.diagnose.diagnosis import Diagnosis
    from fleet.diagnose.finding import Finding
    from fleet.diagnose.read_log.log_reading import LogReading, Task

ROWS = 30
WIDE = 120
WORTH_SAYING_S = 0.05
COLUMNS = ("task", "slot", "PP tokens", "cached", "TG tokens", "total", "PP tok/s", "TG tok/s",
           "PP s", "TG s", "drafts")  # fmt: skip


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """Return what a person reads first: the machine, the tasks, the findings in order."""
    reading = diagnosis.reading
    parts = [_title(reading), *_task_table(reading), *_facts(reading)]
    parts += [f"note: {note}" for note in reading.notes]
    if diagnosis.wall is not None:
        parts.append(diagnosis.wall.text)
    parts += ["", *(line for finding in diagnosis.findings for line in _finding(finding))]
    parts.append(f"verdict: {diagnosis.verdict}")
    return "\n".join(parts)


def comparison_text(comparison: Comparison) -> str:
    """Return the conditions that differ, or the rates side by side."""
    if not comparison.comparable:
        lines = ["no verdict: the conditions differ"]
        lines += [f"  {one.condition}: {one.a} | {one.b}" for one in comparison.differences]
    else:
        lines = ["equal conditions, as far as the logs tell"]
        lines += [f"  {name}: {a} | {b} ({b / a - 1:+.1%})" for name, a, b in comparison.rates if a]
    if comparison.unknown:
        lines.append(f"  not in the logs: {', '.join(comparison.unknown)}")
    return "\n".join(lines)


def _title(reading: LogReading) -> str:
    build = f" build {reading.build}" if reading.build else ""
    starts = f", {reading.starts} starts" if reading.starts > 1 else ""
    return (
        f"{reading.engine or 'unknown engine'}{build} ({reading.generation}), "
        f"{reading.lines} lines, {reading.task_count} tasks{starts}"
    )


def _task_table(reading: LogReading) -> list[str]:
    tasks = list(reading.tasks())
    if not tasks:
        return []
    shown = tasks if len(tasks) <= ROWS else [*tasks[: ROWS // 2], *tasks[-ROWS // 2 :]]
    lines = ["", *_aligned([COLUMNS, *(_row(task) for task in shown)])]
    if len(shown) < reading.task_count:
        lines.append(f"({reading.task_count - len(shown)} tasks in between are not shown)")
    return [*lines, ""]


def _row(task: Task) -> tuple[str, ...]:
    cells = (
        task.task, task.slot, task.processed, task.cached, task.gen, _total(task), task.pp_tps,
        task.tg_tps, _seconds(task.pp_ms), _seconds(task.tg_ms),
    )  # fmt: skip
    rate = f"{task.draft_rate:.0%}" if task.draft_rate is not None else ""
    return (*("" if cell is None else str(cell) for cell in cells), rate)


def _total(task: Task) -> int | None:
    if task.prompt is None or task.gen is None:
        return None
    return task.prompt + task.gen


def _seconds(ms: float | None) -> str | None:
    return f"{ms / 1000:.1f}" if ms is not None else None


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _facts(reading: LogReading) -> list[str]:
    kv, facts = reading.kv, reading.vllm
    lines = []
    if kv and kv.k:
        lines.append(f"KV cache: K {kv.k}, V {kv.v}, {kv.mib:g} MiB{', MLA' if kv.mla else ''}")
    if reading.gpu_layers:
        lines.append(f"layers on the accelerator: {reading.gpu_layers}")
    points = reading.checkpoints
    if points.created or points.restored or points.forced_full:
        lines.append(
            f"checkpoints: {points.created} created, {points.restored} restored, "
            f"{points.erased_invalidated} invalidated, {points.forced_full} full readings"
        )
    if reading.live:
        told = ", ".join(f"{name} {value:g}" for name, value in reading.live.items())
        lines.append(f"the server itself: {told}")
    if facts.seen and facts.prefix_hit_rate is not None:
        lines.append(f"prefix cache: {facts.prefix_hit_rate:.1%} of the tokens found")
    if facts.seen and facts.kv_usage is not None:
        lines.append(f"KV usage {facts.kv_usage:.1%}, {facts.running} running")
    return lines


def _finding(finding: Finding) -> list[str]:
    cost = f", {finding.cost_s:.1f} s" if (finding.cost_s or 0) >= WORTH_SAYING_S else ""
    times = f", {finding.count} times" if finding.count > 1 else ""
    lines = [f"{finding.priority} {finding.code} ({finding.level}{times}{cost})"]
    lines.append(f"  {finding.message}")
    if finding.fix:
        lines.append(f"  fix: {finding.fix}")
    if finding.settings:
        sets = " ".join(f"--set {name}={value}" for name, value in finding.settings)
        lines.append(f"  settings: {sets}")
    lines += [f"  {line.line}: {line.text.strip()[:WIDE]}" for line in finding.evidence[:2]]
    return [*lines, ""]
