"""What llama-bench is asked, what is made of its rows, and when it is asked at all."""

from __future__ import annotations

import math

import pytest

from fleet.bench.parse_llama_bench import RawRow
from fleet.tune.raw_screening import bench_words, hinted, hints, pays, screened_params
from fleet.tune.request_plan import RequestShape
from fleet.tune.run_study import Outcome, Study
from fleet.tune.search import Search
from fleet.tune.search_space import make_space
from fleet.tune.trial_log import newest_study

pytestmark = pytest.mark.pure

SPACE = make_space(
    {
        "threads": [1, 2, 4], "threads_batch": [1, 2, 4], "flash_attention": ["auto", "off"],
        "speculation": ["none", "ngram-simple"], "cpu_moe_layers": [0, 4],
    },
    {
        "threads": 2, "threads_batch": 4, "flash_attention": "auto", "speculation": "none",
        "cpu_moe_layers": 0,
    },
)  # fmt: skip
SHAPE = RequestShape(shared=0, fresh=256, generated=48)
PARAMS = screened_params(SPACE, "tg")


def row(speed: float, **settings: object) -> RawRow:
    return RawRow(
        prompt=0, generated=48, depth=0, mean=speed, spread=0.0, samples=(), build=11669,
        settings=settings,
    )  # fmt: skip


def test_only_what_needs_no_other_load_is_varied_with_the_threads_of_the_metric() -> None:
    assert [param.name for param in PARAMS] == ["threads", "flash_attention"]
    assert [p.name for p in screened_params(SPACE, "pp")] == ["threads_batch", "flash_attention"]


def test_one_process_lists_all_values_and_leaves_the_others_as_they_are() -> None:
    now = {"threads": 2, "threads_batch": 4, "ubatch_size": 128, "flash_attention": "auto"}
    words = " ".join(bench_words("tg", now, SHAPE, {"threads": [2, 4, 1]}))
    deep = RequestShape(shared=4096, fresh=64, generated=24)

    flash = bench_words("tg", now, SHAPE, {"flash_attention": ["off", "auto"]})

    assert words == "-p 0 -n 48 -r 2 -o jsonl -t 2,4,1 -ub 128"
    assert flash[flash.index("-fa") + 1] == "0,1"
    assert bench_words("pp", now, deep, {}) == (
        ["-p", "64", "-n", "0", "-r", "2", "-o", "jsonl", "-d", "4096", "-ub", "128", "-t", "4"]
    )


def test_hints_are_ratios_to_the_default_of_the_same_process() -> None:
    rows = [row(50.0, n_threads=2), row(60.0, n_threads=4)]  # it crashed before 1

    assert hints(PARAMS[0], 2, rows) == [("threads", 4, pytest.approx(math.log(1.2)))]
    assert hints(PARAMS[0], 2, rows[1:]) == []
    assert [
        hint[:2] for hint in hints(PARAMS[1], "auto", [row(5, flash_attn=1), row(4, flash_attn=0)])
    ] == [("flash_attention", "off")]


@pytest.mark.parametrize(
    ("load_s", "run_s", "left_s", "worth"),
    [(20.0, 2.0, 600.0, True), (4.0, 2.0, 600.0, False), (20.0, 2.0, 100.0, False)],
)
def test_it_is_asked_where_loads_are_dear_and_time_is_left(
    load_s: float, run_s: float, left_s: float, worth: bool
) -> None:
    assert pays(PARAMS, load_s=load_s, run_s=run_s, left_s=left_s) is worth
    assert not pays((), load_s=load_s, run_s=run_s, left_s=left_s)


def test_a_hint_moves_what_is_tried_first_and_nothing_that_is_believed() -> None:
    space = make_space({"kind": list("abcdefgh")}, {"kind": "a"})
    tried = {}
    for likely in "dg":
        study = Study(search=Search(space), most_trials=9)
        study.search.hint("kind", likely, math.log(1.3))
        study.search.hint("kind", "not there", 1.0)
        for _ in range(2):
            proposal = study.next()
            assert proposal is not None
            study.take(proposal, Outcome(value=100.0, seconds=1.0))
        tried[likely] = space.settings(proposal.cell)["kind"]

        assert study.search.best_so_far() == pytest.approx(0.0, abs=0.01)

    assert tried == {"d": "d", "g": "g"}


def test_hints_stand_in_the_log() -> None:
    logged = newest_study(
        ['{"study": {}}', '{"screening": {"hints": [["threads", 4, 0.1]], "seconds": 3.5}}']
    )

    assert logged is not None
    assert logged.hints == (("threads", 4, 0.1),)
    assert logged.screening_s == 3.5
    assert hinted(logged.hints) == "llama-bench hinted where to look first: threads=4 +10.5%"
    assert hinted(()) is None
