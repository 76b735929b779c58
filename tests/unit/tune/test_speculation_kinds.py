"""Speculation as one parameter."""

from __future__ import annotations

import pytest

from fleet.facts.known_builds import build_facts
from fleet.tune.speculation_kinds import one_value, speculation_values, spelled_out

pytestmark = pytest.mark.pure


def test_a_value_is_spelled_out_as_settings_and_read_back() -> None:
    settings = spelled_out({"threads": 4, "speculation": "draft-simple max=8 p_min=0.5"})

    assert settings == {
        "threads": 4, "speculation": "draft-simple", "draft_max": 8, "draft_p_min": 0.5,
    }  # fmt: skip
    assert one_value(settings) == "draft-simple max=8 p_min=0.5"


def test_off_stays_one_word_whatever_lengths_are_set() -> None:
    assert one_value({"draft_max": 8}) == "none"
    assert spelled_out({"speculation": "none"}) == {"speculation": "none"}
    assert spelled_out({"threads": 2}) == {"threads": 2}


def test_drafts_are_tried_only_where_there_is_what_drafts() -> None:
    build = build_facts("llama.cpp", "b11669")

    without = speculation_values(build, draft=False, mtp=False)
    with_draft = speculation_values(build, draft=True, mtp=False)

    assert "none" in without
    assert {str(value).split()[0] for value in without} >= {"ngram-simple", "ngram-mod"}
    assert not any("draft" in str(value) for value in without)
    assert "draft-simple max=8 p_min=0.5" in with_draft


def test_a_build_without_the_flag_speculates_not() -> None:
    assert speculation_values(build_facts("llama.cpp", "b8672"), draft=True, mtp=True)[0] == "none"
