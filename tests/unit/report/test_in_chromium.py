from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from made_run import write_run
from web_driver import MISSING, Browser, available, browser

from fleet.report.write_report import write_report

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.chromium, pytest.mark.skipif(not available(), reason=MISSING)]

# WCAG 2.1: relative luminance and contrast of every text with what is behind it
CONTRAST = """
const parse = c => (c.match(/[\\d.]+/g) || []).map(Number);
const luminance = ([r, g, b]) => [r, g, b].map(v => v / 255)
  .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
const behind = node => {
  for (let n = node; n; n = n.parentElement) {
    const c = parse(getComputedStyle(n).backgroundColor);
    if (c.length && c[3] !== 0) return c;
  }
  return [255, 255, 255];
};
const poor = [];
for (const node of document.querySelectorAll('body *:not(svg *)')) {
  const own = [...node.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!own) continue;
  const [a, b] = [luminance(parse(getComputedStyle(node).color)), luminance(behind(node))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const what = `${node.tagName} ${ratio.toFixed(2)} ${node.textContent.slice(0, 30)}`;
  if (ratio < 4.5) poor.push(what);
}
return poor;
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    write_run(path)
    return write_report(path).html


@pytest.fixture(scope="module")
def shown(page: Path) -> Iterator[Browser]:
    with browser() as made:
        made.open(page)
        yield made


def test_says_nothing_on_the_console_and_asks_for_nothing(shown: Browser, page: Path) -> None:
    shown.open(page)

    assert shown.messages() == []
    assert shown.run("return performance.getEntriesByType('resource').length") == 0


@pytest.mark.parametrize(("width", "phone"), [(1280, False), (390, True), (320, True)])
def test_never_wider_than_the_screen(shown: Browser, width: int, phone: bool) -> None:
    shown.size(width, 800, phone=phone)

    assert shown.run("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(shown: Browser, scheme: str) -> None:
    shown.scheme(scheme)
    shown.run("document.querySelectorAll('details').forEach(d => d.open = true)")

    assert shown.run(CONTRAST) == []
    background = shown.run("return getComputedStyle(document.body).backgroundColor")
    assert (max(int(v) for v in background[4:-1].split(",")) < 60) == (scheme == "dark")


def test_the_keyboard_reaches_links_tables_and_transcripts(shown: Browser, page: Path) -> None:
    shown.open(page)
    reached: list[Any] = []
    for _ in range(60):
        shown.press("\ue004")
        reached.append(shown.run("return document.activeElement.tagName"))
        if reached[-1] == "SUMMARY":
            break
    shown.press("\ue007")

    assert {"A", "DIV", "PRE", "SUMMARY"} <= set(reached)
    assert shown.run("return document.querySelectorAll('details[open]').length") == 1


def test_headings_and_tables_are_named(shown: Browser) -> None:
    assert shown.run("return document.querySelectorAll('h1').length") == 1
    assert (
        shown.run(
            "return [...document.querySelectorAll('[aria-labelledby]')]"
            ".filter(n => !document.getElementById(n.getAttribute('aria-labelledby'))).length"
        )
        == 0
    )
    assert shown.run("return document.querySelectorAll('td:not([scope]):first-child').length") == 0


def test_prints_without_cutting_tables(shown: Browser) -> None:
    shown.devtools("Emulation.setEmulatedMedia", media="print")
    try:
        assert shown.run("return getComputedStyle(document.querySelector('nav')).display") == "none"
        style = "return getComputedStyle(document.querySelector('.scroll')).overflowX"
        assert shown.run(style) == "visible"
    finally:
        shown.devtools("Emulation.setEmulatedMedia", media="")


def test_pictures_can_be_taken_at_desktop_and_phone_width(shown: Browser, tmp_path: Path) -> None:
    for width in (1280, 390):
        shown.size(width, 900, phone=width < 500)
        shown.screenshot(tmp_path / f"{width}.png")

        assert (tmp_path / f"{width}.png").stat().st_size > 20_000
