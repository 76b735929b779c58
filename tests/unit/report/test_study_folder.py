"""`fleet report` on the folder of a deployment's tune studies."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from fleet.errors import UserError
from fleet.report.write_report import write_report
from fleet.tune.run_study import Outcome, Trial
from fleet.tune.trial_log import TrialLog

if TYPE_CHECKING:
    from pathlib import Path

KEY = {"params": {"threads": [1, 2]}, "default": {"threads": 1}, "seed": 0}


def write_study(folder: Path, metric: str, *, age_s: float) -> None:
    """Write a study of three runs that is so old."""
    log = TrialLog(path=folder / f"{metric}.jsonl")
    log.begin(KEY, at="2026-01-01T00:00:00")
    for number, threads in enumerate((1, 1, 2), start=1):
        outcome = Outcome(value=100.0 * threads, seconds=1.0, figures={"pp": 5.0, "tg": 6.0})
        trial = Trial(
            number=number, cell=(threads - 1,), settings={"threads": threads}, purpose="explore",
            outcome=outcome,
        )  # fmt: skip
        log.add(trial, lane="local", at="2026-01-01T00:00:00")
    os.utime(log.path, (10**9 - age_s, 10**9 - age_s))


def test_the_newest_study_of_the_folder_gets_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "town"
    write_study(folder, "tg", age_s=10)
    write_study(folder, "pp", age_s=100)

    written = write_report(folder)

    assert written.html == folder / "report.html"
    assert "Tuning town for tg" in written.html.read_text()
    assert (folder / "report.csv").read_text().count("\n") == 4


def test_a_folder_of_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no results here"):
        write_report(tmp_path)
