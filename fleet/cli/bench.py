"""`fleet bench`: conversations, windows, load, llama-bench; and comparing two of them."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from fleet.bench.compare_folders import compare_folders
from fleet.bench.conditions import conditions_of
from fleet.bench.conversation_suite import bench_conversations, import_conversations
from fleet.bench.load_plan import Load
from fleet.bench.load_suite import LoadRun, bench_load
from fleet.bench.raw_suite import bench_raw
from fleet.bench.results_folder import SUITES, ResultsFolder
from fleet.bench.run_conversations import Asked, Mode, Subject
from fleet.bench.watch_metrics import watch_window
from fleet.cli.bench_output import (
    comparison_json,
    conversation_json,
    print_comparison,
    print_conversation,
    print_load,
    print_raw,
    print_window,
)
from fleet.cli.default_command import DefaultCommand
from fleet.cli.durations import parse_seconds
from fleet.cli.load import load_deployment, load_library
from fleet.cli.options import Json, Profiles, Sets, profile_names
from fleet.cli.output import note, print_json
from fleet.cli.progress_line import progress_line
from fleet.deploy.look import client_of, last_server
from fleet.deploy.rim import Rim
from fleet.deploy.trial_server import trial_server
from fleet.effects.folders import state_folder
from fleet.effects.machine import LOCAL
from fleet.errors import UserError
from fleet.observe.probe_host import probe_host
from fleet.profiles.kinds import ConversationProfile, Deployment, WorkloadProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fleet.bench.summarise import Summary
    from fleet.deploy.bring_up import Progress

app = typer.Typer(cls=DefaultCommand)

STANDARD_TALKS = "P0,P1,P2"
LOAD_REQUESTS = 32
CONDITIONS = (
    "Only these conditions: C0 without a prompt cache, C1 with it, C2 with it and speculation, "
    "C3 with it and priming"
)

Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Results folder; gone on with if there")
]


@app.command("default")
def bench(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", autocompletion=profile_names("deployment")),
    ],
    suite: Annotated[str, typer.Option(help=", ".join(SUITES))] = "conversation",
    only: Annotated[str, typer.Option(metavar="C0,C1,...", help=CONDITIONS)] = "",
    condition: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:KEY=VALUE,...", help="One more condition; may be repeated"),
    ] = None,
    conversation: Annotated[
        str, typer.Option(metavar="P0,P1,...", help="Conversation profiles")
    ] = STANDARD_TALKS,
    limit_turns: Annotated[int | None, typer.Option(min=1, help="Turns of each")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Passes; intervals need two")] = 1,
    mode: Annotated[str, typer.Option(help="replay (one recorded history) or free")] = "replay",
    generate: Annotated[int, typer.Option(min=1, help="Tokens of an answer")] = 64,
    window: Annotated[str, typer.Option(help="How long `--suite window` watches")] = "30m",
    workload: Annotated[str | None, typer.Option(help="Workload of `--suite load`")] = None,
    requests: Annotated[int, typer.Option(min=1, help="Requests of a load run")] = LOAD_REQUESTS,
    users: Annotated[int | None, typer.Option(min=1, help="Requests under way at once")] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Poisson arrivals a second, instead of users")
    ] = None,
    import_: Annotated[
        bool, typer.Option("--import", help="NAME is a folder with conv.csv, conv_trials.jsonl")
    ] = False,
    out: Out = None,
    sets: Sets = None,
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """Measure what caching, speculation or a setting brings to NAME, on this machine.

    With `--suite window`, NAME is a running deployment, or the URL of any server.
    """
    options = dict(locals())
    if users is not None and rate is not None:
        raise typer.BadParameter("give `--users` or `--rate`, not both")
    run = _import if import_ else _SUITES.get(suite)
    if run is None:
        raise UserError(f"no suite `{suite}`", where="--suite", fix=f"one of {', '.join(SUITES)}")
    folder = _folder(out, names, "imported" if import_ else suite)
    with progress_line() as progress:
        answer, show = run(options, folder, progress)
    if as_json:
        print_json(answer)
        return
    show()
    note(f"results: {folder.path} (`fleet report {folder.path}` makes a page)")


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A results folder")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another one")],
    allow_unequal: Annotated[
        bool, typer.Option("--allow-unequal", help="Also when the loads differ by over 20%")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print what changed from BEFORE to AFTER; exit code 1 when they are no fair comparison."""
    found = compare_folders(
        ResultsFolder(path=before), ResultsFolder(path=after), allow_unequal=allow_unequal
    )
    if as_json:
        print_json(comparison_json(found, before, after))
    else:
        print_comparison(found)


Answer = tuple[dict[str, Any], "Callable[[], None]"]


def _conversation(options: Mapping[str, Any], folder: ResultsFolder, tell: Progress) -> Answer:
    asked = Asked(
        subjects=tuple(
            Subject(
                deployment=deployment,
                conditions=conditions_of(
                    deployment, only=_words(options["only"]), extra=options["condition"] or ()
                ),
            )
            for deployment in _deployments(options)
        ),
        conversations=_talks(options["conversation"], options["profiles"] or ()),
        mode=_mode(options["mode"]),
        repeats=options["repeat"],
        limit_turns=options["limit_turns"],
        generate=options["generate"],
    )
    rim = Rim()
    summary = bench_conversations(
        asked,
        folder=folder,
        start=partial(trial_server, rim=rim),
        clock=rim.clock,
        machine=probe_host(rim.commands, LOCAL),
        tell=tell,
    )
    return conversation_json(summary, folder.path), _shown(summary, folder)


def _window(options: Mapping[str, Any], folder: ResultsFolder, tell: Progress) -> Answer:
    rim = Rim()
    name = _only_name(options)
    headers: Mapping[str, str] = {}
    url = name.rstrip("/")
    if not url.startswith(("http://", "https://")):
        client = client_of(last_server(name, rim)[1], rim)
        url, headers = client.url, client.headers
    window = watch_window(
        url,
        headers=headers,
        window_s=parse_seconds(options["window"], where="--window"),
        folder=folder,
        http=rim.http,
        clock=rim.clock,
        tell=tell,
    )
    answer = {"folder": str(folder.path), "suite": "window", **asdict(window)}
    return answer, partial(print_window, window)


def _load(options: Mapping[str, Any], folder: ResultsFolder, tell: Progress) -> Answer:
    _only_name(options)
    rim = Rim()
    deployment = _deployments(options)[0]
    wanted = LoadRun(
        deployment=deployment,
        workload=_workload(options, deployment),
        load=Load(requests=options["requests"], users=options["users"], rate=options["rate"]),
    )
    summary = bench_load(
        wanted,
        folder=folder,
        start=partial(trial_server, rim=rim),
        clock=rim.clock,
        machine=probe_host(rim.commands, LOCAL),
        tell=tell,
    )
    answer = {"folder": str(folder.path), "suite": "load", **asdict(summary)}
    return answer, partial(print_load, summary)


def _raw(options: Mapping[str, Any], folder: ResultsFolder, tell: Progress) -> Answer:
    _only_name(options)
    rows = bench_raw(_deployments(options)[0], folder=folder, rim=Rim(), tell=tell)
    answer = {"folder": str(folder.path), "suite": "raw", "rows": [asdict(row) for row in rows]}
    return answer, partial(print_raw, rows)


def _import(options: Mapping[str, Any], folder: ResultsFolder, _: Progress) -> Answer:
    summary = import_conversations(Path(_only_name(options)), folder=folder)
    return conversation_json(summary, folder.path), _shown(summary, folder)


def _shown(summary: Summary, folder: ResultsFolder) -> Callable[[], None]:
    run = folder.read_run() or {}
    legend = {each["name"]: each.get("meaning", "") for each in run.get("conditions", ())}
    return partial(print_conversation, summary, legend)


_SUITES = {"conversation": _conversation, "window": _window, "load": _load, "raw": _raw}


def _deployments(options: Mapping[str, Any]) -> list[Deployment]:
    profiles, sets = options["profiles"] or (), options["sets"] or ()
    return [load_deployment(name, profiles=profiles, sets=sets) for name in options["names"]]


def _only_name(options: Mapping[str, Any]) -> str:
    names: list[str] = options["names"]
    if len(names) > 1:
        raise UserError("this suite measures one at a time", where=names[1], fix="name one")
    return names[0]


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _mode(word: str) -> Mode:
    for known in get_args(Mode):
        if word == known:
            return known  # type: ignore[no-any-return]
    raise UserError(f"no mode `{word}`", where="--mode", fix="replay or free")


def _talks(text: str, profiles: Sequence[str]) -> tuple[ConversationProfile, ...]:
    library = load_library(profiles)
    return tuple(library.find(ConversationProfile, name) for name in _words(text))


def _workload(options: Mapping[str, Any], deployment: Deployment) -> WorkloadProfile:
    name = options["workload"]
    if name is not None:
        return load_library(options["profiles"] or ()).find(WorkloadProfile, name)
    if deployment.workload is None:
        fix = "name one with `--workload`"
        raise UserError("this deployment has no workload", where=deployment.name, fix=fix)
    return deployment.workload


def _folder(out: Path | None, names: Sequence[str], suite: str) -> ResultsFolder:
    """Return `out`, else the default folder: a fresh one where a run cannot be gone on with."""
    if out is not None:
        return ResultsFolder(path=out)
    stem = "+".join(Path(name).stem for name in names)
    path = state_folder() / "bench" / f"{stem}-{suite}"
    if suite == "conversation":
        return ResultsFolder(path=path)
    more = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return ResultsFolder(
        path=next(each for each in chain([path], more) if not (each / "run.json").exists())
    )
