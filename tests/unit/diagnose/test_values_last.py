"""A value that changes inside a shared block is advised to be moved behind it."""

from __future__ import annotations

import json

import pytest

from fleet.diagnose.prompts.analysis import analyze
from fleet.diagnose.prompts.placement import Memory
from fleet.diagnose.prompts.requests import parse_requests
from fleet.diagnose.prompts.tokens import Estimate
from fleet.diagnose.prompts.values_last import values_last

pytestmark = pytest.mark.pure

RULES = (
    "Use short sentences and plain words, name prices in euros, and never promise that a clock "
    "of the house works on a given day, since old ones stop. Ask at the desk for the way. "
    "Rooms are shown in the order of the walk."
)


def asked(begin: str, values: tuple[str, ...]) -> str:
    """Return requests that differ by a value in the system prompt's only paragraph."""
    bodies = [
        [
            {"role": "system", "content": f"{begin} {value}. {RULES}"},
            {"role": "user", "content": f"question {at} is this?"},
        ]
        for at, value in enumerate(values)
    ]
    return "\n".join(json.dumps({"messages": each}) for each in bodies)


@pytest.mark.parametrize(
    ("begin", "values", "kind"),
    [
        ("It is", ("2026-11-29T12:00:01", "2026-11-29T12:03:07", "2026-11-29T13:11:15"), "time"),
        ("Visitor number", ("41", "42", "1043"), "counter"),
        ("You help", ("Anna Huber", "Boris", "Cleo of Delft"), "per-user"),
    ],
)
def test_the_first_advice_is_to_move_the_value(
    begin: str, values: tuple[str, ...], kind: str
) -> None:
    """It says what stands where, and frees about the tokens of the rules."""
    found = analyze(parse_requests(asked(begin, values), "r.jsonl"), Estimate(), Memory())
    assert found.choice.variant == "values-last"
    assert found.choice.change.startswith("move what changes inside shared text (" + kind)
    freed = found.reusable["values-last"] - found.reusable["default"]
    assert freed > len(Estimate().tokenize(RULES)) - 3


def test_questions_that_resemble_one_another_are_no_shared_text() -> None:
    """Only the last user message differs: nothing is to be moved."""
    requests = parse_requests(asked("You help", ("Anna",) * 3), "r.jsonl")
    assert values_last(requests) is None
    assert analyze(requests, Estimate(), Memory()).choice.variant == "default"
