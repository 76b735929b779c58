"""A study explained: only what was measured is said."""

from __future__ import annotations

import pytest

from fleet.tune.run_study import Outcome, Study
from fleet.tune.search import Proposal, Search
from fleet.tune.search_space import Settings, Value, make_space
from fleet.tune.study_summary import StudySummary, summarise_study

pytestmark = pytest.mark.pure

PARAMS: dict[str, list[Value]] = {"threads": [1, 2, 4], "fa": ["off", "on"], "batch": [1, 2]}
DEFAULT: dict[str, Value] = {"threads": 1, "fa": "off", "batch": 1}


def summary_of(*runs: Settings) -> StudySummary:
    """Return the summary of runs of which each changed one brings half as much again."""
    study = Study(search=Search(make_space(PARAMS, DEFAULT)), most_trials=len(runs))
    for changed in runs:
        cell = study.search.space.cell({**DEFAULT, **changed})
        assert cell is not None
        wrote = Proposal(cell=cell, purpose="explore")
        study.take(wrote, Outcome(value=100 * 1.5 ** len(changed), seconds=1.0))
    return summarise_study(study, metric="tg")


def effects(*runs: Settings) -> set[tuple[str, Value]]:
    """Return the settings and values whose effect the summary tells."""
    return {(each.name, each.value) for each in summary_of(*runs).effects}


def test_values_that_were_never_tried_have_no_effect() -> None:
    assert effects({}, {"threads": 4}) == {("threads", 4)}
    assert effects({}, {"threads": 4, "fa": "on"}) == set()
    assert effects({}, {"threads": 4}, {"threads": 4, "fa": "on"}) == {("threads", 4), ("fa", "on")}


def test_a_study_that_ends_by_trials_does_not_speak_of_time() -> None:
    why = summary_of({}, {}, {"threads": 4}).verdict.why
    assert "time" not in why
    assert "budget" in why
