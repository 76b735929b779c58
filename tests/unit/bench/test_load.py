from __future__ import annotations

from itertools import pairwise
from statistics import fmean

import pytest

from fleet.bench.load_plan import Load, plan_load
from fleet.bench.load_summary import Answered, gaps, percentiles, summarise_load
from fleet.bench.parse_llama_bench import parse_llama_bench
from fleet.errors import OutsideError
from fleet.profiles.kinds import Place, WorkloadProfile

pytestmark = pytest.mark.pure

WORK = WorkloadProfile(
    name="w",
    place=Place(file="w.yaml", line=1),
    prompt_tokens=100,
    shared_prefix_tokens=60,
    generated_tokens=8,
    users=2,
    settings={},
)


def test_requests_share_their_beginning_and_nothing_else() -> None:
    plan = plan_load(WORK, Load(requests=5), words_per_token=1.0)

    assert len({each.shared for each in plan}) == 1
    assert len({each.own for each in plan}) == 5
    assert len(plan[0].shared.split()) == 60


def test_poisson_arrivals_have_the_asked_rate_and_are_the_same_again() -> None:
    plan = plan_load(WORK, Load(requests=2000, rate=4.0), words_per_token=0.1)

    assert plan == plan_load(WORK, Load(requests=2000, rate=4.0), words_per_token=0.1)
    assert plan[-1].at_s / 1999 == pytest.approx(0.25, rel=0.1)
    waits = [b.at_s - a.at_s for a, b in pairwise(plan)]
    spread = fmean((wait - 0.25) ** 2 for wait in waits) ** 0.5
    assert spread == pytest.approx(0.25, rel=0.15)


def test_without_a_rate_all_are_there_at_once() -> None:
    assert {each.at_s for each in plan_load(WORK, Load(requests=4), words_per_token=1.0)} == {0.0}


def test_failed_requests_count_as_failed_and_as_nothing_else() -> None:
    asked = [
        Answered(number=1, due_s=0, sent_s=0, done_s=2, ttft_ms=500, prefill_ms=400,
              prompt_tokens=100, cached_tokens=60, generated_tokens=8, gaps_ms=(10.0, 30.0)),
        Answered(number=2, due_s=0, sent_s=1, done_s=4, error="HTTP 500"),
    ]  # fmt: skip

    found = summarise_load(asked)

    assert (found.requests, found.failed, found.generated_tokens) == (2, 1, 8)
    assert found.throughput == pytest.approx(2.0)
    assert found.queue_ms == (100.0, 100.0, 100.0)
    assert found.reuse == pytest.approx(0.6)


def test_nothing_asked_is_no_error() -> None:
    assert summarise_load([]).ttft_ms is None


def test_percentiles_and_gaps() -> None:
    assert percentiles([float(k) for k in range(101)]) == (50.0, 90.0, 99.0)
    assert gaps((1.0, 3.0, 8.0)) == (2.0, 5.0)


def test_reads_llama_bench_lines_among_its_log() -> None:
    text = (
        "load_backend: loaded CPU backend\n"
        '{"build_commit": "abc", "build_number": 11669, "n_prompt": 512, "n_gen": 0, "n_depth": 0,'
        ' "avg_ts": 420.5, "stddev_ts": 3.2, "samples_ts": [418.0, 423.0], "n_threads": 2}\n'
        '{"build_commit": "abc", "build_number": 11669, "n_prompt": 0, "n_gen": 128,'
        ' "n_depth": 4096, "avg_ts": 61.0, "stddev_ts": 0.5, "samples_ts": [61.0]}\n'
    )

    rows = parse_llama_bench(text)

    assert [row.name for row in rows] == ["pp512", "tg128 @ d4096"]
    assert rows[0].samples == (418.0, 423.0)
    assert rows[0].settings == {"n_threads": 2}


@pytest.mark.parametrize("text", ["", "error: failed to load model\n", '{"build_commit": 1}\n'])
def test_says_when_llama_bench_measured_nothing(text: str) -> None:
    with pytest.raises(OutsideError):
        parse_llama_bench(text)
