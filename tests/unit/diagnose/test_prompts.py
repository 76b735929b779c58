"""What breaks a shared prefix, how it is named, and what the placement rule predicts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleet.diagnose.prompts.analysis import analysis_json, analyze
from fleet.diagnose.prompts.breaks import find_breaks
from fleet.diagnose.prompts.placement import Memory, SlotModel, memory_of
from fleet.diagnose.prompts.requests import Request, parse_requests
from fleet.diagnose.prompts.tokens import _PIECES, Estimate, common_length, make_prompt
from fleet.errors import UserError
from fleet.facts.known_builds import build_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.diagnose.prompts.variants import Choice

pytestmark = pytest.mark.pure

SHARED = "The harbour museum shows clocks of every kind and age to its visitors. " * 8
UUIDS = ("0c1e5709-8f2a-4b7e-9d3c-5a6b7c8d9e0f", "7b7e9d3c-5a6b-4c8d-9e0f-0c1e57098f2a")


def request(system: str, user: str = "hello", **more: object) -> Request:
    body = {"messages": [{"role": "system", "content": system}, {"role": "user", "content": user}]}
    return parse_requests(json.dumps(body | more), "r.jsonl")[0]


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("It is 2026-10-11 12:00:01.", "It is 2026-10-11 12:00:09.", "timestamp"),
        ("Session " + UUIDS[0], "Session " + UUIDS[1], "uuid"),
        ("Request 17 of today", "Request 18 of today", "counter"),
        ("cch=0a1b2 first", "cch=9f8e7 first", "billing header"),
        ("Be  brief.", "Be brief.", "whitespace"),
        ("<think>so</think> yes", "yes", "think tags"),
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', "json key order"),
        ("You are Anna. " + SHARED, "You are Boris. " + SHARED, "per-user data before shared data"),
    ],
)
def test_names_what_breaks_the_prefix(first: str, second: str, kind: str) -> None:
    found = find_breaks(request(first), request(second))

    assert found[0].kind == kind


def test_tools_in_another_order_are_told_from_other_tools() -> None:
    tools = [{"function": {"name": name}} for name in ("read", "write")]

    found = find_breaks(request("x", tools=tools), request("x", tools=tools[::-1]))

    assert (found[0].where, found[0].kind) == ("tools", "tool order")


def test_a_new_question_is_no_fault() -> None:
    found = find_breaks(request("x", "one thing"), request("x", "another"))

    assert [one.kind for one in found] == ["the request itself"]


def test_a_break_does_not_hide_the_next_one() -> None:
    first, second = (
        request(f"Now 12:00:0{n}. {SHARED} You are visitor {n}.", f"question {n}") for n in (1, 2)
    )

    found = find_breaks(first, second)

    assert [(one.where, one.kind) for one in found] == [
        ("messages[0] (system)", "timestamp"),
        ("messages[0] (system)", "counter"),
        ("messages[1] (user)", "counter"),
    ]
    assert found[0].offset < len(SHARED) < found[1].offset


def test_moving_what_changes_to_the_end_lets_the_rest_be_reused() -> None:
    requests = [request(f"Now 12:00:0{n}\n\n{SHARED}\n\nYou are number {n}.") for n in range(5)]

    found = analysis_json(analyze(requests, Estimate(), Memory()), show_text=False)

    assert found["reusable_tokens"]["reordered"] > 5 * found["reusable_tokens"]["default"]
    assert found["advice"][0]["reusable_tokens_after"] >= found["reusable_tokens"]["reordered"]
    assert found["estimated"] is True
    assert SHARED[:40] not in json.dumps(found)


def test_a_schema_told_again_in_prose_is_found() -> None:
    schema = {"properties": {"mood": {}, "action": {}, "target": {}, "reason": {}}}
    prose = "Answer with the fields mood, action, target and reason."
    asked = [request(f"Rules.\n\n{prose}", response_format={"schema": schema})] * 2

    found = analysis_json(analyze(asked, Estimate(), Memory()), show_text=True)

    assert [one["kind"] for one in found["said_twice"]] == ["a schema and its prose"]
    assert found["said_twice"][0]["text"] == prose


WINDOW = Memory(window=512)


Reused = tuple[int, int, int]


def reuse(memory: Memory, prompts: list[list[int]], user_starts: Sequence[int] = ()) -> list[int]:
    slot = SlotModel(memory=memory)
    return [slot.take(prompt, user_starts) for prompt in prompts]


def differing(tail: int, count: int = 4) -> list[list[int]]:
    return [[*range(2248), *range(10_000 * n, 10_000 * n + tail)] for n in range(1, count + 1)]


def test_a_long_tail_reuses_nothing_of_a_window_model() -> None:
    assert reuse(WINDOW, differing(1500)) == [0, 0, 0, 0]


def test_a_prefix_sent_alone_is_reused_ever_after() -> None:
    primed = reuse(WINDOW, [list(range(2248)), *differing(1500)])

    assert primed[1:] == [2248, 2243, 2243, 2243]


def test_a_short_tail_is_within_the_live_window() -> None:
    assert reuse(WINDOW, differing(300)) == [0, 2248, 2248, 2248]


def test_four_unified_slots_and_a_full_window_reach_back_further() -> None:
    unified = Memory(window=512, slots=4, unified=True)

    assert reuse(unified, differing(1500)) == [0, 2248, 2248, 2248]
    assert reuse(Memory(window=512, full_window=True), differing(1500)) == [0, 2248, 2248, 2248]


BUILDS = (
    # build, then what requests 1 to 3 reused there: raw, primed, chat, chat that goes on alike
    ("b8672", (0, 1116, 1116), (1115, 1116, 1116), (0, 1162, 1162), (0, 1417, 1417)),
    ("b9093", (0, 1116, 1116), (1115, 1116, 1116), (0, 1162, 1162), (0, 1417, 1417)),
    ("b9538", (0, 1116, 0), (1115, 1116, 1110), (0, 1162, 1144), (0, 1417, 1144)),
    ("b9873", (0, 0, 0), (1115, 598, 598), (0, 1144, 1144), (0, 1144, 1144)),
    ("b10434", (0, 0, 0), (1115, 598, 598), (0, 1144, 1144), (0, 1144, 1144)),
    ("b10566", (0, 0, 0), (1115, 598, 598), (0, 1144, 1144), (0, 1144, 1144)),
    ("b11063", (0, 0, 0), (1115, 1110, 1110), (0, 1144, 1144), (0, 1144, 1144)),
    ("b11549", (0, 0, 0), (1115, 1110, 1110), (0, 1144, 1144), (0, 1144, 1144)),
)


@pytest.mark.parametrize(("build", "raw", "primed", "chat", "alike"), BUILDS)
def test_each_build_reuses_what_it_was_seen_to(
    build: str, raw: Reused, primed: Reused, chat: Reused, alike: Reused
) -> None:
    settings = {"ubatch_size": 512}
    memory = replace(memory_of(settings, None, build_facts("llama.cpp", build)), window=128)
    prompts = [[*range(1116), *range(9000 * n, 9000 * n + 812)] for n in (1, 2, 3)]
    chats = [[*range(1162), *range(9000 * n, 9000 * n + 845)] for n in (1, 2, 3)]
    longer = [[*range(1417), *range(9000 * n, 9000 * n + 845)] for n in (1, 2, 3)]

    assert reuse(memory, prompts) == list(raw)
    assert reuse(memory, [list(range(1115)), *prompts])[1:] == list(primed)
    assert reuse(memory, chats, [1145]) == list(chat)
    assert reuse(memory, longer, [1145]) == list(alike)


def test_the_remedy_is_the_cheapest_that_the_build_can_do() -> None:
    body = "A rule of the house, told at length and never changed. " * 60
    asked = [
        parse_requests(json.dumps({"prompt": f"{body}\n\n{f'own{n} ' * 900}"}), "r.jsonl")[0]
        for n in range(4)
    ]
    apart = [
        parse_requests(json.dumps({"prompt": f"{f'own{n} ' * 900}\n\n{body}"}), "r.jsonl")[0]
        for n in range(4)
    ]

    def chosen(requests: list[Request], build: str, **settings: object) -> Choice:
        facts = build_facts("llama.cpp", build)
        memory = replace(memory_of(settings, None, facts), window=512)
        return analyze(requests, Estimate(), memory, build=facts).choice

    assert chosen(asked, "b11549").variant == "primed"
    assert chosen(asked, "b8672").variant == "default"  # cuts checkpoints back
    spaced = chosen(asked, "b10434")
    assert (spaced.variant, spaced.options) == (
        "primed+interval=256", ("--checkpoint-min-step", "256"),
    )  # fmt: skip
    assert chosen(asked, "b11549", swa_full=True).variant == "default"
    assert chosen(apart, "b11549").variant == "reordered+primed"
    two = [
        parse_requests(
            json.dumps({"user": "ab"[n % 2], "prompt": f"{n % 2} {body} {f'x{n} ' * 900}"}), "r"
        )[0]
        for n in range(6)
    ]
    split = chosen(two, "b11549")
    assert (split.variant, dict(split.settings)) == (
        "split+swa_full", {"parallel": 2, "kv_unified": False, "swa_full": True},
    )  # fmt: skip


def test_ik_keeps_whole_windows_unless_told_not_to() -> None:
    ik = build_facts("ik_llama.cpp")

    assert memory_of({}, None, ik).full_window
    assert not memory_of({"swa_full": False}, None, ik).full_window
    assert not memory_of({}, None, build_facts("llama.cpp", "b11549")).full_window


def test_vllm_reuses_multiples_of_its_interval() -> None:
    memory = Memory(engine="vllm", window=512, interval=1024)

    assert reuse(memory, differing(1500))[1:] == [2048, 2048, 2048]


def test_common_length_is_exact() -> None:
    assert common_length([1, 2, 3, 4], [1, 2, 9, 4]) == 2
    assert common_length([1, 2], [1, 2, 3]) == 2
    assert common_length([], [1]) == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ('{"messages": []}', "no messages"),
        ('{"messages": [{"content": "x"}]}', "no role"),
        ("[1]", "no request"),
        ('{"messages": [{"role": "user", "content": "x"}]}\n{broken', "no JSON"),
    ],
)
def test_requests_that_are_none_are_refused_with_their_line(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse_requests(text, "r.jsonl")


def test_a_logged_prompt_keeps_its_messages_apart_whatever_it_begins_with() -> None:
    (found,) = parse_requests("[INST] one [/INST] two [INST] three [/INST]", "folder/0001.txt")

    prompt = make_prompt(found, Estimate())

    assert found.prompt is not None
    assert len(prompt.user_starts) == 2
    assert "".join(_PIECES.findall(prompt.text)[: prompt.user_starts[1]]).endswith("two ")
