from __future__ import annotations

import csv
import io
import json
import re
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from made_run import write_run

from fleet.bench.results_folder import ResultsFolder
from fleet.errors import OutsideError, UserError
from fleet.report.conversation_page import conversation_page
from fleet.report.page import Code, Page, Section, Table, render_html, render_markdown
from fleet.report.plots import Line, curves, heat_map
from fleet.report.write_report import read_conversation_run, write_report
from fleet.tune.pareto_front import pareto_front


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    write_run(path)
    write_report(path)
    return path


def test_one_file_that_needs_nothing_else(made: Path) -> None:
    html = (made / "report.html").read_text()

    addresses = set(re.findall(r'(?:src|href)="([^"#][^"]*)"', html))
    assert addresses <= {"data:,"}
    assert "<script" not in html
    assert "@import" not in html
    assert "url(http" not in html
    assert len(html.encode()) < 3e6


def test_text_of_models_and_users_is_text(made: Path) -> None:
    html = (made / "report.html").read_text()

    assert "&lt;script&gt;alert(3)&lt;/script&gt;" in html
    assert "Rules: &lt;b&gt;none&lt;/b&gt; &amp; all." in html


def test_holds_every_part(made: Path) -> None:
    html = (made / "report.html").read_text()

    for part in (
        "What it brought", "Totals", "Where the time goes", "Turn by turn", "What was cached",
        "Memory and load", "Launches", "Machine and build", "Method and caveats", "Transcripts",
    ):  # fmt: skip
        assert f">{part}</h2>" in html
    assert html.count("<figure>") == 6
    assert "62%" in html  # 25 of 40 drafted tokens


def test_marks_what_differs_between_launches(made: Path) -> None:
    html = (made / "report.html").read_text()

    assert "<mark>  --spec-type ngram</mark>" in html
    assert "<mark>  request cache_prompt = false</mark>" in html
    assert "<mark>  -c 8192</mark>" not in html


def test_answers_that_are_the_same_are_shown_once(made: Path) -> None:
    html = (made / "report.html").read_text()

    assert html.count("(other)") == 3 * 11
    assert html.count('class="same"') == 3 * (20 * 2 + 9)


def test_drawings_take_the_ink_of_the_page_and_share_no_ids(made: Path) -> None:
    html = (made / "report.html").read_text()
    ids = re.findall(r' id="([^"]+)"', html)

    assert "currentColor" in html
    assert len(ids) == len(set(ids))


def test_plots_are_files_too(made: Path) -> None:
    names = {file.name for file in (made / "plots").iterdir()}

    assert {"speed-up.svg", "speed-up.png", "cache-map.svg", "turns-prefill.png"} <= names
    assert (made / "plots" / "speed-up.png").read_bytes().startswith(b"\x89PNG")


def test_markdown_and_csv_say_the_same(made: Path) -> None:
    text = (made / "report.md").read_text()
    rows = list(csv.DictReader(io.StringIO((made / "report.csv").read_text())))

    assert text.startswith("# Conversations on made\n")
    assert "| C1 against C0 |" in text
    assert "![" in text
    assert len(rows) == 2 * 3 * 4 * 20
    assert rows[0]["conversation"] == "P0"


def test_a_page_takes_at_most_ten_times_its_drawings(made: Path) -> None:
    found = read_conversation_run(ResultsFolder(path=made))
    began = time.perf_counter()
    page = conversation_page(found)
    drawing = time.perf_counter() - began

    began = time.perf_counter()
    render_html(page)
    render_markdown(page)

    assert drawing + time.perf_counter() - began < 10 * drawing


def test_a_run_that_was_stopped_early_is_shown_as_far_as_it_went(tmp_path: Path) -> None:
    write_run(tmp_path, turns=4, repeats=1)
    file = tmp_path / "turns.jsonl"
    file.write_text(file.read_text()[:-2200])

    write_report(tmp_path)

    text = (tmp_path / "report.md").read_text()
    assert "not complete" in text
    assert "one repeat" in text


def test_a_run_without_any_turn_is_shown_too(tmp_path: Path) -> None:
    write_run(tmp_path, turns=1, repeats=1)
    (tmp_path / "turns.jsonl").unlink()

    write_report(tmp_path)

    assert "No turn has been measured yet" in (tmp_path / "report.html").read_text()


def test_refuses_a_folder_without_results_or_of_another_version(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no results"):
        write_report(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"suite": "conversation", "version": 0}))
    with pytest.raises(UserError, match="version 0"):
        write_report(tmp_path)


def test_says_when_an_answer_is_missing(tmp_path: Path) -> None:
    write_run(tmp_path, turns=2, repeats=1)
    next((tmp_path / "answers").iterdir()).unlink()

    with pytest.raises(UserError, match="answer"):
        write_report(tmp_path)


def test_a_disk_that_cannot_be_written_is_an_error_of_the_outside(tmp_path: Path) -> None:
    write_run(tmp_path, turns=1, repeats=1)
    (tmp_path / "report.html").mkdir()

    with pytest.raises(OutsideError):
        write_report(tmp_path)

    (tmp_path / "report.html").rmdir()
    (tmp_path / "plots").write_text("a file where the folder should be")

    with pytest.raises(UserError, match="a folder is wanted"):
        write_report(tmp_path)


def test_markdown_tables_survive_bars_and_line_ends() -> None:
    table = Table(caption="c", columns=("a", "b>"), rows=(("x|y", "1\n2"),))
    page = Page(title="t", lead="l", sections=(Section(title="s", blocks=(table,)),))

    assert "| x\\|y | 1 2 |\n" in render_markdown(page)
    assert "| a | b |\n| --- | ---: |\n" in render_markdown(page)


def test_code_keeps_its_lines() -> None:
    code = Code(title="c", lines=("one", "  two"), marked=frozenset({1}))
    page = Page(title="t", lead="l", sections=(Section(title="s", blocks=(code,)),))

    assert "<code>one\n<mark>  two</mark>\n</code>" in render_html(page)


def test_the_same_figures_give_the_same_drawing() -> None:
    def draw() -> str:
        line = Line(label="a", x=(1.0, 2.0), y=(3.0, 4.0))
        return curves("n", {"p": [line]}, x="x", y="y", caption="c").svg

    assert draw() == draw()


def test_a_heat_map_leaves_out_what_was_not_measured() -> None:
    figure = heat_map("n", ("r",), ("a", "b"), ((1.25, None),), caption="c", unit="x")

    assert figure.svg.count("1.25x") == 1


def test_the_front_is_what_nothing_beats_in_both() -> None:
    both = [(1.0, 9.0), (2.0, 5.0), (3.0, 6.0), (4.0, 1.0), (4.0, 0.5), (2.0, 6.0)]

    assert pareto_front(both) == [(1.0, 9.0), (3.0, 6.0), (4.0, 1.0)]
