from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from faulty_server import Behaviour, Starts

from fleet.bench.conditions import Condition, conditions_of
from fleet.bench.conversation_suite import bench_conversations
from fleet.bench.results_folder import ResultsFolder
from fleet.bench.run_conversations import Asked, Subject
from fleet.effects.lock import held
from fleet.errors import EngineFailed, FleetError, LockHeld, NotAsWanted, OutsideError, UserError
from fleet.facts.host_facts import HostFacts
from fleet.profiles.kinds import ConversationProfile, Place

MACHINE = HostFacts(name="local", cores=2, cpus=(0, 1))
DEPLOYMENT: Any = SimpleNamespace(
    name="d", settings={}, model=SimpleNamespace(draft_path=None, draft_repo=None)
)
TALK = ConversationProfile(
    name="T",
    place=Place(file="T.yaml", line=1),
    language="en",
    persona="p",
    system="You are here.",
    turns=("one", "two", "three"),
)
CACHE = Condition(name="C1", meaning="cache", settings={})
NO_CACHE = Condition(name="C0", meaning="none", settings={}, cache_prompt=False)
ASKED = Asked(
    subjects=(Subject(deployment=DEPLOYMENT, conditions=(NO_CACHE, CACHE)),),
    conversations=(TALK,),
    generate=2,
)


class JumpingClock:
    """The time of day jumps back by a year with every look; waiting takes no time."""

    def __init__(self) -> None:
        self.looks = 0
        self.slept = 0.0
        self.ticks = 0.0

    def now(self) -> datetime:
        self.looks += 1
        return datetime(2030 - self.looks, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        self.ticks += 0.001
        return self.ticks

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def run(
    path: Path, behaviour: Behaviour | None = None, asked: Asked = ASKED, **more: Any
) -> tuple[Any, Starts]:
    starts = more.pop("starts", None) or Starts(behaviour or Behaviour())
    summary = bench_conversations(
        asked,
        folder=ResultsFolder(path=path),
        start=starts,
        clock=JumpingClock(),
        machine=more.pop("machine", MACHINE),
        tell=more.pop("tell", print),
    )
    return summary, starts


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "turns.jsonl").read_text().splitlines()]


def test_measures_every_turn_once_on_a_fresh_server_a_cell(tmp_path: Path) -> None:
    summary, starts = run(tmp_path)

    turns = lines(tmp_path)
    assert len({(t["condition"], t["turn"]) for t in turns}) == len(turns) == 6
    assert starts.started == 2
    assert [t["cold"] for t in turns] == [True, False, False] * 2
    assert all(t["wall_ms"] > 0 for t in turns)
    assert summary.gains[0].same_answers == 3


def test_the_whole_history_is_sent_and_the_cache_only_where_asked(tmp_path: Path) -> None:
    behaviour = Behaviour()
    run(tmp_path, behaviour)

    sent = behaviour.requests
    assert [len(body["messages"]) for body in sent] == [2, 4, 6, 2, 4, 6]
    assert [m["content"] for m in sent[2]["messages"]] == [
        "You are here.", "one", "hello", "two", "hello", "three",
    ]  # fmt: skip
    assert [body["cache_prompt"] for body in sent] == [False] * 3 + [True] * 3
    assert all(body["ignore_eos"] and body["temperature"] == 0 for body in sent)


def test_goes_on_at_the_next_turn_with_the_one_before_sent_again(tmp_path: Path) -> None:
    run(tmp_path, asked=replace(ASKED, limit_turns=2))
    behaviour = Behaviour()

    run(tmp_path, behaviour)

    assert len(lines(tmp_path)) == 6
    assert [len(body["messages"]) for body in behaviour.requests] == [4, 6, 4, 6]
    assert not any(t["cold"] for t in lines(tmp_path) if t["turn"] == 3)


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_kill_in_the_middle_of_a_line_loses_that_turn_only(tmp_path: Path, cut: int) -> None:
    run(tmp_path)
    file = tmp_path / "turns.jsonl"
    file.write_text(file.read_text()[:-cut])

    run(tmp_path)

    turns = lines(tmp_path)
    assert len({(t["condition"], t["turn"]) for t in turns}) == len(turns) == 6


def test_a_cut_connection_is_tried_again_and_counted(tmp_path: Path) -> None:
    summary, _ = run(tmp_path, Behaviour(cut=2))

    assert [t["retries"] for t in lines(tmp_path)] == [2, 0, 0, 0, 0, 0]
    assert any("sent again" in note for note in summary.notes)


def test_gives_up_after_three_tries_and_keeps_what_was_measured(tmp_path: Path) -> None:
    run(tmp_path, asked=replace(ASKED, limit_turns=1))

    with pytest.raises(OutsideError):
        run(tmp_path, Behaviour(cut=99))
    assert len(lines(tmp_path)) == 2


def test_a_request_that_the_server_refuses_is_not_tried_again(tmp_path: Path) -> None:
    behaviour = Behaviour(status=400)

    with pytest.raises(OutsideError):
        run(tmp_path, behaviour)
    assert len(behaviour.requests) == 1


def test_a_dead_server_is_started_again_and_the_turn_done_again(tmp_path: Path) -> None:
    behaviour = Behaviour()
    starts = Starts(behaviour)

    def die_at_second_turn(text: str) -> None:
        if "C0 repeat 1 turn 1:" in text:
            behaviour.cut, behaviour.alive = 1, False

    run(tmp_path, starts=starts, tell=die_at_second_turn)

    turns = lines(tmp_path)
    assert starts.started == 3
    assert len(turns) == 6
    assert turns[1]["retries"] == 1


def test_a_server_that_dies_again_and_again_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match="the last line"):
        run(tmp_path, Behaviour(mortal=True, cut=99))


def test_a_server_without_timings_is_timed_by_the_client(tmp_path: Path) -> None:
    run(tmp_path, Behaviour(timings=False))

    samples = ResultsFolder(path=tmp_path).samples()
    assert {sample["timed_by"] for sample in samples} == {"client"}
    assert all(t["processed_tokens"] == 12 for t in lines(tmp_path))


def test_a_server_without_any_counts_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match="timings"):
        run(tmp_path, Behaviour(timings=False, usage=False))


def test_names_the_turn_that_is_beyond_the_context(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="turn 2 of T") as error:
        run(tmp_path, Behaviour(context=6))

    assert error.value.exit_code == 3
    assert "--limit-turns 1" in (error.value.fix or "")


def test_a_refusal_binds_the_folder_to_no_context(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        run(tmp_path, Behaviour(context=6))

    run(tmp_path, Behaviour(context=4096))

    assert len(lines(tmp_path)) == 6


@pytest.mark.parametrize("change", [{"build": "b2-y"}, {"context": 2048}])
def test_refuses_to_go_on_with_another_server(tmp_path: Path, change: dict[str, Any]) -> None:
    run(tmp_path, asked=replace(ASKED, limit_turns=1))

    with pytest.raises(NotAsWanted):
        run(tmp_path, Behaviour(**change))
    assert len(lines(tmp_path)) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"generate": 3}, "generate"),
        ({"mode": "free"}, "mode"),
        ({"conversations": (replace(TALK, turns=("other",)),)}, "conversations T"),
        (
            {
                "subjects": (
                    Subject(deployment=DEPLOYMENT, conditions=(replace(CACHE, primed=True),)),
                )
            },
            "conditions C1",
        ),
    ],
)
def test_refuses_a_folder_that_holds_another_run(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    run(tmp_path, asked=replace(ASKED, limit_turns=1))

    with pytest.raises(UserError, match=said):
        run(tmp_path, asked=replace(ASKED, **change))


def test_refuses_to_go_on_on_another_machine(tmp_path: Path) -> None:
    run(tmp_path, asked=replace(ASKED, limit_turns=1))

    with pytest.raises(UserError, match="machine"):
        run(tmp_path, machine=replace(MACHINE, cores=64))


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"suite": "conversation", "version": 99}', '{"version": 1}']
)
def test_refuses_a_folder_of_something_else(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)

    with pytest.raises(UserError):
        run(tmp_path)


def test_two_benches_on_one_folder(tmp_path: Path) -> None:
    with held(tmp_path / ".lock"), pytest.raises(LockHeld) as error:
        run(tmp_path)

    assert error.value.exit_code == 5


def test_a_full_disk_ends_the_run_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "turns.jsonl").symlink_to("/dev/full")

    class Silent(ResultsFolder):
        """Reading the device never ends, so this folder reads nothing."""

        def turns(self) -> tuple[Any, ...]:
            return ()

        def mend(self) -> None:
            pass

    with pytest.raises(FleetError, match="No space left") as error:
        bench_conversations(
            ASKED, folder=Silent(path=tmp_path), start=Starts(Behaviour()), clock=JumpingClock(),
            machine=MACHINE, tell=print,
        )  # fmt: skip

    assert error.value.exit_code == 5


def test_free_mode_feeds_back_ones_own_answers_and_lets_them_end(tmp_path: Path) -> None:
    behaviour = Behaviour()
    run(tmp_path, behaviour, asked=replace(ASKED, mode="free"))

    assert not any("ignore_eos" in body for body in behaviour.requests)
    assert not (tmp_path / "references.jsonl").exists()


def test_priming_sends_the_shared_part_alone_before_the_first_turn(tmp_path: Path) -> None:
    behaviour = Behaviour()
    primed = replace(CACHE, name="C3", primed=True)
    asked = replace(ASKED, subjects=(Subject(deployment=DEPLOYMENT, conditions=(primed,)),))

    run(tmp_path, behaviour, asked=asked)

    assert "prompt" in behaviour.requests[0]
    assert not any(t["cold"] for t in lines(tmp_path))


def test_conditions_by_name_in_their_order_and_others_by_settings() -> None:
    found = conditions_of(DEPLOYMENT, only=("C2", "C0"), extra=("big:ubatch_size=1024",))

    assert [condition.name for condition in found] == ["C0", "C2", "big"]
    assert found[1].settings["speculation"] == "ngram-simple"
    assert found[2].settings == {"ubatch_size": 1024}


@pytest.mark.parametrize(
    ("only", "extra"),
    [(("C9",), ()), ((), ("x",)), ((), ("x:",)), ((), ("C1:threads=2",)), ((), ("x:no_such=1",))],
)
def test_refuses_conditions_that_mean_nothing(
    only: tuple[str, ...], extra: tuple[str, ...]
) -> None:
    with pytest.raises(UserError):
        conditions_of(DEPLOYMENT, only=only, extra=extra)
