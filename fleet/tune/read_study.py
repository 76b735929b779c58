"""A study as its log tells it, without running anything."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleet.errors import OutsideError, UserError
from fleet.tune.judgement import judgement_of
from fleet.tune.run_study import Study
from fleet.tune.search import Search
from fleet.tune.search_space import make_space
from fleet.tune.study_summary import StudySummary, summarise_study
from fleet.tune.trial_log import TrialLog

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.deploy.rim import Rim
    from fleet.tune.candidate_space import Metric

MARGIN = math.log(1.01)  # a gain below 1% is not worth another profile


def study_path(rim: Rim, name: str, metric: str) -> Path:
    """Return where the trials of `name` for `metric` are written."""
    return rim.folders.state / "tune" / name / f"{metric}.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadStudy:
    """A study as its log tells it, and the profile it wrote."""

    summary: StudySummary
    profile: str | None


def read_study(rim: Rim, name: str, metric: Metric) -> ReadStudy:
    """Return the newest study of `name` for `metric` as its log tells it. Raises `UserError`."""
    return read_study_log(study_path(rim, name, metric), name, metric)


def read_study_log(path: Path, name: str, metric: Metric) -> ReadStudy:
    """Return the newest study of the log at `path`, as `read_study` does."""
    logged = TrialLog(path=path).newest()
    if logged is None or not logged.trials:
        fix = f"`fleet tune {name} --metric {metric}` makes one"
        raise UserError(f"no study of `{name}` for `{metric}`", where=str(path), fix=fix)
    params = logged.key["params"]
    space = make_space(params, logged.key["default"], dear=[*params])
    study = Study(search=Search(space, seed=logged.key["seed"], margin=MARGIN, defaults=2))
    study.replay(logged.trials)
    need_a_default(study)
    end = logged.end or {}
    judged = judgement_of(end.get("judged"), space)
    summary = summarise_study(
        study, metric=metric, trade_offs=judged.trade_offs if judged else (),
        verdict=judged.verdict if judged else None, stopped=end.get("stopped", "not ended"),
    )  # fmt: skip
    return ReadStudy(summary=replace(summary, hints=logged.hints), profile=end.get("profile"))


def need_a_default(study: Study) -> None:
    """Raise `OutsideError` when no run of the default came to a value."""
    if len(study.search.model) == 0:
        cause = study.trials[-1].outcome.failed
        message = f"the deployment as it is cannot be measured: {cause}"
        raise OutsideError(message, fix="`fleet up` shows whether it starts")
