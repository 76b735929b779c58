from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from faulty_server import Behaviour, served

from fleet.bench.results_folder import ResultsFolder
from fleet.bench.watch_metrics import read_window, watch_window
from fleet.effects.http import Http
from fleet.errors import OutsideError, UserError

if TYPE_CHECKING:
    from fleet.bench.window_figures import Window


class FastClock:
    """Waits in no time; the time of day is always the same."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def text(new: int, made: int) -> str:
    return (
        f"llamacpp:prompt_tokens_total {new}\nllamacpp:prompt_tokens_cached_total {new}\n"
        f"llamacpp:prompt_seconds_total {new / 100}\nllamacpp:tokens_predicted_total {made}\n"
        f"llamacpp:tokens_predicted_seconds_total {made / 10}\n"
    )


def watch(
    path: Path, metrics: list[str], window_s: float = 60.0, born: tuple[int, ...] = ()
) -> Window:
    with served(Behaviour(metrics=metrics, born=list(born))) as url:
        return watch_window(
            url, headers={}, window_s=window_s, folder=ResultsFolder(path=path), http=Http(),
            clock=FastClock(), tell=print,
        )  # fmt: skip


def test_a_restart_in_the_middle_is_counted_and_down_times_are_waited_out(tmp_path: Path) -> None:
    found = watch(tmp_path, [text(50, 1), text(100, 10), text(300, 30), "", "", text(40, 4)])

    assert found.restarts == 1
    assert found.down == 2
    assert found.prompt_tokens == 2 * (200 + 40)
    assert found.generated_tokens == 20 + 4
    assert read_window(ResultsFolder(path=tmp_path)) == found


def test_a_restart_whose_counters_overtake_within_one_look_is_seen(tmp_path: Path) -> None:
    scrapes = [text(100, 10), text(100, 10), text(150, 15), text(400, 40)]

    found = watch(tmp_path, scrapes, born=(7_000_000, 7_000_000, 7_000_000, 99_000_000))

    assert found.restarts == 1
    assert found.generated_tokens == 5 + 40
    assert not any("no start time" in note for note in found.notes)


def test_says_when_a_restart_could_pass_unseen(tmp_path: Path) -> None:
    found = watch(tmp_path, [text(100, 10), text(150, 15), text(400, 40)])

    assert found.restarts == 0
    assert any("no start time" in note for note in found.notes)


def test_says_at_once_that_nothing_answers(tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match="does not answer"):
        watch(tmp_path, [""])
    assert not (tmp_path / "run.json").exists()


def test_a_window_cannot_be_gone_on_with(tmp_path: Path) -> None:
    watch(tmp_path, [text(1, 1)])

    with pytest.raises(UserError, match="gone on with"):
        watch(tmp_path, [text(1, 1)])


def test_refuses_a_server_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(OutsideError):
        watch(tmp_path, ["up 1\n"])
