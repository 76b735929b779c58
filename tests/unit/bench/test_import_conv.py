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


def row(case: str, condition: str, turns: int, *, stable: bool = True) -> str:
    return (
        f"{case},2026-01-02,M1,m.gguf,m,P0,plain,{condition},x,vulkan,8192,true,false,{turns},4.0,"
        f"1,1,1,1,1,{'true' if stable else 'false'},ok\n"
    )


def trial(case: str, turn: int, *, tokens: int, ms: float, tps: float, said: str = "yes") -> str:
    return json.dumps({
        "case_id": case, "model_key": "M1", "persona_key": "P0", "cond_key": case[-2:],
        "turn": turn, "user": f"question {turn}", "assistant": said, "elapsed_sec": 2.0,
        "prompt_tokens": tokens, "gen_tokens": 10, "prompt_ms": ms, "predict_ms": 900.0,
        "prompt_tps": tps, "gen_tps": 11.0, "draft_n": None, "draft_accepted": None,
    }) + "\n"  # fmt: skip


def test_cached_tokens_follow_from_rate_and_time() -> None:
    # 137 tokens of prompt, of which 16 took 132.4 ms at 120.8 a second
    found = import_conv(
        HEAD + row("a-C1", "C1", 1), trial("a-C1", 1, tokens=137, ms=132.4, tps=120.8), source="s"
    )

    assert (found.turns[0].processed_tokens, found.turns[0].cached_tokens) == (16, 121)


def test_a_prompt_rate_is_not_divided_by_cached_tokens() -> None:
    found = import_conv(
        HEAD + row("a-C0", "C0", 1) + row("a-C1", "C1", 1),
        trial("a-C0", 1, tokens=1000, ms=2000, tps=500)
        + trial("a-C1", 1, tokens=1000, ms=40, tps=500),
        source="s",
    )

    summary = summarise(found.turns)

    assert [total.pp_tps for total in summary.totals] == pytest.approx([500.0, 500.0])
    assert summary.gains[0].prefill_saved_s.value == pytest.approx(1.96)


def test_the_last_whole_stable_run_counts_and_the_others_are_told() -> None:
    text = HEAD + row("a-C0", "C0", 1, stable=False) + row("a-C0", "C0", 2) + row("b-C1", "C1", 3)
    trials = (
        trial("a-C0", 1, tokens=10, ms=10, tps=1000, said="cut off")
        + trial("a-C0", 1, tokens=10, ms=10, tps=1000, said="first")
        + trial("a-C0", 2, tokens=20, ms=10, tps=2000, said="second")
        + trial("b-C1", 1, tokens=10, ms=10, tps=1000)
    )

    found = import_conv(text, trials, source="s")

    assert found.answers == ("first", "second")
    assert "1 complete runs of 3" in found.run["imported"]


@pytest.mark.parametrize(
    ("table", "trials", "where"),
    [
        ("case_id,turns\n", "", "conv.csv:1"),
        (HEAD + row("a-C0", "C0", 1), '{"case_id": "a-C0"}\n', "conv_trials.jsonl:1"),
        (HEAD + row("a-C0", "C0", 1), "{\n", "conv_trials.jsonl:1"),
    ],
)
def test_names_the_line_that_is_not_as_expected(table: str, trials: str, where: str) -> None:
    with pytest.raises(UserError) as error:
        import_conv(table, trials, source="data")

    assert error.value.where == f"data/{where}"


def test_refuses_files_without_a_whole_run() -> None:
    with pytest.raises(UserError, match="no complete"):
        import_conv(HEAD, "", source="data")
