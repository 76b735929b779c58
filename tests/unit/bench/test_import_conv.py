from __future__ import annotations

import json

import pytest

from fleet.bench.import_conv import import_conv
from fleet.bench.summarise import summarise
from fleet.errors import UserError

pytestmark = pytest.mark.pure

HEAD = (
    "case_id,date,model_key,model_file,model_family,persona_key,persona_label,cond_key,"
    "cond_label,backend,context,cache_prompt,speculative,turns,load_sec,total_elapsed_sec,"
    "avg_prompt_tps,avg_gen_tps,sum_prompt_tokens,sum_gen_tokens,stable,notes\n"
)


def row(
    case: str, *sums: int, condition: str = "C1", context: int = 8192, stable: bool = True
) -> str:
    turns, prompt, made = sums
    return (
        f"{case},2026-01-02,M1,m.gguf,m,P0,plain,{condition},x,vulkan,{context},true,false,{turns},"
        f"4.0,1,1,1,{prompt},{made},{'true' if stable else 'false'},ok\n"
    )


def trial(
    case: str, turn: int, *, tokens: int, ms: float = 10, tps: float = 1000, said: str = "yes",
    elapsed: float = 1.0,
) -> str:  # fmt: skip
    return json.dumps({
        "case_id": case, "turn": turn, "user": f"question {turn}", "assistant": said,
        "elapsed_sec": elapsed, "prompt_tokens": tokens, "gen_tokens": 10, "prompt_ms": ms,
        "predict_ms": 990.0 - ms, "prompt_tps": tps, "gen_tps": 11.0, "draft_n": None,
        "draft_accepted": None,
    }) + "\n"  # fmt: skip


def test_cached_tokens_follow_from_rate_and_time() -> None:
    # 137 tokens of prompt, of which 16 took 132.4 ms at 120.8 a second
    found = import_conv(
        HEAD + row("a", 1, 137, 10), trial("a", 1, tokens=137, ms=132.4, tps=120.8), source="s"
    )

    assert (found.turns[0].processed_tokens, found.turns[0].cached_tokens) == (16, 121)


def test_what_rounding_alone_may_hide_is_not_called_cached() -> None:
    # 1,757 tokens in 261.4 s are 6.72 a second, written as 6.7
    found = import_conv(
        HEAD + row("a", 1, 1757, 10), trial("a", 1, tokens=1757, ms=261_391.9, tps=6.7), source="s"
    )

    assert found.turns[0].cached_tokens == 0


def test_a_prompt_rate_is_not_divided_by_cached_tokens() -> None:
    found = import_conv(
        HEAD + row("a", 1, 1000, 10, condition="C0") + row("b", 1, 1000, 10),
        trial("a", 1, tokens=1000, ms=2000, tps=500) + trial("b", 1, tokens=1000, ms=40, tps=500),
        source="s",
    )

    summary = summarise(found.turns)

    assert [total.pp_tps for total in summary.totals] == pytest.approx([500.0, 500.0])
    assert summary.gains[0].prefill_saved_s.value == pytest.approx(1.96)


def test_the_last_whole_stable_run_counts_and_the_others_are_told() -> None:
    table = HEAD + row("a", 1, 10, 10, stable=False) + row("a", 2, 30, 20) + row("b", 3, 99, 30)
    trials = (
        trial("a", 1, tokens=10, said="cut off")
        + trial("a", 1, tokens=10, said="first")
        + trial("a", 2, tokens=20, said="second")
        + trial("b", 1, tokens=10)
    )

    found = import_conv(table, trials, source="s")

    assert found.answers == ("first", "second")
    assert "1 complete runs of 3" in found.run["imported"][0]


def test_turns_of_a_later_failed_run_replace_none_of_the_stable_one() -> None:
    table = HEAD + row("a", 2, 30, 20) + row("a", 1, 10, 10, stable=False)
    trials = (
        trial("a", 1, tokens=10, said="first")
        + trial("a", 2, tokens=20, said="second")
        + trial("a", 1, tokens=10, said="cut off")
    )

    assert import_conv(table, trials, source="s").answers == ("first", "second")


def test_two_runs_that_wrote_at_once_are_told_apart() -> None:
    table = HEAD + row("a", 1, 12, 10, stable=False) + row("a", 2, 30, 20)
    trials = (
        trial("a", 1, tokens=10, said="first")
        + trial("a", 1, tokens=12, said="another's")
        + trial("b", 1, tokens=5)
        + trial("a", 2, tokens=20, said="second")
    )

    # the second turn goes on with the later run, so no run has the sums of the stable row
    with pytest.raises(UserError, match="no complete"):
        import_conv(table, trials, source="s")


def test_runs_of_unlike_contexts_are_not_added_up() -> None:
    table = HEAD + row("a", 1, 10, 10, context=4096) + row("b", 1, 10, 10, context=6144)

    found = import_conv(table, trial("a", 1, tokens=10) + trial("b", 1, tokens=10), source="s")

    assert found.run["deployments"] == ["M1@4096", "M1@6144"]


def test_says_whose_wall_time_holds_waiting() -> None:
    table = HEAD + row("a", 1, 10, 10) + row("b", 1, 10, 10)
    trials = trial("a", 1, tokens=10) + trial("b", 1, tokens=10, elapsed=2.0)

    told = import_conv(table, trials, source="s").run["imported"][-1]

    assert "1 runs" in told
    assert "b 50%" in told


@pytest.mark.parametrize(
    ("table", "trials", "where"),
    [
        ("case_id,turns\n", "", "conv.csv:1"),
        (HEAD + "a,2026-01-02,M1\n", "", "conv.csv:2"),
        (HEAD + row("a", 1, 10, 10), '{"case_id": "a"}\n', "conv_trials.jsonl:1"),
        (HEAD + row("a", 1, 10, 10), "{\n", "conv_trials.jsonl:1"),
        (HEAD + row("a", 1, 10, 10), "[]\n", "conv_trials.jsonl:1"),
        (HEAD, trial("a", 1, tokens=1).replace("990", '"x"').replace("980", '"x"'),
         "conv_trials.jsonl:1"),
    ],
)  # fmt: skip
def test_names_the_line_that_is_not_as_expected(table: str, trials: str, where: str) -> None:
    with pytest.raises(UserError) as error:
        import_conv(table, trials, source="data")

    assert error.value.where == f"data/{where}"


def test_refuses_files_without_a_whole_run() -> None:
    with pytest.raises(UserError, match="no complete"):
        import_conv(HEAD, "", source="data")
