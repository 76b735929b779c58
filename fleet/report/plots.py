"""Drawings as SVG for the page and PNG for elsewhere; the one module that draws.

An SVG takes its ink from the page around it (`currentColor`), so that light and dark work.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet.errors import OutsideError
from fleet.report.page import Figure

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas
    from matplotlib.ticker import MaxNLocator
except ImportError:
    raise OutsideError(
        "drawings need matplotlib", fix="`pip install 'fleet[report]'` brings it"
    ) from None

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

_INK = "#123457"  # replaced by the page's own ink
_INKED = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor")
_STYLE: Any = {  # the keys' type is a list of all that matplotlib knows
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.color": "#808080",
    "legend.frameon": False,
    **dict.fromkeys(_INKED, _INK),
}
# distinguishable without colour vision, and visible on white and on black
_COLOURS = ("#7d8590", "#3b8fd4", "#d9730d", "#1f9d74", "#c2609a", "#a08b1c", "#7b6fd0", "#b5523f")
_LINES = ("-", "--", "-.", ":")
_INCH = 3.1
_WIDEST = 11.0
_DPI = 110
_ID = re.compile(r' id="([^"]+)"')
_REFERENCE = re.compile(r"#([\w.-]+)")
_DARK = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A curve: its label and its points."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


def curves(
    name: str,
    panels: Mapping[str, Sequence[Line]],
    *,
    x: str,
    y: str,
    caption: str,
) -> Figure:
    """Draw a panel of curves for each key, with common labels and one legend."""
    with mpl.rc_context(_STYLE):
        canvas, axes = _panels(panels, height=2.6)
        labels = list(dict.fromkeys(line.label for lines in panels.values() for line in lines))
        for axis, (title, lines) in zip(axes, panels.items(), strict=True):
            for line in lines:
                place = labels.index(line.label)
                axis.plot(
                    line.x,
                    line.y,
                    label=line.label,
                    marker=".",
                    color=_colour(place),
                    linestyle=_LINES[place % len(_LINES)],
                )
            axis.set_title(title, fontsize=9)
            axis.set_xlabel(x)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            axis.set_ylim(bottom=0)
        axes[0].set_ylabel(y)
        _legend(canvas, axes[0])
        return _figure(name, canvas, caption)


def heat_map(
    name: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    *,
    caption: str,
    unit: str = "",
    centre: float | None = None,
) -> Figure:
    """Draw a table of figures whose colours follow their sizes; None is left empty.

    `centre` is the value of no effect: below it one colour, above it another.
    """
    numbers = [[float("nan") if v is None else v for v in row] for row in values]
    known = [v for row in values for v in row if v is not None] or [0.0]
    low, high = min(known), max(known)
    if centre is not None:
        reach = max(high - centre, centre - low, 1e-9)
        low, high = centre - reach, centre + reach
    colours = mpl.colormaps["PuOr" if centre is not None else "YlGnBu"]
    norm = mpl.colors.Normalize(low, high if high > low else low + 1)
    with mpl.rc_context(_STYLE | {"axes.grid": False}):
        size = (1.4 + 0.9 * len(columns), 0.7 + 0.42 * len(rows))
        canvas = Canvas(figsize=size, layout="constrained")
        axis = canvas.subplots()
        axis.pcolormesh(numbers, cmap=colours, norm=norm, edgecolors="#80808055")
        for at, row in enumerate(values):
            for over, value in enumerate(row):
                if value is not None:
                    shade = colours(norm(value))
                    _cell(axis, over + 0.5, at + 0.5, f"{value:.3g}{unit}", shade)
        axis.set_xticks([k + 0.5 for k in range(len(columns))], columns)
        axis.set_yticks([k + 0.5 for k in range(len(rows))], rows)
        axis.invert_yaxis()
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        return _figure(name, canvas, caption)


def stacked_bars(
    name: str,
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    x: str,
    y: str,
    caption: str,
    across: int,
) -> Figure:
    """Draw bars for each panel, `across` in a row: series stacked in order, a bar a position."""
    with mpl.rc_context(_STYLE):
        canvas, axes = _panels(panels, height=2.0, across=across, share_y=True)
        for axis, (title, series) in zip(axes, panels.items(), strict=True):
            base: list[float] = [0.0] * max((len(v) for v in series.values()), default=0)
            for place, (label, heights) in enumerate(series.items()):
                spots = range(1, len(heights) + 1)
                axis.bar(spots, heights, bottom=base, label=label, color=_colour(place + 1))
                base = [low + height for low, height in zip(base, heights, strict=True)]
            axis.set_title(title, fontsize=9)
            axis.set_xlabel(x)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[0].set_ylabel(y)
        _legend(canvas, axes[0])
        return _figure(name, canvas, caption)


def points(
    name: str,
    groups: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x: str,
    y: str,
    caption: str,
    joined: Sequence[str] = (),
) -> Figure:
    """Draw points by group; groups named in `joined` are connected, as a front is."""
    with mpl.rc_context(_STYLE):
        canvas = Canvas(figsize=(2 * _INCH, 3.0), layout="constrained")
        axis = canvas.subplots()
        for place, (label, spots) in enumerate(groups.items()):
            across, up = ([spot[k] for spot in spots] for k in (0, 1))
            line = "-" if label in joined else "none"
            axis.plot(across, up, marker="o", markersize=4, linestyle=line, label=label,
                      color=_colour(place))  # fmt: skip
        if all(spot[0].is_integer() for spots in groups.values() for spot in spots):
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_xlabel(x)
        axis.set_ylabel(y)
        _legend(canvas, axis)
        return _figure(name, canvas, caption)


def _panels(
    panels: Mapping[str, object], *, height: float, across: int = 3, share_y: bool = False
) -> tuple[Canvas, list[Axes]]:
    count = max(len(panels), 1)
    across = min(count, across, 4)
    down = -(-count // across)
    size = (min(max(_INCH * across, 4.6), _WIDEST), height * down)
    canvas = Canvas(figsize=size, layout="constrained")
    grid = canvas.subplots(down, across, squeeze=False, sharey=share_y)
    axes = list(grid.flat)
    for spare in axes[len(panels) :]:
        spare.set_visible(False)
    return canvas, axes[: len(panels)] or axes


def _legend(canvas: Canvas, axis: Axes) -> None:
    handles, labels = axis.get_legend_handles_labels()
    if labels:
        canvas.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 6))


def _colour(place: int) -> str:
    return _COLOURS[place % len(_COLOURS)]


def _cell(axis: Axes, x: float, y: float, text: str, shade: Sequence[float]) -> None:
    light = 0.299 * shade[0] + 0.587 * shade[1] + 0.114 * shade[2]
    ink = "#ffffff" if light < _DARK else "#111111"
    axis.text(x, y, text, ha="center", va="center", color=ink)


def _figure(name: str, canvas: Canvas, caption: str) -> Figure:
    vector, raster = io.StringIO(), io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        canvas.savefig(vector, format="svg", transparent=True, metadata={"Date": None})
    canvas.savefig(raster, format="png", dpi=_DPI, facecolor="white")
    return Figure(
        name=name,
        caption=caption,
        svg=_inline(vector.getvalue()),
        png=raster.getvalue(),
        width_px=round(canvas.get_figwidth() * 96),
    )


def _inline(svg: str) -> str:
    """Return the drawing without its XML head, in the page's ink, with no ids of no use."""
    body = svg[svg.index("<svg") :]
    used = set(_REFERENCE.findall(body))
    body = _ID.sub(lambda found: found[0] if found[1] in used else "", body)
    return body.replace(_INK, "currentColor")
