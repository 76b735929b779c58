from __future__ import annotations

import pytest

from fleet.bench.compare import compare_windows
from fleet.bench.window_figures import Scrape, Window, window_figures
from fleet.errors import NotAsWanted, OutsideError
from fleet.observe.parse_prometheus import parse_metrics, quantile

pytestmark = pytest.mark.pure

HISTOGRAMS = ("request_prefill_time_seconds", "e2e_request_latency_seconds")


def llama(new: int, cached: int, prompt_s: float, made: int, made_s: float) -> Scrape:
    text = (
        f"# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total {new}\n"
        "# TYPE llamacpp:prompt_tokens_cached_total counter\n"
        f"llamacpp:prompt_tokens_cached_total {cached}\n"
        f"# TYPE llamacpp:prompt_seconds_total counter\nllamacpp:prompt_seconds_total {prompt_s}\n"
        f"# TYPE llamacpp:tokens_predicted_total counter\nllamacpp:tokens_predicted_total {made}\n"
        "# TYPE llamacpp:tokens_predicted_seconds_total counter\n"
        f"llamacpp:tokens_predicted_seconds_total {made_s}\n"
    )
    return Scrape(at_s=0.0, metrics=parse_metrics(text))


def vllm(requests: int, *, known: int | None = None, prefill: float = 2.0, hit: int = 0) -> str:
    known = requests if known is None else known
    lines = [
        "# TYPE vllm:request_success counter",
        *(
            f'vllm:request_success_total{{engine="{e}",finished_reason="{r}"}} {requests / 4}'
            for e in "01"
            for r in ("stop", "length")
        ),
        f'vllm:prefix_cache_queries_total{{engine="0"}} {requests * 1000}',
        f'vllm:prefix_cache_hits_total{{engine="0"}} {hit}',
        f'vllm:prompt_tokens_total{{engine="0"}} {requests * 1000}',
        f'vllm:generation_tokens_total{{engine="0"}} {requests * 50}',
        "# TYPE vllm:request_prefill_kv_computed_tokens histogram",
        f'vllm:request_prefill_kv_computed_tokens_bucket{{le="+Inf"}} {known}',
        f"vllm:request_prefill_kv_computed_tokens_sum {known * 700}",
        f"vllm:request_prefill_kv_computed_tokens_count {known}",
    ]
    for name in HISTOGRAMS:
        lines += [
            f"# TYPE vllm:{name} histogram",
            f'vllm:{name}_bucket{{le="1.0"}} 0',
            f'vllm:{name}_bucket{{le="4.0"}} {requests}',
            f'vllm:{name}_bucket{{le="+Inf"}} {requests}',
            f"vllm:{name}_sum {requests * prefill}",
            f"vllm:{name}_count {requests}",
        ]
    return "\n".join(lines) + "\n"


def watched(texts: list[str], *, seconds: float = 60.0) -> Window:
    step = seconds / (len(texts) - 1)
    found = window_figures(
        [Scrape(at_s=k * step, metrics=parse_metrics(text)) for k, text in enumerate(texts)]
    )
    assert found is not None
    return found


def test_counters_are_taken_as_differences() -> None:
    found = window_figures([llama(1000, 500, 10, 100, 5), llama(1300, 1400, 13, 160, 8)])

    assert found is not None
    assert (found.prompt_tokens, found.cached_tokens, found.generated_tokens) == (1200, 900, 60)
    stats = {stat.name: stat.mean for stat in found.stats}
    assert stats["reuse"] == pytest.approx(0.75)
    assert stats["prompt rate (computed)"] == pytest.approx(100.0)
    assert stats["generation rate, one stream"] == pytest.approx(20.0)


def test_a_counter_that_fell_is_a_restart_and_counts_on() -> None:
    scrapes = [llama(1000, 0, 10, 100, 5), Scrape(at_s=5.0, metrics=None), llama(50, 0, 1, 10, 1)]

    found = window_figures(scrapes)

    assert found is not None
    assert (found.restarts, found.down, found.prompt_tokens) == (1, 1, 50)
    assert any("restarts" in note for note in found.notes)


def test_another_start_time_is_a_restart_whatever_the_counters_say() -> None:
    born = "process_start_time_seconds {}\n"

    found = watched([born.format(s) + vllm(n) for s, n in ((5, 10), (5, 40), (90, 60))])

    assert (found.restarts, found.requests) == (1, 30 + 60)


def test_two_answers_are_needed() -> None:
    assert window_figures([llama(1, 1, 1, 1, 1), Scrape(at_s=1.0, metrics=None)]) is None


def test_a_build_that_does_not_count_cached_tokens_has_unknown_reuse() -> None:
    old = "llamacpp:prompt_tokens_total {}\nllamacpp:prompt_seconds_total 1\n"

    found = watched([old.format(1), old.format(5)])

    assert found.cached_tokens is None
    assert "reuse" not in {stat.name for stat in found.stats}


def test_requests_of_unknown_reuse_are_counted_apart() -> None:
    found = watched([vllm(0), vllm(100, known=90, hit=30_000)])

    assert (found.requests, found.unknown_reuse) == (100, 10)
    assert found.cached_tokens == 30_000


def test_percentiles_lie_within_their_bucket() -> None:
    found = watched([vllm(0), vllm(100)])

    prefill = next(stat for stat in found.stats if stat.name == "prefill")
    assert prefill.mean == pytest.approx(2.0)
    assert prefill.quantiles[0] == pytest.approx(2.5)
    assert prefill.count == 100


def test_above_the_last_bound_there_is_no_percentile() -> None:
    text = (
        "# TYPE vllm:x histogram\n"
        'vllm:x_bucket{le="1.0"} 1\nvllm:x_bucket{le="+Inf"} 10\nvllm:x_sum 90\nvllm:x_count 10\n'
        "vllm:num_requests_running 0\n"
    )
    histogram = parse_metrics(text).histograms["vllm:x"]

    assert quantile(histogram, 0.5) is None
    assert quantile(histogram, 0.05) == pytest.approx(0.5)


@pytest.mark.parametrize("text", ["", "<html>no</html>", "other_total 3\n", "a{b 3\n"])
def test_refuses_what_is_no_engine_of_ours(text: str) -> None:
    with pytest.raises(OutsideError):
        parse_metrics(text)


def test_a_comparison_gives_differences_with_intervals() -> None:
    grown = [0, 25, 50, 75, 100]
    before = watched([vllm(n, prefill=9.17) for n in grown])
    after = watched([vllm(n, prefill=7.31, hit=165 * n) for n in grown])

    rows = {row.name: row for row in compare_windows(before, after).rows}

    assert rows["prefill, mean"].change == pytest.approx(-0.2028, abs=1e-4)
    assert rows["prefill, mean"].proven
    assert rows["reuse"].after == pytest.approx(0.165)
    assert rows["requests"].before == 100


def test_refuses_loads_that_differ_by_more_than_a_fifth() -> None:
    before, after = (watched([vllm(0), vllm(n)]) for n in (100, 130))

    with pytest.raises(NotAsWanted, match="23%"):
        compare_windows(before, after)
    assert compare_windows(before, after, allow_unequal=True).load["requests"] > 0.2


def test_windows_of_other_lengths_are_compared_a_minute() -> None:
    before = watched([vllm(0), vllm(100)], seconds=60)
    after = watched([vllm(0), vllm(200)], seconds=120)

    assert max(compare_windows(before, after).load.values()) == pytest.approx(0.0)
