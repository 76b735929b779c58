"""A report as a value: sections of text, tables, figures, code and transcripts.

One page becomes one HTML file that needs nothing else, or Markdown. Text is plain text:
the templates escape it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """A paragraph."""

    text: str
    kind: str = "text"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bullets:
    """A list of sentences; `ordered` numbers them."""

    items: tuple[str, ...]
    ordered: bool = False
    kind: str = "bullets"


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of words; a column whose name ends in `>` is aligned to the right.

    `marked` holds (row, column) of cells that differ or matter, from 0.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: frozenset[tuple[int, int]] = frozenset()
    kind: str = "table"


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A drawing: `name` is its file in `plots/`, `caption` says what one sees."""

    name: str
    caption: str
    svg: str
    png: bytes
    width_px: int = 480
    kind: str = "figure"


@dataclass(frozen=True, kw_only=True, slots=True)
class Code:
    """Lines of a file, log or launch; `marked` are the numbers (from 0) of those that differ."""

    title: str
    lines: tuple[str, ...]
    marked: frozenset[int] = frozenset()
    kind: str = "code"


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """What was said at one turn and what each column answered; None repeats the first."""

    said: str
    answers: tuple[str | None, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    """A conversation with the answers of several columns side by side, folded at first."""

    title: str
    system: str
    columns: tuple[str, ...]
    exchanges: tuple[Exchange, ...]
    kind: str = "transcript"


Block = Text | Bullets | Table | Figure | Code | Transcript


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A heading and what stands under it."""

    title: str
    blocks: tuple[Block, ...]

    @property
    def anchor(self) -> str:
        """The heading as a link target."""
        return "".join(c if c.isalnum() else "-" for c in self.title.lower())


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A whole report; `facts` are label and value pairs shown at the top."""

    title: str
    lead: str
    sections: tuple[Section, ...]
    facts: tuple[tuple[str, str], ...] = ()
    language: str = "en"

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures in order."""
        return tuple(b for s in self.sections for b in s.blocks if isinstance(b, Figure))


def render_html(page: Page) -> str:
    """Return one HTML file: no scripts, no network, light and dark, printable."""
    return _templates().get_template("page.html.j2").render(page=page, Markup=Markup)


def render_markdown(page: Page) -> str:
    """Return the page as Markdown; figures are named by their files in `plots/`."""
    return _templates().get_template("page.md.j2").render(page=page, row=_markdown_row)


def _markdown_row(cells: Sequence[str]) -> str:
    # inside a table a bar ends the cell and a line end ends the table
    shown = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(shown)} |"


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("fleet.report", "templates"),
        autoescape=select_autoescape(enabled_extensions=("html.j2",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
