"""Read a results folder, make its page, write it beside the results."""

from __future__ import annotations

import csv
import io
import time
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from fleet.bench.conversation_suite import read_summary
from fleet.bench.load_suite import read_load, read_requests
from fleet.bench.raw_suite import read_raw
from fleet.bench.results_folder import ResultsFolder
from fleet.bench.turn import Turn
from fleet.bench.watch_metrics import read_window
from fleet.effects.files import write_atomically
from fleet.errors import UserError
from fleet.report.conversation_page import ConversationRun, conversation_page
from fleet.report.load_page import load_page, raw_page
from fleet.report.page import Page, render_html, render_markdown
from fleet.report.study_page import study_page, study_rows
from fleet.report.window_page import window_page
from fleet.tune.candidate_space import METRICS
from fleet.tune.read_study import read_study_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """Where the report lies, its size, and how long its drawings and the whole took."""

    html: Path
    bytes: int
    seconds: float
    files: tuple[Path, ...]


def write_report(path: Path) -> Written:
    """Write `report.html`, `.md`, `.csv` and `plots/` into the results folder `path`.

    A folder of tune studies (`tune/NAME` of the state folder) gets the page of the newest.

    Raises `UserError` for a folder that holds no results, `OutsideError` for a full disk.
    """
    began = time.perf_counter()
    folder = ResultsFolder(path=path)
    run = folder.read_run()
    page, rows = _study(path) if run is None else _READERS[run["suite"]](folder)
    return write_page(page, path, rows=rows, began=began)


def write_page(
    page: Page, path: Path, *, rows: Sequence[Mapping[str, object]], began: float
) -> Written:
    """Write any page the same way; `rows` become `report.csv`."""
    html = render_html(page)
    files: dict[Path, str | bytes] = {
        path / "report.html": html,
        path / "report.md": render_markdown(page),
        path / "report.csv": _csv(rows),
        **{path / "plots" / f"{figure.name}.svg": figure.svg for figure in page.figures},
        **{path / "plots" / f"{figure.name}.png": figure.png for figure in page.figures},
    }
    for file, content in files.items():
        write_atomically(file, content)
    return Written(
        html=path / "report.html",
        bytes=len(html.encode()),
        seconds=time.perf_counter() - began,
        files=tuple(files),
    )


def read_conversation_run(folder: ResultsFolder) -> ConversationRun:
    """Return all that a conversation folder holds, finished or not."""
    run = folder.read_run() or {}
    turns = folder.turns()
    names = [condition["name"] for condition in run.get("conditions", ())]
    return ConversationRun(
        run=run,
        turns=turns,
        summary=read_summary(folder),
        servers={name: known for name in names if (known := folder.server(name))},
        samples=folder.samples(),
        answers={digest: folder.answer(digest) for digest in {t.answer_sha256 for t in turns}},
    )


def _conversation(folder: ResultsFolder) -> tuple[Page, Sequence[Mapping[str, object]]]:
    found = read_conversation_run(folder)
    names = [field.name for field in fields(Turn)]
    empty = dict.fromkeys(names, "")
    return conversation_page(found), [asdict(turn) for turn in found.turns] or [empty]


def _window(folder: ResultsFolder) -> tuple[Page, Sequence[Mapping[str, object]]]:
    window = read_window(folder)
    return window_page(folder.read_run() or {}, window), [
        {"figure": stat.name, "unit": stat.unit, "mean": stat.mean, "count": stat.count}
        for stat in window.stats
    ] or [{"figure": ""}]


def _load(folder: ResultsFolder) -> tuple[Page, Sequence[Mapping[str, object]]]:
    asked = read_requests(folder)
    page = load_page(folder.read_run() or {}, asked, read_load(folder))
    return page, [
        {name: value for name, value in asdict(each).items() if name != "gaps_ms"} for each in asked
    ]


def _raw(folder: ResultsFolder) -> tuple[Page, Sequence[Mapping[str, object]]]:
    rows = read_raw(folder)
    kept = ("prompt", "generated", "depth", "mean", "spread", "build")
    table = [{name: getattr(row, name) for name in kept} for row in rows]
    return raw_page(folder.read_run() or {}, rows), table


def _study(path: Path) -> tuple[Page, Sequence[Mapping[str, object]]]:
    """Return the page of the folder's newest study."""
    logs = [(file, metric) for metric in METRICS if (file := path / f"{metric}.jsonl").is_file()]
    if not logs:
        fix = "name the `--out` folder of a bench, or that of a study"
        raise UserError("there are no results here", where=str(path), fix=fix)
    file, metric = max(logs, key=lambda log: log[0].stat().st_mtime)
    name = path.resolve().name
    summary = read_study_log(file, name, metric).summary
    return study_page(summary, name=name), study_rows(summary)


_READERS: Mapping[str, Callable[[ResultsFolder], tuple[Page, Sequence[Mapping[str, object]]]]] = {
    "conversation": _conversation,
    "window": _window,
    "load": _load,
    "raw": _raw,
}


def _csv(rows: Sequence[Mapping[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
