"""The page of a diagnosis: a timeline of tasks, a map of prefixes, findings with evidence."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from fleet.report.page import Bullets, Code, Figure, Page, Section, Table, Text, render_html

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.diagnose.diagnosis import Diagnosis
    from fleet.diagnose.finding import Finding
    from fleet.diagnose.read_log.log_reading import Task

SHOWN = 200
ROW, WIDTH, LEFT = 12, 900, 90
COLOURS = {"cached": "#3a923a", "processed": "#c03d3e", "generated": "#3274a1"}
COLUMNS = (
    "task", "slot>", "prompt>", "cached>", "processed>", "generated>", "PP tok/s>", "TG tok/s>",
)  # fmt: skip


def diagnosis_page(diagnosis: Diagnosis, *, title: str) -> str:
    """Return the page as one HTML file that needs nothing else."""
    return render_html(_page(diagnosis, title))


def _page(diagnosis: Diagnosis, title: str) -> Page:
    reading = diagnosis.reading
    tasks = [task for task in reading.tasks() if task.processed is not None or task.prompt]
    shown = tasks[:SHOWN]
    pictures: tuple[Text | Figure, ...] = (Text(text="No task stands in this log."),)
    if shown:
        pictures = (_timeline(shown), _prefix_map(shown))
    findings = [_finding(finding) for finding in diagnosis.findings]
    return Page(
        title=f"Diagnosis of {title}",
        lead=diagnosis.verdict,
        facts=(
            ("Engine", f"{reading.engine or 'unknown'} {reading.build or ''}".strip()),
            ("Log", f"{reading.generation}, {reading.lines} lines"),
            ("Tasks", str(reading.task_count)),
        ),
        sections=(
            *findings,
            Section(title="Tasks", blocks=(*pictures, _table(shown, len(tasks)))),
            Section(title="Notes", blocks=(_notes(diagnosis),)),
        ),
    )


def _finding(finding: Finding) -> Section:
    cost = f" It cost {finding.cost_s:.1f} s of this log." if finding.cost_s else ""
    lines = tuple(f"{line.line}: {line.text}" for line in finding.evidence)
    blocks: list[Text | Code] = [Text(text=f"{finding.message}.{cost}")]
    if finding.fix:
        blocks.append(Text(text=f"Remedy: {finding.fix}."))
    if finding.settings:
        sets = tuple(f"{name}: {value}" for name, value in finding.settings)
        blocks.append(Code(title="Settings", lines=sets))
    if lines:
        blocks.append(Code(title="Evidence", lines=lines))
    return Section(title=f"{finding.priority} {finding.code}", blocks=tuple(blocks))


def _table(tasks: Sequence[Task], count: int) -> Table:
    left = f", the first {len(tasks)}" if len(tasks) < count else ""
    return Table(
        caption=f"{count} tasks{left}",
        columns=COLUMNS,
        rows=tuple(
            tuple(
                "" if cell is None else str(cell)
                for cell in (
                    task.task, task.slot, task.prompt, task.cached, task.processed, task.gen,
                    task.pp_tps, task.tg_tps,
                )
            )
            for task in tasks
        ),
    )  # fmt: skip


def _notes(diagnosis: Diagnosis) -> Bullets:
    wall = [diagnosis.wall.text] if diagnosis.wall else []
    return Bullets(items=(*diagnosis.reading.notes, *wall) or ("Nothing to add.",))


def _timeline(tasks: Sequence[Task]) -> Figure:
    """Draw each task as a bar: tokens from the cache, read, and generated."""
    longest = max((task.prompt or task.processed or 0) + (task.gen or 0) for task in tasks) or 1
    bars = [
        _bar(row, _label(task), _parts(task), (WIDTH - LEFT) / longest)
        for row, task in enumerate(tasks)
    ]
    caption = "Tokens of each task, in order: from the cache (green), read (red), generated (blue)"
    return _figure("tasks", caption, bars, len(tasks))


def _parts(task: Task) -> tuple[tuple[str, int], ...]:
    return (
        ("cached", task.cached or 0),
        ("processed", task.processed or 0),
        ("generated", task.gen or 0),
    )


def _prefix_map(tasks: Sequence[Task]) -> Figure:
    """Draw of each prompt what the slot had in common with it, and what of that was reused."""
    bars = []
    for row, task in enumerate(tasks):
        prompt = task.prompt or (task.cached or 0) + (task.processed or 0) or 1
        reused = min(task.cached or 0, prompt)
        alike = max(reused, min(task.lcp or reused, prompt))
        parts = (("cached", reused), ("generated", alike - reused), ("processed", prompt - alike))
        bars.append(_bar(row, _label(task), parts, (WIDTH - LEFT) / prompt))
    caption = (
        "The prefix of each prompt: reused (green), alike but read again (blue), different (red)"
    )
    return _figure("prefix-map", caption, bars, len(tasks))


def _label(task: Task) -> str:
    return "task ?" if task.task is None else f"task {task.task}"


def _bar(row: int, label: str, parts: Sequence[tuple[str, int]], scale: float) -> str:
    y, x = row * (ROW + 3) + 2, float(LEFT)
    pieces = [f'<text x="0" y="{y + ROW - 2}" font-size="10">{escape(label)}</text>']
    for name, size in parts:
        width = size * scale
        if width > 0:
            pieces.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW}" '
                f'fill="{COLOURS[name]}"><title>{name}: {size}</title></rect>'
            )
        x += width
    return "".join(pieces)


def _figure(name: str, caption: str, bars: Sequence[str], rows: int) -> Figure:
    height = rows * (ROW + 3) + 4
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="100%" role="img" fill="currentColor">{"".join(bars)}</svg>'
    )
    return Figure(name=name, caption=caption, svg=svg, png=b"", width_px=WIDTH)
