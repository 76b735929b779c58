from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from turns import turn

from fleet.bench.turn import parse_turns
from fleet.errors import UserError

pytestmark = pytest.mark.pure

FIELDS = (
    "conversation", "condition", "repeat", "turn", "processed_tokens", "cached_tokens",
    "generated_tokens", "prefill_ms", "decode_ms", "ttft_ms", "wall_ms", "draft_n",
    "draft_accepted", "cold", "retries", "answer_sha256",
)  # fmt: skip


def test_a_line_has_the_fields_of_the_contract_in_order() -> None:
    assert tuple(json.loads(turn().as_line())) == FIELDS


def test_reads_what_it_writes() -> None:
    turns = (turn(number=1), turn(number=2, prefill_ms=3.5))

    assert parse_turns("".join(f"{t.as_line()}\n" for t in turns), source="f") == turns


@pytest.mark.parametrize("cut", range(1, 40, 7))
def test_a_last_line_cut_by_a_kill_is_left_out(cut: int) -> None:
    text = f"{turn(number=1).as_line()}\n{turn(number=2).as_line()[:-cut]}"

    assert [t.turn for t in parse_turns(text, source="f")] == [1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ttft_ms": None}, "ttft_ms"),
        ({"cold": 1}, "cold"),
        ({"turn": "1"}, "turn"),
        ({"turn": True}, "turn"),
        ({"new": 1}, "new"),
    ],
)
def test_names_the_line_and_field_of_another_version(change: dict[str, object], said: str) -> None:
    line = json.dumps(json.loads(turn().as_line()) | change)

    with pytest.raises(UserError) as error:
        parse_turns(f"{turn(number=9).as_line()}\n{line}\n", source="turns.jsonl")

    assert error.value.where == "turns.jsonl:2"
    assert said in error.value.message


@pytest.mark.parametrize("line", ["{", "[]", "3"])
def test_refuses_a_line_that_is_no_turn(line: str) -> None:
    with pytest.raises(UserError):
        parse_turns(f"{line}\n", source="f")


def test_refuses_a_turn_that_is_there_twice() -> None:
    line = turn().as_line()

    with pytest.raises(UserError, match="twice"):
        parse_turns(f"{line}\n{line}\n", source="f")
