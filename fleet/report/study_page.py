"""The page of a tune study: what was tried, what won, what was rejected and why."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleet.report.page import Bullets, Page, Section, Table, Text
from fleet.report.plots import points
from fleet.report.words import number, percent
from fleet.tune.measure_server import shown
from fleet.tune.pareto_front import pareto_front
from fleet.tune.raw_screening import hinted
from fleet.tune.speculation_by_length import speculation_by_length

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.report.page import Block, Figure
    from fleet.tune.run_study import Trial
    from fleet.tune.study_summary import StudySummary

_UNITS = {"ttft": "ms", "e2e": "ms"}
_METHOD = (
    "Default and candidates take turns, so that a drift of the machine hits both.",
    "The winner is measured anew against the default, and only these fresh pairs decide.",
    "A gain below the provable gain is called none, whatever the single runs say.",
    "A proven gain that harms another figure is shown as a trade-off and not kept.",
)


def study_page(summary: StudySummary, *, name: str) -> Page:
    """Return the page of the study of the deployment `name`."""
    unit = _UNITS.get(summary.metric, "tok/s")
    low, high = summary.interval
    if summary.changed:
        lead = (
            f"{', '.join(f'{k} = {v}' for k, v in summary.changed.items())} brings "
            f"{percent(summary.verdict.gain, 1)} in {summary.metric} "
            f"(95% interval {percent(low - 1, 1)} to {percent(high - 1, 1)})."
        )
    else:
        least = percent(summary.provable_gain, 1)
        lead = f"No provable gain: the defaults stay (least provable gain here {least})."
    return Page(
        title=f"Tuning {name} for {summary.metric}",
        lead=lead,
        facts=(
            ("Trials", str(len(summary.trials))),
            ("Spent", f"{summary.spent_s / 60:.1f} min"),
            ("Stopped by", summary.stopped),
            ("Noise of one run", percent(summary.noise, 2)),
            ("Default", f"{number(summary.default_score, 2)} {unit}"),
            ("Best", f"{number(summary.best_score, 2)} {unit}"),
        ),
        sections=(
            Section(title="Result", blocks=(_settings(summary),)),
            Section(title="Trials", blocks=(*_drawings(summary, unit), _trials(summary, unit))),
            Section(
                title="What each setting brings", blocks=(_effects(summary), *_asides(summary))
            ),
            Section(title="Rejected, and why", blocks=_rejected(summary)),
            Section(title="Method and caveats", blocks=(Bullets(items=_METHOD),)),
        ),
    )


def study_rows(summary: StudySummary) -> list[dict[str, object]]:
    """Return the trials as rows of `report.csv`."""
    return [
        {
            "trial": trial.number,
            "purpose": trial.purpose,
            "score": _score(summary, trial),
            "seconds": trial.outcome.seconds,
            "failed": trial.outcome.failed or "",
            **{str(key): value for key, value in trial.settings.items()},
        }
        for trial in summary.trials
    ]


def _score(summary: StudySummary, trial: Trial) -> float | None:
    value = trial.outcome.value
    return shown(summary.metric, value) if value else None


def _changes(summary: StudySummary, settings: Mapping[str, object]) -> str:
    changed = (f"{k} = {v}" for k, v in settings.items() if v != summary.default.get(k))
    return ", ".join(changed) or "the default"


def _settings(summary: StudySummary) -> Table:
    rows = tuple(
        (name, str(value), str(summary.best.get(name))) for name, value in summary.default.items()
    )
    return Table(
        caption="Settings that were searched; marked ones change",
        columns=("setting", "default", "best"),
        rows=rows,
        marked=frozenset((k, 2) for k, row in enumerate(rows) if row[1] != row[2]),
    )


def _drawings(summary: StudySummary, unit: str) -> list[Figure]:
    scored = [(t, score) for t in summary.trials if (score := _score(summary, t)) is not None]
    if not scored:
        return []
    groups: dict[str, list[tuple[float, float]]] = {}
    for trial, score in scored:
        groups.setdefault(str(trial.purpose), []).append((float(trial.number), score))
    made = [
        points(
            "trials", groups, x="trial", y=unit,
            caption="The score of each trial, by what it was for.",
        )
    ]  # fmt: skip
    both = [
        (float(t.outcome.figures["pp"]), float(t.outcome.figures["tg"]))
        for t, _ in scored
        if {"pp", "tg"} <= t.outcome.figures.keys()
    ]
    if both:
        made.append(
            points(
                "pareto", {"trials": both, "front": pareto_front(both)}, x="prompt, tok/s",
                y="generation, tok/s", joined=("front",),
                caption="Prompt and generation rate of each trial; the front is unbeaten in both.",
            )
        )  # fmt: skip
    return made


def _trials(summary: StudySummary, unit: str) -> Table:
    return Table(
        caption="Every run, in order",
        columns=("trial", "for", "changed", f"score, {unit}>", "seconds>", "failed"),
        rows=tuple(
            (
                str(trial.number), str(trial.purpose), _changes(summary, trial.settings),
                number(_score(summary, trial), 2), number(trial.outcome.seconds, 1),
                trial.outcome.failed or "",
            )
            for trial in summary.trials
        ),
    )  # fmt: skip


def _effects(summary: StudySummary) -> Block:
    if not summary.effects:
        return Text(text="No single change was measured.")
    return Table(
        caption="One value changed from the default, with the 95% interval of its effect",
        columns=("setting", "value", "effect>", "low>", "high>"),
        rows=tuple(
            (
                effect.name, str(effect.value), percent(math.exp(effect.ratio.log_ratio) - 1, 1),
                *(percent(bound - 1, 1) for bound in effect.ratio.interval),
            )
            for effect in summary.effects
        ),
    )  # fmt: skip


def _asides(summary: StudySummary) -> list[Block]:
    by_length = speculation_by_length(summary.trials, default=summary.default, best=summary.best)
    said = filter(None, (hinted(summary.hints), by_length))
    return [Text(text=f"{each[0].upper()}{each[1:]}.") for each in said]


def _rejected(summary: StudySummary) -> tuple[Block, ...]:
    failed: dict[str, str] = {}
    for trial in summary.trials:
        if trial.outcome.failed:
            failed.setdefault(_changes(summary, trial.settings), trial.outcome.failed)
    harms = tuple(
        f"{_changes(summary, each.settings)}: gains {percent(each.gain, 1)}, "
        f"but {each.guard} becomes {percent(math.exp(each.ratio.log_ratio) - 1, 1)}"
        for each in summary.trade_offs
    )
    items = (*(f"{what}: {why}" for what, why in failed.items()), *harms)
    return (Bullets(items=items or ("nothing was",)),)
