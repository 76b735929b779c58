"""`tune NAME`: a study on the real server, and its end as a file that the next `up` uses."""

from __future__ import annotations

import math
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from fleet.compiler.compile_deployment import runtime_of
from fleet.deploy.prepare import prepare
from fleet.deploy.trial_on_host import bring_to_hosts, same_hosts, trial_on_host
from fleet.deploy.trial_server import trial_server
from fleet.effects.files import write_atomically
from fleet.effects.lock import held
from fleet.effects.machine import LOCAL
from fleet.effects.termination import term_interrupts
from fleet.errors import UserError
from fleet.tune.candidate_space import Ground, candidate_space
from fleet.tune.judgement import judgement_json
from fleet.tune.make_room import room_for_trials
from fleet.tune.measure_server import (
    DEFAULT_RUN_S,
    ServerMeasure,
    SharedYardstick,
    Yardstick,
    shown,
)
from fleet.tune.paired_ratio import robust_deviation, smallest_provable_gain
from fleet.tune.raw_screening import DEAR, Screening
from fleet.tune.raw_screening import METRICS as SCREENED
from fleet.tune.read_study import MARGIN, need_a_default, study_path
from fleet.tune.request_plan import RequestShape
from fleet.tune.roofline import at_roofline, roofline
from fleet.tune.run_study import Study
from fleet.tune.search import Search
from fleet.tune.settle_study import Settling
from fleet.tune.shared_study import Lane, SharedStudy
from fleet.tune.speculation_kinds import spelled_out
from fleet.tune.study_summary import (
    StudySummary,
    observed_noise,
    summarise_study,
)
from fleet.tune.trial_log import TrialLog
from fleet.tune.tuned_profile import Provenance, tuned_profile_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from fleet.deploy.bring_up import Progress
    from fleet.deploy.prepare import Prepared
    from fleet.deploy.rim import Rim
    from fleet.profiles.kinds import Deployment, WorkloadProfile
    from fleet.tune.candidate_space import CandidateSpace, Metric
    from fleet.tune.captured_requests import CapturedWorkload
    from fleet.tune.measure_server import Limit, StartTrial
    from fleet.tune.run_study import Trial
    from fleet.tune.search_space import Settings

DEFAULT_BUDGET_S = 600.0
PLAIN_HARM = 0.9  # of a guard in one run: not worth confirming
RUNS = 100  # that a budget should hold at least, where the requests can be so short
LEAST_RUN_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneOptions:
    """What the command line asks; seconds, and None for the default of each."""

    metric: Metric
    workload: WorkloadProfile | None = None
    captured: CapturedWorkload | None = None  # requests of a file in the workload's place
    budget_s: float | None = None
    trials: int | None = None
    lossy: bool = False
    trade_offs: bool = False  # keep a gain that harms a guard
    to: str | None = None
    fresh: bool = False
    seed: int = 0
    hosts: tuple[str, ...] = ()  # of the deployment's; all when empty
    elsewhere: Mapping[str, StartTrial] = field(default_factory=dict)  # hosts besides this one
    here: bool = True  # whether this machine measures too
    limits: tuple[Limit, ...] = ()
    patience_s: float = 60.0  # for the first load and the first run
    dear_load: float = DEAR  # runs that a load must take for llama-bench to look first
    confirm: Callable[[str], bool] = lambda _: False  # asked before a serving server is stopped
    say: Callable[[str], None] = lambda _: None  # what should stay on the screen


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

    A server that serves is left alone where a second copy fits beside it, else it is stopped
    and started again: each candidate runs on a server and port of its own. `text` is what
    prompts are cut from. Raises `UserError`, `OutsideError` when not even the deployment as
    it is can be measured.
    """
    began_s = rim.clock.monotonic()
    deployment = replace(deployment, workload=options.workload or deployment.workload)
    if deployment.hosts:
        deployment, options = _on_hosts(deployment, options, rim, progress)
    runtime = runtime_of(deployment)
    prepared = prepare(deployment, runtime=runtime, rim=rim, progress=progress, use_tuned=False)
    candidates = candidate_space(options.metric, _ground(prepared, options))
    log = TrialLog(path=study_path(rim, deployment.name, options.metric))
    with (
        term_interrupts(),
        _each_held(rim, options),
        room_for_trials(prepared, rim=rim, confirm=options.confirm, progress=progress),
    ):
        opened = _open(log, candidates, _key(prepared, options, candidates), options, rim)
        roof = roofline(prepared) if options.metric == "tg" else None
        if roof is not None:
            options.say(f"memory bandwidth allows about {roof:.1f} tok/s without speculation")
        opened = replace(opened, began_s=began_s, roof=roof)
        summary = _measured(opened, prepared, log, options, text, rim=rim, progress=progress)
        path = _write(summary, prepared, options, rim) if summary.verdict.accepted else None
        judged = judgement_json(summary.verdict, summary.trade_offs, candidates.space)
        log.end({**summary.as_json(profile=path), "judged": judged}, at=rim.clock.now().isoformat())
    return Tuned(
        summary=summary, profile=path, resumed=opened.resumed, left_out=candidates.left_out
    )


def _on_hosts(
    deployment: Deployment, options: TuneOptions, rim: Rim, progress: Progress
) -> tuple[Deployment, TuneOptions]:
    """Return the deployment on those of its hosts that are alike, each of which measures.

    They have the model and the image then.
    """
    if deployment.topology not in {"single", "replicas"}:
        message = "a model over several hosts is not tuned, only one host with a copy each"
        raise UserError(message, where=deployment.name)
    known = [host.name for host in deployment.hosts]
    for name in options.hosts:
        if name not in known:
            raise UserError(f"no host `{name}`", where="--hosts", fix=f"of {', '.join(known)}")
    asked = tuple(h for h in deployment.hosts if h.name in (options.hosts or known))
    hosts, left = same_hosts(replace(deployment, hosts=asked), rim)
    for name, why in left.items():
        options.say(f"{name} is left out: {why}")
    starts: dict[str, StartTrial] = {h.name: partial(trial_on_host, h.name) for h in hosts}
    plain = replace(deployment, hosts=hosts, tuned_candidates=())
    bring_to_hosts(plain, rim=rim, progress=progress)
    return plain, replace(options, elsewhere=starts, here=False)


@contextmanager
def _each_held(rim: Rim, options: TuneOptions) -> Iterator[None]:
    """Hold every host that measures: two studies on one machine would disturb each other."""
    hosts = [*([LOCAL] if options.here else []), *options.elsewhere]
    with ExitStack() as stack:
        for host in sorted(hosts):
            stack.enter_context(held(rim.folders.state / "tune" / f"on-{host}.lock"))
        yield


def _measured(
    opened: _Opened,
    prepared: Prepared,
    log: TrialLog,
    options: TuneOptions,
    text: str,
    *,
    rim: Rim,
    progress: Progress,
) -> StudySummary:
    """Run the study with a server on each host, all measured with one yardstick."""
    starts = {LOCAL: trial_server, **options.elsewhere} if options.here else options.elsewhere
    sticks = SharedYardstick(
        found=opened.yardstick, on_found=lambda found: log.measure_with(asdict(found))
    )
    with ExitStack() as stack:
        measures = {
            host: stack.enter_context(
                ServerMeasure(
                    deployment=prepared.deployment, metric=options.metric, rim=rim, text=text,
                    context=_context(prepared), captured=options.captured, sticks=sticks,
                    run_s=_run_s(options), at_depth=options.workload is not None, start=start,
                    budget_s=_budget_s(options) or 0.0, until_s=opened.until_s,
                    limits=options.limits, patience_s=options.patience_s,
                )
            )
            for host, start in starts.items()
        }  # fmt: skip
        lanes = [Lane(name=host, measure=measure) for host, measure in measures.items()]
        # llama-bench can stand for rates alone, and runs where the trials do
        looks = options.metric in SCREENED and options.captured is None and options.here
        look = Screening(
            study=opened.study, metric=options.metric, launch=prepared.launches[0],
            build=prepared.build.name, seed=options.seed, log=log,
            measure=next(iter(measures.values())), commands=rim.commands, clock=rim.clock,
            say=options.say, dear=options.dear_load,
            done=not (looks and prepared.runtime == "podman"),
        )  # fmt: skip
        return _run(opened, lanes, log, options, rim=rim, progress=progress, look=look)


def _run(
    opened: _Opened,
    lanes: Sequence[Lane],
    log: TrialLog,
    options: TuneOptions,
    *,
    rim: Rim,
    progress: Progress,
    look: Callable[[], None],
) -> StudySummary:
    """Run until a gain is proven that harms nothing, or nothing is left to run."""
    study = opened.study
    settling = Settling(study=study, keep_trade_offs=options.trade_offs)

    def judge(trial: Trial) -> None:
        _judge(trial, opened, options)

    def tell(trial: Trial) -> None:
        progress(_told(trial, study, options.metric))
        if trial.number == study.search.defaults and len(study.search.model):
            options.say(_provable(study))

    shared = SharedStudy(
        study=study, log=log, clock=rim.clock, judge=judge, settle=settling.goes_on, tell=tell,
        look=look,
        say=options.say, until_s=opened.until_s,
        default_first=bool(options.limits), taken=opened.resumed_from, began_s=opened.began_s,
    )  # fmt: skip
    for trial in study.trials:
        judge(trial)
    shared.run(lanes)
    need_a_default(study)
    return summarise_study(
        study, metric=options.metric, trade_offs=tuple(settling.trade_offs),
        verdict=settling.verdict(),
    )  # fmt: skip


def _judge(trial: Trial, opened: _Opened, options: TuneOptions) -> None:
    """Tell the search what the value alone does not show."""
    study = opened.study
    if opened.roof is not None and at_roofline(study, opened.roof):
        study.search.at_roofline = True
    if not options.trade_offs and _plainly_harmful(trial, study.trials):
        study.search.bar(trial.cell)


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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Opened:
    """The study to go on with; `resumed_from` counts the log's runs, `resumed` those used."""

    study: Study
    resumed: int = 0
    resumed_from: int = 0
    yardstick: Yardstick | None = None
    until_s: float | None = None  # on the clock
    began_s: float = 0.0
    roof: float | None = None  # tokens a second


def _open(
    log: TrialLog,
    candidates: CandidateSpace,
    key: Mapping[str, Any],
    options: TuneOptions,
    rim: Rim,
) -> _Opened:
    """Return the study to go on with: the newest of the log if it is this one and not ended."""
    budget = _budget_s(options)
    search = Search(candidates.space, seed=options.seed, margin=MARGIN, defaults=2)
    study = Study(search=search, budget_s=budget, most_trials=options.trials)
    newest = None if options.fresh else log.newest()
    resumed, count, yardstick, looked_s = 0, 0, None, 0.0
    if newest is not None and newest.key == key and newest.end is None:
        looked_s = newest.screening_s
        for hint in newest.hints:
            search.hint(*hint)
        resumed, count = study.replay(newest.trials), len(newest.trials)
        yardstick = _yardstick(newest.yardstick)
    else:
        log.begin(key, at=rim.clock.now().isoformat())
    until = None
    if budget is not None:
        until = rim.clock.monotonic() + max(budget - study.spent_s - looked_s, 0.0)
    return _Opened(
        study=study, resumed=resumed, resumed_from=count, yardstick=yardstick, until_s=until
    )


def _yardstick(raw: Mapping[str, Any] | None) -> Yardstick | None:
    if raw is None:
        return None
    return Yardstick(**{**raw, "shape": RequestShape(**raw["shape"])})


def _budget_s(options: TuneOptions) -> float | None:
    if options.budget_s is None and options.trials is None:
        return DEFAULT_BUDGET_S
    return options.budget_s


def _run_s(options: TuneOptions) -> float:
    """Return how long a run should take, so that the budget holds enough of them."""
    budget = _budget_s(options)
    return DEFAULT_RUN_S if budget is None else min(DEFAULT_RUN_S, max(budget / RUNS, LEAST_RUN_S))


def _key(prepared: Prepared, options: TuneOptions, candidates: CandidateSpace) -> dict[str, Any]:
    """Return what a study depends on: runs under another key are not comparable."""
    space = candidates.space
    workload = prepared.deployment.workload
    return {
        "deployment": prepared.deployment.name,
        "metric": options.metric,
        "workload": options.captured.name if options.captured else workload and workload.name,
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


def _context(prepared: Prepared) -> int:
    context = dict(prepared.launches[0].settings).get("ctx_size")
    return context if isinstance(context, int) and context > 0 else 4096


def _told(trial: Trial, study: Study, metric: Metric) -> str:
    outcome = trial.outcome
    unit = "ms" if metric in {"ttft", "e2e"} else "tok/s"
    found = f"failed, {outcome.failed}"
    if outcome.value is not None:
        found = f"{shown(metric, outcome.value):.1f} {unit}"
    changed = _changed(study, trial.settings) or "as it is"
    best = study.search.best_so_far()
    left = [] if study.counts_runs else [f"{max(study.left_s, 0):.0f} s"]
    if study.most_trials is not None:
        count = max(study.most_trials - trial.number, 0)
        left.append(f"{count} trial{'s' * (count != 1)}")
    gain = f", best so far {best:+.1%}" if best else ""
    rest = " and ".join(left)
    return f"trial {trial.number} ({trial.purpose}): {changed}: {found}{gain}, {rest} left"


def _provable(study: Study) -> str:
    """Say what can be proven here, from the noise of the first runs."""
    noise = observed_noise(study)
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
    write_atomically(
        path, tuned_profile_yaml(provenance, spelled_out(summary.changed), summary.measured)
    )
    return str(path)
