"""What a measuring program may answer."""

from __future__ import annotations

import json

import pytest

from fleet.errors import OutsideError, UserError
from fleet.tune.measure_external import parse_command, parse_reply, tune_external
from fleet.tune.search_space import parse_space

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("line", ["", "hi", "[]", "{}", '{"value": "fast"}', '{"seconds": 1}'])
def test_a_line_that_is_no_reply_is_the_programs_fault(line: str) -> None:
    with pytest.raises(OutsideError):
        parse_reply(line, wall_s=1.0)


@pytest.mark.parametrize("line", ['{"failed": "oom"}', '{"value": NaN}', '{"value": -1}'])
def test_a_failure_or_an_unusable_value_is_data(line: str) -> None:
    reply = parse_reply(line, wall_s=2.5)

    assert reply.value is None
    assert reply.failed
    assert reply.seconds == 2.5


def test_its_own_seconds_count_before_the_walls() -> None:
    assert parse_reply('{"value": 3, "seconds": 7}', wall_s=1.0).seconds == 7


def test_the_command_is_split_as_a_shell_does() -> None:
    assert parse_command("run 'a b' --x=1") == ["run", "a b", "--x=1"]
    for wrong in ("", "'open"):
        with pytest.raises(UserError):
            parse_command(wrong)


class Program:
    """Answers by rule and remembers what it heard."""

    def __init__(self) -> None:
        self.heard: list[dict[str, object]] = []

    def say(self, line: str) -> None:
        self.heard.append(json.loads(line))

    def hear(self) -> str:
        settings = self.heard[-1]["settings"]
        assert isinstance(settings, dict)
        return json.dumps({"value": 10.0 * settings["n"], "seconds": 2.0})


def test_the_budget_is_the_sum_of_the_replies_and_the_end_is_said() -> None:
    program = Program()
    space = parse_space({"params": {"n": [1, 2, 3, 4]}, "default": {"n": 1}}, where="s")

    result = tune_external(space, program, budget_s=40, seed=1, elapsed=lambda: 0.0)

    assert result.chosen == {"n": 4}
    assert result.claimed_gain == pytest.approx(3.0, rel=0.02)
    assert result.seconds == 2.0 * result.evaluations <= 42
    assert program.heard[0] == {"settings": {"n": 1}}
    assert program.heard[-1] == {"end": True}
