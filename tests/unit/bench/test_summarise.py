from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from turns import turn

from fleet.bench.summarise import baseline_of, summarise

pytestmark = pytest.mark.pure


def test_the_prompt_rate_counts_processed_tokens_only() -> None:
    found = summarise([turn(processed_tokens=20, cached_tokens=980, prefill_ms=200.0)])

    assert found.totals[0].pp_tps == pytest.approx(100.0)
    assert found.totals[0].reuse == pytest.approx(0.98)


def test_the_first_token_is_no_decode_step() -> None:
    found = summarise([turn(generated_tokens=11, decode_ms=500.0)])

    assert found.totals[0].tg_tps == pytest.approx(20.0)


def test_prefill_saved_is_in_seconds_of_one_pass() -> None:
    turns = [
        turn(condition=condition, repeat=repeat, number=number, prefill_ms=ms)
        for repeat in (1, 2)
        for number in (1, 2, 3)
        for condition, ms in (("C0", 1000.0), ("C1", 100.0))
    ]

    gain = summarise(turns).gains[0]

    assert gain.prefill_saved_s.value == pytest.approx(2.7)
    assert gain.prefill is not None
    assert gain.prefill.value == pytest.approx(10.0)
    assert gain.prefill.proven


def test_one_repeat_gives_no_interval_and_says_so() -> None:
    found = summarise([turn(), turn(condition="C1", prefill_ms=100.0)])

    assert found.gains[0].wall is not None
    assert not found.gains[0].wall.proven
    assert any("one repeat" in note for note in found.notes)


def test_only_turns_that_both_have_are_compared() -> None:
    turns = [
        turn(number=1),
        turn(number=2, prefill_ms=9000.0),
        turn(condition="C1", prefill_ms=500.0),
    ]

    found = summarise(turns)

    assert found.gains[0].pairs == 1
    assert found.gains[0].prefill_saved_s.value == pytest.approx(0.5)
    assert any("not complete" in note for note in found.notes)


def test_a_repeat_under_way_shortens_neither_totals_nor_gains() -> None:
    turns = [
        turn(condition=condition, repeat=repeat, number=number, conversation=talk, prefill_ms=ms)
        for condition, ms in (("C0", 1000.0), ("C1", 100.0))
        for talk, repeat, numbers in (("P0", 1, (1, 2)), ("P0", 2, (1,)), ("P1", 1, (1, 2)))
        for number in numbers
    ]

    found = summarise(turns)

    assert [total.prefill_s for total in found.totals] == pytest.approx([4.0, 0.4])
    assert found.gains[0].prefill_saved_s.value == pytest.approx(3.6)
    assert not found.gains[0].prefill_saved_s.proven


def test_unlike_conversations_do_not_widen_the_interval() -> None:
    turns = [
        turn(condition=condition, repeat=repeat, conversation=talk, prefill_ms=ms * size + repeat)
        for condition, ms in (("C0", 1000.0), ("C1", 100.0))
        for talk, size in (("P0", 1), ("P1", 20))
        for repeat in (1, 2, 3)
    ]

    gain = summarise(turns).gains[0]

    assert gain.prefill is not None
    assert gain.prefill.low == pytest.approx(gain.prefill.value, rel=0.02)


def test_unequal_lengths_do_not_look_like_speed() -> None:
    found = summarise([
        turn(generated_tokens=101, decode_ms=1000.0),
        turn(condition="C1", generated_tokens=11, decode_ms=100.0),
    ])  # fmt: skip

    assert found.gains[0].decode is not None
    assert found.gains[0].decode.value == pytest.approx(1.0)


def test_says_at_which_turn_answers_part() -> None:
    turns = [
        turn(condition=condition, number=number, answer_sha256=sha)
        for number, shas in ((1, "aa"), (2, "ab"), (3, "ac"))
        for condition, sha in zip(("C0", "C1"), shas, strict=True)
    ]

    gain = summarise(turns).gains[0]

    assert (gain.same_answers, gain.compared, dict(gain.parts_at)) == (1, 3, {"P0": 2})


def test_conditions_of_several_deployments_keep_their_own_baseline() -> None:
    names = ("small:C0", "small:C1", "large:C1", "large:C0")

    assert baseline_of("large:C1", names) == "large:C0"
    assert baseline_of("small:C1", names) == "small:C0"
    assert baseline_of("C1", ("C1", "C3")) == "C1"


def test_nothing_measured_is_no_error() -> None:
    found = summarise([])

    assert found.totals == ()
    assert found.gains == ()
