from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from fleet.report.page import render_html, render_markdown
from fleet.report.study_page import study_page, study_rows
from fleet.tune.paired_ratio import Ratio
from fleet.tune.run_study import Outcome, Trial
from fleet.tune.search import Verdict
from fleet.tune.study_summary import Effect, StudySummary, TradeOff

if TYPE_CHECKING:
    from fleet.tune.search_space import Settings

DEFAULT: Settings = {"threads": 2, "ubatch_size": 512}
BETTER: Settings = {"threads": 4, "ubatch_size": 512}
TOO_LARGE: Settings = {"threads": 2, "ubatch_size": 4096}


def trial(number: int, settings: Settings, value: float | None, failed: str | None = None) -> Trial:
    figures = {"pp": 100.0 + number, "tg": value} if value else {}
    outcome = Outcome(value=value, seconds=2.0, failed=failed, figures=figures)
    return Trial(number=number, cell=(0, 0), settings=settings, purpose="explore", outcome=outcome)


def summary(**changes: Any) -> StudySummary:
    ratio = Ratio(log_ratio=math.log(1.2), deviation=0.01)
    verdict = Verdict(
        cell=(1, 0), accepted=True, gain=0.2, ratio=ratio, pairs=5, **changes.pop("verdict", {})
    )
    values: dict[str, Any] = {
        "metric": "tg", "verdict": verdict, "default": DEFAULT, "best": BETTER,
        "changed": {"threads": 4}, "default_score": 50.0, "best_score": 60.0,
        "default_ci": (49.0, 51.0), "best_ci": (58.0, 62.0), "noise": 0.01, "provable_gain": 0.02,
        "trials": (trial(1, DEFAULT, 50.0), trial(2, BETTER, 60.0),
                   trial(3, TOO_LARGE, None, "does not fit")),
        "spent_s": 61.0, "stopped": "budget",
        "trade_offs": (TradeOff(settings=BETTER, guard="pp", ratio=Ratio(log_ratio=-0.5,
                       deviation=0.01), provable=0.02, gain=0.3),),
        "effects": (Effect(name="threads", value=4, ratio=ratio),),
    }  # fmt: skip
    return StudySummary(**(values | changes))


def test_shows_what_won_what_was_tried_and_what_was_rejected() -> None:
    page = study_page(summary(), name="town")
    text = render_markdown(page)

    assert page.lead.startswith("threads = 4 brings 20.0% in tg (95% interval 17.7% to 22.4%)")
    assert "ubatch_size = 4096: does not fit" in text
    assert "but pp becomes -39.3%" in text
    assert "| 2 | explore | threads = 4 | 60.00 | 2.0 |" in text
    assert {figure.name for figure in page.figures} == {"trials", "pareto"}
    assert "<mark>4</mark>" in render_html(page)


def test_no_provable_gain_is_said_plainly() -> None:
    page = study_page(summary(changed={}, best=DEFAULT), name="town")

    assert page.lead == "No provable gain: the defaults stay (least provable gain here 2.0%)."


def test_waiting_is_shown_in_milliseconds() -> None:
    rows = study_rows(summary(metric="ttft"))

    assert rows[0]["score"] == pytest.approx(20.0)
    assert rows[2]["failed"] == "does not fit"
