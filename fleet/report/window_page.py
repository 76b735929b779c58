"""The page of a window: what a server in use did, and what it did over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet.report.page import Bullets, Page, Section, Table
from fleet.report.plots import Line, curves
from fleet.report.words import NONE, in_unit, moment, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.bench.window_figures import Window
    from fleet.report.page import Figure

_METHOD = (
    "Each time is a mean over its own observations; times of different populations are not added.",
    "Another start time, or a counter that fell, is a restart: its counters begin at 0 again.",
    "Requests of unknown reuse are counted apart and are in no reuse figure.",
    "Percentiles lie straight within the bucket of a histogram.",
)


def window_page(run: Mapping[str, Any], window: Window) -> Page:
    """Return the page of one window."""
    return Page(
        title="A window on a server in use",
        lead=f"{window.engine} at {run.get('url', NONE)} for {window.seconds / 60:.1f} minutes: "
        f"{number(window.prompt_tokens, 0)} prompt tokens, of which "
        f"{number(window.cached_tokens, 0)} from the cache, and "
        f"{number(window.generated_tokens, 0)} generated.",
        facts=(
            ("Started", moment(run.get("started"))),
            ("Looks", f"{window.scrapes}, {window.down} without an answer"),
            ("Restarts", str(window.restarts)),
            ("Requests", number(window.requests, 0)),
            ("Requests of unknown reuse", number(window.unknown_reuse, 0)),
        ),
        sections=(
            Section(title="Figures", blocks=(_figures(window),)),
            Section(title="Over time", blocks=tuple(_over_time(window))),
            Section(title="Method and caveats", blocks=(Bullets(items=(*_METHOD, *window.notes)),)),
        ),
    )


def _figures(window: Window) -> Table:
    return Table(
        caption="Means over the window, and percentiles where the engine keeps a histogram",
        columns=("figure", "mean>", "median>", "90%>", "99%>", "observations or base>"),
        rows=tuple(
            (
                stat.name,
                in_unit(stat.mean, stat.unit),
                *(in_unit(each, stat.unit) for each in stat.three),
                number(stat.count, 0),
            )
            for stat in window.stats
        ),
    )


def _over_time(window: Window) -> list[Figure]:
    panels = {
        f"{stat.name}, {stat.unit}": [
            Line(
                label="mean of a part of the window",
                x=tuple(float(k) for k in range(1, len(stat.blocks) + 1)),
                y=stat.blocks,
            )
        ]
        for stat in window.stats
        if stat.blocks
    }
    caption = (
        "Means of equal parts of the window, parts without an observation left out; intervals "
        "of a comparison come from them."
    )
    return [curves("window", panels, x="part", y="", caption=caption)] if panels else []
