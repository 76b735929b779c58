"""`tune NAME`: a study on the real server, and its end as a file that the next `up` uses."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from fleet.compiler.compile_deployment import runtime_of
from fleet.deploy.prepare import prepare
from fleet.effects.files import write_atomically
from fleet.effects.lock import held
from fleet.errors import OutsideError, UserError
from fleet.tune.candidate_space import Ground, candidate_space
from fleet.tune.measure_server import ServerMeasure, shown
from fleet.tune.paired_ratio import lower, robust_deviation, smallest_provable_gain
from fleet.tune.run_study import Study, run_study
from fleet.tune.search import Search
from fleet.tune.search_space import make_space
from fleet.tune.study_summary import StudySummary, TradeOff, guard_ratio, summarise_study
from fleet.tune.trial_log import TrialLog
from fleet.tune.tuned_profile import Provenance, tuned_profile_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.deploy.bring_up import Progress
    from fleet.deploy.prepare import Prepared
    from fleet.deploy.rim import Rim
    from fleet.profiles.kinds import Deployment, WorkloadProfile
    from fleet.tune.candidate_space import CandidateSpace, Metric
    from fleet.tune.run_study import Measure, Trial
    from fleet.tune.search_space import Cell, Settings

DEFAULT_BUDGET_S = 600.0
MARGIN = math.log(1.01)  # a gain below 1% is not worth another profile
HARM = 0.98  # of a guard over the confirming pairs
PLAIN_HARM = 0.9  # of a guard in one run: not worth confirming
AT_ROOFLINE = 0.93


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneOptions:
    """What the command line asks; seconds, and None for the default of each."""

    metric: Metric
    workload: WorkloadProfile | None = None
    budget_s: float | None = None
    trials: int | None = None
    lossy: bool = False
    trade_offs: bool = False  # keep a gain that harms a guard
    to: str | None = None
    fresh: bool = False
    seed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuned:
    """The result of a study of a deployment."""

    summary: StudySummary
    profile: str | None
    resumed: int
    left_out: tuple[str, ...]


def tune_deployment(
    deployment: Deployment,
    *,
    options: TuneOptions,
    rim: Rim,
    text: str,
    progress: Progress,
) -> Tuned:
    """Search the best settings of `deployment` and write them down when they are proven.

    A server that serves is left alone: each candidate runs on a server and port of its own.
    `text` is what prompts are cut from. Raises `UserError`, `OutsideError` when not even the
    deployment as it is can be measured.
    """
    deployment = replace(deployment, workload=options.workload or deployment.workload)
    runtime = runtime_of(deployment)
    prepared = prepare(deployment, runtime=runtime, rim=rim, progress=progress, use_tuned=False)
    ground = _ground(prepared, options)
    candidates = candidate_space(options.metric, ground)
    with held(study_path(rim, deployment.name, options.metric).with_suffix(".lock")):
        log = TrialLog(path=study_path(rim, deployment.name, options.metric))
        study, resumed = _open(log, candidates, _key(prepared, options, candidates), options, rim)
        measure = ServerMeasure(
            deployment=prepared.deployment, metric=options.metric, rim=rim, text=text,
            tell=lambda _: None, context=_context(ground),
        )  # fmt: skip
        with measure:
            summary = _run(study, measure, log, options, rim=rim, progress=progress)
        path = _write(summary, prepared, options, rim) if summary.verdict.accepted else None
        log.end(summary.as_json(profile=path), at=rim.clock.now().isoformat())
    return Tuned(summary=summary, profile=path, resumed=resumed, left_out=candidates.left_out)


def study_path(rim: Rim, name: str, metric: str) -> Path:
    """Return where the trials of `name` for `metric` are written."""
    return rim.folders.state / "tune" / name / f"{metric}.jsonl"


def read_study(rim: Rim, name: str, metric: Metric) -> StudySummary:
    """Return the newest study of `name` for `metric` as its log tells it. Raises `UserError`."""
    path = study_path(rim, name, metric)
    logged = TrialLog(path=path).newest()
    if logged is None or not logged.trials:
        fix = f"`fleet tune {name} --metric {metric}` makes one"
        raise UserError(f"no study of `{name}` for `{metric}`", where=str(path), fix=fix)
    params = logged.key["params"]
    space = make_space(params, logged.key["default"], dear=[*params])
    study = Study(search=Search(space, seed=logged.key["seed"], margin=MARGIN, defaults=2))
    study.replay(logged.trials)
    _need_a_default(study)
    return summarise_study(study, metric=metric)


def _run(
    study: Study,
    measure: Measure,
    log: TrialLog,
    options: TuneOptions,
    *,
    rim: Rim,
    progress: Progress,
) -> StudySummary:
    """Run until a gain is proven that harms nothing, or nothing is left to run."""
    trade_offs: list[TradeOff] = []
    search = study.search

    def on_trial(trial: Trial) -> None:
        log.add(trial, at=rim.clock.now().isoformat())
        if not options.trade_offs and _plainly_harmful(trial, study.trials):
            study.search.bar(trial.cell)
        progress(_told(trial, study, options.metric))
        if trial.number == search.defaults and trial.outcome.value is not None:
            progress(_provable(study))

    while True:
        before = len(study.trials)
        run_study(study, measure, on_trial=on_trial)
        _need_a_default(study)
        verdict = search.verdict()
        harm = _harm(study, verdict.cell) if verdict.accepted else None
        if harm is None:
            break
        stuck = len(study.trials) == before
        undecided = not stuck and harm.ratio.log_ratio + harm.ratio.deviation > math.log(HARM)
        if undecided and study.room() is not None and search.confirm_again(verdict.cell):
            continue
        trade_offs.append(replace(harm, gain=verdict.gain))
        if options.trade_offs:
            break
        search.bar(verdict.cell)
    return summarise_study(study, metric=options.metric, trade_offs=tuple(trade_offs))


def _harm(study: Study, cell: Cell) -> TradeOff | None:
    """Return the guard that `cell` harms by the confirming pairs, None when it harms none."""
    for name in study.trials[0].outcome.guards:
        ratio, provable = guard_ratio(study, cell, name)
        if ratio is None:
            continue
        if ratio.log_ratio < math.log(HARM) or lower(ratio) < -math.log1p(provable):
            return TradeOff(
                settings=study.search.space.settings(cell), guard=name, ratio=ratio,
                provable=provable, gain=0.0,
            )  # fmt: skip
    return None


def _plainly_harmful(trial: Trial, trials: list[Trial]) -> bool:
    for name, value in trial.outcome.guards.items():
        usual = [
            each.outcome.guards[name]
            for each in trials
            if each.purpose == "default" and name in each.outcome.guards
        ]
        if not usual or trial.purpose == "default":
            continue
        spread = robust_deviation([math.log(one) for one in usual])
        if value < median(usual) * min(PLAIN_HARM, math.exp(-4 * spread)):
            return True
    return False


def _open(
    log: TrialLog,
    candidates: CandidateSpace,
    key: Mapping[str, Any],
    options: TuneOptions,
    rim: Rim,
) -> tuple[Study, int]:
    """Return the study to go on with: the newest of the log if it is this one and not ended."""
    budget = options.budget_s
    if budget is None and options.trials is None:
        budget = DEFAULT_BUDGET_S
    search = Search(candidates.space, seed=options.seed, margin=MARGIN, defaults=2)
    study = Study(search=search, budget_s=budget, most_trials=options.trials)
    newest = None if options.fresh else log.newest()
    if newest is not None and newest.key == key and newest.end is None:
        return study, study.replay(newest.trials)
    log.begin(key, at=rim.clock.now().isoformat())
    return study, 0


def _key(prepared: Prepared, options: TuneOptions, candidates: CandidateSpace) -> dict[str, Any]:
    """Return what a study depends on: runs under another key are not comparable."""
    space = candidates.space
    workload = prepared.deployment.workload
    return {
        "deployment": prepared.deployment.name,
        "metric": options.metric,
        "workload": workload.name if workload else None,
        "fingerprint": prepared.host.fingerprint,
        "build": prepared.build.name,
        "model_digest": prepared.model.digest if prepared.model else "",
        "launch": prepared.launches[0].digest,
        "seed": options.seed,
        "params": {param.name: list(param.values) for param in space.params},
        "default": space.settings(space.default),
        "left_out": list(candidates.left_out),
    }


def _ground(prepared: Prepared, options: TuneOptions) -> Ground:
    deployment = prepared.deployment
    if deployment.engine.engine == "vllm":
        raise UserError("vLLM is not tuned, only llama.cpp and its kin", where=deployment.name)
    from_command_line = {
        name for name, value in deployment.settings.items() if value.layer == "--set"
    }
    return Ground(
        launch=prepared.launches[0],
        host=prepared.host,
        build=prepared.build,
        model=prepared.model.facts if prepared.model else None,
        workload=deployment.workload,
        pinned=deployment.pinned | from_command_line,
        lossy=options.lossy,
    )


def _context(ground: Ground) -> int:
    context = ground.now("ctx_size")
    return context if isinstance(context, int) and context > 0 else 4096


def _need_a_default(study: Study) -> None:
    if len(study.search.model) == 0:
        cause = study.trials[-1].outcome.failed
        message = f"the deployment as it is cannot be measured: {cause}"
        raise OutsideError(message, fix="`fleet up` shows whether it starts")


def _told(trial: Trial, study: Study, metric: Metric) -> str:
    outcome = trial.outcome
    unit = "ms" if metric in {"ttft", "e2e"} else "tok/s"
    found = f"failed, {outcome.failed}"
    if outcome.value is not None:
        found = f"{shown(metric, outcome.value):.1f} {unit}"
    changed = _changed(study, trial.settings) or "as it is"
    best = study.search.best_so_far()
    time = f"{max(study.left_s, 0):.0f} s left"
    if study.most_trials is not None:
        time = f"{study.most_trials - trial.number} trials left"
    gain = f", best so far {best:+.1%}" if best else ""
    return f"trial {trial.number} ({trial.purpose}): {changed}: {found}{gain}, {time}"


def _provable(study: Study) -> str:
    """Say what can be proven here, from the noise of the first runs."""
    noise = study.search.model.noise
    few, many = (smallest_provable_gain(noise, pairs) for pairs in (2, 8))
    return (
        f"noise from run to run {noise:.1%}: two pairs can prove gains above {few:.1%}, "
        f"eight above {many:.1%}"
    )


def _changed(study: Study, settings: Settings) -> str:
    default = study.search.space.settings(study.search.space.default)
    return ", ".join(
        f"{name}={value}" for name, value in settings.items() if value != default[name]
    )


def _write(summary: StudySummary, prepared: Prepared, options: TuneOptions, rim: Rim) -> str:
    name = prepared.deployment.name
    provenance = Provenance(
        deployment=name,
        metric=options.metric,
        fingerprint=prepared.host.fingerprint,
        build=prepared.build.name,
        model_digest=prepared.model.digest if prepared.model else "",
        date=rim.clock.now().isoformat(timespec="seconds"),
    )
    folder = rim.folders.config / "profiles" / "tuned"
    path = Path(options.to) if options.to else folder / f"{name}-{options.metric}.yaml"
    write_atomically(path, tuned_profile_yaml(provenance, summary.changed, summary.measured))
    return str(path)
