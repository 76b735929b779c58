"""`fleet tune`: search for the best settings, on a deployment or on any program."""

from __future__ import annotations

import importlib
import json
import math
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.ask import confirmed
from fleet.cli.default_command import DefaultCommand
from fleet.cli.durations import parse_seconds
from fleet.cli.load import load_deployment, load_library
from fleet.cli.options import Json, Name, Profiles, Sets, Yes
from fleet.cli.output import console, note, print_json, print_table
from fleet.cli.progress_line import progress_line
from fleet.deploy.rim import Rim
from fleet.diagnose.prompts.requests import parse_requests
from fleet.effects.files import read_text
from fleet.effects.power import PowerMeter
from fleet.effects.spoken_process import spoken_process
from fleet.errors import UserError
from fleet.profiles.kinds import ConversationProfile, WorkloadProfile
from fleet.tune.candidate_space import METRICS, Metric
from fleet.tune.captured_requests import CapturedWorkload
from fleet.tune.measure_external import parse_command, tune_external
from fleet.tune.measure_server import shown
from fleet.tune.pareto_front import pareto_front
from fleet.tune.power_limit import PowerLimit
from fleet.tune.quality_limit import QualityLimit
from fleet.tune.raw_screening import hinted
from fleet.tune.read_study import read_study
from fleet.tune.recheck import recheck
from fleet.tune.search_space import parse_space
from fleet.tune.speculation_by_length import speculation_by_length
from fleet.tune.speculation_kinds import spelled_out
from fleet.tune.tune_deployment import TuneOptions, tune_deployment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.profiles.kinds import Deployment
    from fleet.tune.measure_server import Limit
    from fleet.tune.run_study import Trial
    from fleet.tune.search_space import Settings
    from fleet.tune.study_summary import StudySummary, TradeOff
from fleet.tune.tune_deployment import Tuned

_MORE = ("quality", "accepted", "watts")  # figures of a trial that are shown where there are any
_PAGES = ("fleet.report.study_page", "fleet.report.write_report")
app = typer.Typer(cls=DefaultCommand, help="Measure and keep the best settings")


@app.callback()
def tune() -> None:
    """Search the best settings of a deployment, or of anything that can be measured."""


@app.command("default")
def deployment(
    name: Name,
    metric: Annotated[str, typer.Option(help=", ".join(METRICS))] = "tg",
    workload: Annotated[
        str | None, typer.Option(help="A workload profile, or a file of captured requests")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Time to spend: 90s, 30m, 2h")] = None,
    trials: Annotated[int | None, typer.Option(min=3, help="Runs to spend instead")] = None,
    lossy: Annotated[bool, typer.Option(help="Also what changes answers: KV types")] = False,
    trade_offs: Annotated[bool, typer.Option(help="Keep a gain that harms another")] = False,
    to: Annotated[str | None, typer.Option(metavar="FILE", help="Write the profile there")] = None,
    fresh: Annotated[bool, typer.Option(help="Begin anew instead of going on")] = False,
    recheck_it: Annotated[
        bool, typer.Option("--recheck", help="Only measure the tuned profile again")
    ] = False,
    hosts: Annotated[
        str | None, typer.Option(metavar="A,B", help="Hosts that share the study")
    ] = None,
    min_quality: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="With --lossy: least exp(-KL) of next tokens, as 0.99"),
    ] = None,
    max_power: Annotated[
        float | None, typer.Option(min=1, help="Most watts that a run may draw")
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    yes: Yes = False,
    sets: Sets = None,
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """Search what makes NAME fastest; what is proven becomes a tuned profile for `up`."""
    if recheck_it:
        plain = load_deployment(name, profiles=profiles or (), sets=sets or ())
        shape = _workload(workload, profiles or ()) or plain.workload
        _recheck(replace(plain, workload=shape), metric, _captured(workload), as_json)
        return
    options = TuneOptions(
        metric=_metric(metric),
        workload=_workload(workload, profiles or ()),
        captured=_captured(workload),
        budget_s=parse_seconds(budget, where="--budget") if budget else None,
        trials=trials,
        lossy=lossy,
        trade_offs=trade_offs,
        to=to,
        fresh=fresh,
        seed=seed,
        hosts=tuple(filter(None, (hosts or "").split(","))),
        limits=_limits(min_quality, max_power, lossy=lossy, text=_text(profiles or ())),
        confirm=lambda question: confirmed(question, yes=yes),
        say=note,
    )
    wanted = load_deployment(name, profiles=profiles or (), sets=sets or ())
    if options.hosts and not wanted.hosts:
        fix = f"name them under `hosts:` of the deployment `{name}`"
        raise UserError("the deployment has no hosts", where="--hosts", fix=fix)
    with progress_line() as tell:
        tuned = tune_deployment(
            wanted, options=options, rim=Rim(), text=_text(profiles or ()), progress=tell
        )
    if as_json:
        print_json(tuned.summary.as_json(profile=tuned.profile))
    else:
        _print_tuned(tuned)


def _limits(
    min_quality: float | None, max_power: float | None, *, lossy: bool, text: str
) -> tuple[Limit, ...]:
    """Return what candidates must keep. Raises `UserError`, `OutsideError` for what cannot be."""
    limits: list[Limit] = []
    if min_quality is not None:
        if not lossy:
            fix = "add `--lossy`: without it nothing that changes answers is tried"
            raise UserError("is for settings that change answers", where="--min-quality", fix=fix)
        limits.append(QualityLimit(least=min_quality, text=text))
    if max_power is not None:
        meter = PowerMeter()
        meter.check_readable()
        limits.insert(0, PowerLimit(most=max_power, meter=meter))  # it looks at the run alone
    return tuple(limits)


def _recheck(
    wanted: Deployment, metric: str, captured: CapturedWorkload | None, as_json: bool
) -> None:
    with progress_line() as tell:
        found = recheck(
            wanted, metric=_metric(metric), rim=Rim(), text=_text(()), progress=tell,
            captured=captured,
        )  # fmt: skip
    low, high = (bound - 1 for bound in found.ratio.interval)
    gain = math.expm1(found.ratio.log_ratio)
    if as_json:
        ci = [round(low, 5), round(high, 5)]
        answer = {"profile": found.profile, "gain": round(gain, 5), "ci": ci, "holds": found.holds}
        print_json(answer)
        return
    says = "holds" if found.holds else "is not proven by these pairs"
    text = f"{found.profile}: {gain:+.1%} ({low:+.1%} to {high:+.1%}, 4 pairs), {says}"
    console.print(text, markup=False)


@app.command()
def report(
    name: Name,
    metric: Annotated[str, typer.Option(help=", ".join(METRICS))] = "tg",
    html: Annotated[
        Path | None, typer.Option("--html", metavar="DIR", help="Write report.html and more there")
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain the newest study of NAME: each trial, the noise, what each setting brings."""
    study = read_study(Rim(), name, _metric(metric))
    if html is not None:
        began = time.perf_counter()
        # pages draw with matplotlib, which comes with an extra: loaded only when asked for
        pages, writer = (importlib.import_module(module) for module in _PAGES)
        page, rows = pages.study_page(study.summary, name=name), pages.study_rows(study.summary)
        written = writer.write_page(page, html, rows=rows, began=began)
        note(f"written: {written.html}")
    if as_json:
        print_json(study.summary.as_json(profile=study.profile))
    else:
        _print_report(study.summary, name)


def _print_report(summary: StudySummary, name: str) -> None:
    more = [name for name in _MORE if any(name in t.outcome.figures for t in summary.trials)]
    print_table(
        ("trial>", "for", f"{summary.metric}>", *(f"{name}>" for name in more), "settings"),
        [
            (trial.number, trial.purpose, _found(summary, trial),
             *(_figure(trial, name) for name in more),
             _words(_differing(trial.settings, summary.default)) or "as it is")
            for trial in summary.trials
        ],
    )  # fmt: skip
    console.print()
    if summary.effects:
        _print_effects(summary)
    else:
        console.print("no setting was measured alone")
    console.print()
    if summary.metric == "pareto":
        _print_front(summary)
    say = partial(console.print, markup=False, soft_wrap=True)
    say(f"noise from run to run {summary.noise:.1%}; provable {summary.provable_gain:+.1%}")
    for each in summary.trade_offs:
        say(_trade_off(summary, each))
    by_length = speculation_by_length(summary.trials, default=summary.default, best=summary.best)
    for told in filter(None, (hinted(summary.hints), by_length)):
        say(told)
    say(f"{summary.verdict.why}: {_words(summary.changed) or 'the default'}")
    say(f"by hand: {by_hand(name, summary.changed)}")


def _print_effects(summary: StudySummary) -> None:
    print_table(
        ("setting", "alone brings>", "95% interval"),
        [
            (f"{effect.name}={effect.value}", f"{math.expm1(effect.ratio.log_ratio):+.1%}",
             "{:+.1%} to {:+.1%}".format(*(bound - 1 for bound in effect.ratio.interval)))
            for effect in summary.effects
        ],
    )  # fmt: skip


def by_hand(name: str, changed: Settings) -> str:
    """Return the command that runs the chosen configuration without a tuned profile."""
    sets = (f"--set {key}={value}" for key, value in spelled_out(changed).items())
    return " ".join(["fleet up", name, *sets])


def _print_front(summary: StudySummary) -> None:
    """Print what no other trial beats in both reading and generating; the knee is marked."""
    rates = {
        (trial.outcome.figures["pp"], trial.outcome.figures["tg"]): trial
        for trial in summary.trials
        if {"pp", "tg"} <= trial.outcome.figures.keys()
    }
    front = pareto_front([*rates])
    knee = max(front, key=lambda point: point[0] * point[1], default=None)
    print_table(
        ("pp>", "tg>", "", "settings of the front"),
        [
            (f"{pp:.1f}", f"{tg:.1f}", "knee" if (pp, tg) == knee else "",
             _words(_differing(rates[pp, tg].settings, summary.default)) or "as it is")
            for pp, tg in front
        ],
    )  # fmt: skip
    console.print()


def _found(summary: StudySummary, trial: Trial) -> str:
    if trial.outcome.value is None:
        return trial.outcome.failed or "failed"
    return f"{shown(summary.metric, trial.outcome.value):.1f}"


def _figure(trial: Trial, name: str) -> str:
    value = trial.outcome.figures.get(name)
    return "" if value is None else f"{value:.4g}"


def _differing(settings: Settings, default: Settings) -> Settings:
    return {name: value for name, value in settings.items() if value != default.get(name)}


def _print_tuned(tuned: Tuned) -> None:
    summary = tuned.summary
    unit = "ms" if summary.metric in {"ttft", "e2e"} else "tok/s"
    rows = [
        ("as it was", f"{summary.default_score:.1f}", _between(summary.default_ci), ""),
        ("best", f"{summary.best_score:.1f}", _between(summary.best_ci), _words(summary.changed)),
    ]
    print_table(("", f"{summary.metric} {unit}>", "95% interval", "settings"), rows)
    if tuned.profile:
        low, high = (bound - 1 for bound in summary.interval)
        console.print(
            f"gain {summary.verdict.gain:+.1%} ({low:+.1%} to {high:+.1%}, "
            f"{summary.verdict.pairs} fresh pairs): {tuned.profile}",
            markup=False,
        )
    else:
        console.print(f"no provable gain, the default stays: {summary.verdict.why}", markup=False)
        console.print(
            f"{summary.verdict.pairs or 2} pairs prove gains above "
            f"{summary.provable_gain:.1%} on this machine",
            markup=False,
        )
    for each in summary.trade_offs:
        console.print(_trade_off(summary, each), markup=False, soft_wrap=True)
    if tuned.left_out:
        note(f"pinned, not searched: {', '.join(tuned.left_out)}")
    if tuned.resumed:
        note(f"went on after {tuned.resumed} trials of an earlier start")
    note(f"{len(summary.trials)} trials, {summary.spent_s:.0f} s, ended by: {summary.stopped}")


def _trade_off(summary: StudySummary, each: TradeOff) -> str:
    low, high = each.ratio.interval
    changed = _words(_differing(each.settings, summary.default))
    return (
        f"a trade-off, not kept: {changed}: {summary.metric} {each.gain:+.1%}, {each.guard} at "
        f"{low:.2f} to {high:.2f} (`--trade-offs` keeps it)"
    )


def _between(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:.1f} to {bounds[1]:.1f}"


def _words(settings: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())


def _metric(word: str) -> Metric:
    for metric in METRICS:
        if metric == word:
            return metric
    raise UserError(f"no metric `{word}`", where="--metric", fix=f"one of {', '.join(METRICS)}")


def _workload(name: str | None, profiles: Sequence[str]) -> WorkloadProfile | None:
    if name is None or _is_file(name):
        return None
    return load_library(profiles).find(WorkloadProfile, name, where="--workload")


def _captured(name: str | None) -> CapturedWorkload | None:
    if name is None or not _is_file(name):
        return None
    try:
        return CapturedWorkload(name=name, requests=parse_requests(read_text(name), name))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {error}", where=name) from None


def _is_file(name: str) -> bool:
    return "/" in name or name.endswith((".json", ".jsonl", ".txt"))


def _text(profiles: Sequence[str]) -> str:
    """Return text to cut prompts from: the conversations at hand."""
    library = load_library(profiles)
    talks = (
        library.find(ConversationProfile, entry.name) for entry in library.entries("conversation")
    )
    return "\n\n".join("\n\n".join([talk.system, *talk.turns]) for talk in talks)


@app.command()
def external(
    space: Annotated[Path, typer.Option(metavar="SPACE.json", help="Parameters and default")],
    measure: Annotated[str, typer.Option(metavar="COMMAND", help="Answers JSON lines")],
    budget_seconds: Annotated[float | None, typer.Option(min=0, help="Of measuring")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Same seed and replies, same study")] = 0,
    as_json: Json = False,
) -> None:
    """Search the best settings of anything that answers JSON lines."""
    made = parse_space(_read_json(space), where=str(space))
    with progress_line() as tell, spoken_process(parse_command(measure)) as program:
        result = tune_external(
            made, program, budget_s=budget_seconds, seed=seed, elapsed=time.monotonic, tell=tell
        )
    if as_json:
        print_json(result.as_json())
        return
    console.print(f"chosen: {json.dumps(result.chosen)}", markup=False)
    console.print(f"gain over the default: {result.claimed_gain:+.1%} ({result.verdict.why})")
    console.print(f"{result.evaluations} runs, {result.seconds:.1f} s of measuring")


def _read_json(path: Path) -> object:
    try:
        return json.loads(read_text(path))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except ValueError as error:
        raise UserError(f"is no JSON: {error}", where=str(path)) from None
