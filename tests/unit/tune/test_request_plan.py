"""What a run sends."""

from __future__ import annotations

import pytest

from fleet.diagnose.prompts.requests import parse_requests
from fleet.profiles.kinds import Place, WorkloadProfile
from fleet.tune.captured_requests import CapturedWorkload
from fleet.tune.request_plan import RequestShape, Speed, plan_requests, shape_for

pytestmark = pytest.mark.pure
RESIDENT = WorkloadProfile(
    name="resident", place=Place(file="x", line=1), prompt_tokens=12_310,
    shared_prefix_tokens=9_216, generated_tokens=51, users=4,
)  # fmt: skip
TEXT = range(5000)


def test_requests_are_the_shorter_the_slower_the_machine_is() -> None:
    fast = shape_for("tg", None, 8192, speed=Speed(pp=5000, tg=500), run_s=4)
    slow = shape_for("tg", None, 8192, speed=Speed(pp=40, tg=4), run_s=4)

    assert (fast.generated, slow.generated) == (48, 12)
    assert fast.fresh > slow.fresh
    assert fast.count > slow.count == 1


def test_who_waits_is_measured_on_the_workload_as_it_is() -> None:
    shape = shape_for("ttft", RESIDENT, 16_384, speed=Speed(pp=100, tg=10))

    assert (shape.shared, shape.fresh, shape.generated) == (9_216, 3_094, 8)
    assert (shape.users, shape.count) == (4, 4)


def test_tg_on_a_workload_is_measured_at_its_depth() -> None:
    shape = shape_for("tg", RESIDENT, 16_384, at_depth=True)

    assert shape.shared + shape.fresh == 12_310
    assert shape.fresh == 64


def test_a_request_stays_within_a_slot() -> None:
    shape = shape_for("e2e", RESIDENT, 512)

    assert shape.shared + shape.fresh + shape.generated <= 512


def test_no_two_requests_of_a_study_share_more_than_the_workload_says() -> None:
    shape = RequestShape(shared=100, fresh=50, generated=8, count=4)
    prompts = [
        tuple(request.body["prompt"])
        for turn in range(3)
        for request in plan_requests(TEXT, shape, turn=turn)
    ]

    assert len({prompt[:100] for prompt in prompts}) == 1
    assert len({prompt[100] for prompt in prompts}) == 12


def test_captured_requests_are_sent_in_order_and_begin_again() -> None:
    lines = '{"messages": [{"role": "user", "content": "one"}]}\n{"prompt": "two"}\n'
    captured = CapturedWorkload(name="x.jsonl", requests=parse_requests(lines, "x.jsonl"))

    first, second = captured.plan(count=2, generated=9, turn=0)
    assert (first.path, first.body["max_tokens"]) == ("chat", 9)
    assert first.body["messages"] == [{"role": "user", "content": "one"}]
    assert (second.path, second.body["prompt"], second.body["n_predict"]) == (
        "completion",
        "two",
        9,
    )
    assert (
        captured.plan(count=2, generated=9, turn=1)[0].body["messages"] == (first.body["messages"])
    )
    assert captured.runs(2) == 1
