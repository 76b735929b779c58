"""When a study stops because memory allows no more."""

from __future__ import annotations

import pytest

from fleet.tune.roofline import at_roofline
from fleet.tune.run_study import Outcome, Study
from fleet.tune.search import Proposal, Search
from fleet.tune.search_space import make_space

SPACE = {"threads": [1, 2, 4], "speculation": ["none", "ngram-mod"]}


def study(*runs: tuple[int, str, float]) -> Study:
    space = make_space(SPACE, {"threads": 4, "speculation": "none"})
    made = Study(search=Search(space), most_trials=50)
    for threads, kind, value in runs:
        cell = space.cell({"threads": threads, "speculation": kind})
        assert cell is not None
        made.take(Proposal(cell=cell, purpose="explore"), Outcome(value=value, seconds=1))
    return made


@pytest.mark.parametrize(
    ("runs", "there"),
    [
        ([(4, "none", 9.5), (4, "ngram-mod", 9.0)], True),
        ([(4, "none", 9.5)], False),  # speculation was not tried
        ([(4, "none", 5.0), (4, "ngram-mod", 9.9)], False),  # drafts know no roof
        ([(4, "none", 50.0), (4, "ngram-mod", 9.0)], False),  # so far above it that it is none
    ],
)
def test_at_the_roof(runs: list[tuple[int, str, float]], there: bool) -> None:
    assert at_roofline(study(*runs), 10.0) is there


def test_the_search_explores_no_more_then() -> None:
    made = study((4, "none", 9.5), (2, "none", 9.4), (4, "ngram-mod", 9.0))
    made.search.at_roofline = True

    proposal = made.next()

    assert proposal is None or proposal.purpose == "confirm"
