"""`fleet bench`: conversations, windows, load, llama-bench; and comparing two of them."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from fleet.bench.conditions import conditions_of
from fleet.bench.conversation_suite import bench_conversations
from fleet.bench.results_folder import SUITES, ResultsFolder
from fleet.bench.run_conversations import Asked, Mode, Subject
from fleet.cli.default_command import DefaultCommand
from fleet.cli.load import load_deployment, load_library
from fleet.cli.options import Json, Profiles, Sets, profile_names
from fleet.cli.output import console, note, print_json, print_table
from fleet.cli.progress_line import progress_line
from fleet.deploy.rim import Rim
from fleet.deploy.trial_server import trial_server
from fleet.effects.folders import state_folder
from fleet.effects.machine import LOCAL
from fleet.errors import UserError
from fleet.observe.probe_host import probe_host
from fleet.profiles.kinds import ConversationProfile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.bench.intervals import Estimate
    from fleet.bench.summarise import Summary


app = typer.Typer(cls=DefaultCommand)

STANDARD_TALKS = "P0,P1,P2"

Names = Annotated[
    list[str],
    typer.Argument(metavar="NAME...", autocompletion=profile_names("deployment")),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Results folder; gone on with if there")
]


@app.command("default")
def bench(
    names: Names,
    suite: Annotated[str, typer.Option(help=", ".join(SUITES))] = "conversation",
    only: Annotated[str, typer.Option(metavar="C0,C1,...", help="Only these conditions")] = "",
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
    out: Out = None,
    sets: Sets = None,
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """Measure what caching, speculation or a setting brings to NAME, on this machine."""
    if suite not in SUITES:
        raise UserError(f"no suite `{suite}`", where="--suite", fix=f"one of {', '.join(SUITES)}")
    deployments = [load_deployment(n, profiles=profiles or (), sets=sets or ()) for n in names]
    folder = _folder(out, names, suite)
    asked = Asked(
        subjects=tuple(
            Subject(
                deployment=deployment,
                conditions=conditions_of(deployment, only=_words(only), extra=condition or ()),
            )
            for deployment in deployments
        ),
        conversations=_talks(conversation, profiles or ()),
        mode=_mode(mode),
        repeats=repeat,
        limit_turns=limit_turns,
        generate=generate,
    )
    _finish(_run(asked, folder), folder, as_json=as_json)


def _run(asked: Asked, folder: ResultsFolder) -> Summary:
    rim = Rim()
    with progress_line() as progress:
        return bench_conversations(
            asked,
            folder=folder,
            start=partial(trial_server, rim=rim),
            clock=rim.clock,
            machine=probe_host(rim.commands, LOCAL),
            tell=progress,
        )


def _finish(summary: Summary, folder: ResultsFolder, *, as_json: bool) -> None:
    if as_json:
        print_json(summary_json(summary, folder))
        return
    print_summary(summary)
    note(f"results: {folder.path} (`fleet report {folder.path}` makes a page)")


def summary_json(summary: Summary, folder: ResultsFolder) -> dict[str, object]:
    """Return a conversation run as `--json` prints it."""
    return {
        "folder": str(folder.path),
        "suite": "conversation",
        "turns": sum(total.turns for total in summary.totals),
        "repeats": summary.repeats,
        "conditions": [asdict(total) for total in summary.totals],
        "gains": [asdict(gain) for gain in summary.gains],
        "notes": list(summary.notes),
    }


def print_summary(summary: Summary) -> None:
    """Print totals and gains of a conversation run."""
    print_table(
        ("condition", "turns>", "processed>", "cached>", "prefill s>", "decode s>", "PP tok/s>",
         "TG tok/s>", "TTFT ms>", "accepted>"),
        [
            (t.condition, t.turns, f"{t.processed_tokens:.0f}", f"{t.cached_tokens:.0f}",
             f"{t.prefill_s:.2f}", f"{t.decode_s:.2f}", _rate(t.pp_tps), _rate(t.tg_tps),
             f"{t.ttft_ms:.0f}", "" if t.acceptance is None else f"{t.acceptance:.0%}")
            for t in summary.totals
        ],
    )  # fmt: skip
    console.print()
    print_table(
        ("against", "prefill saved s>", "prefill>", "decode>", "wall>", "same answers>"),
        [
            (f"{g.condition} / {g.baseline}", estimate_text(g.prefill_saved_s, "{:.2f}"),
             *(estimate_text(e, "{:.2f}x") for e in (g.prefill, g.decode, g.wall)),
             f"{g.same_answers} of {g.compared}")
            for g in summary.gains
        ],
    )  # fmt: skip
    for line in summary.notes:
        console.print(f"note: {line}", markup=False)


def estimate_text(estimate: Estimate | None, form: str) -> str:
    """Return a figure with its interval where there is one."""
    if estimate is None:
        return ""
    shown = form.format(estimate.value)
    if estimate.low is None or estimate.high is None:
        return shown
    return f"{shown} ({form.format(estimate.low)} to {form.format(estimate.high)})"


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


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


def _folder(out: Path | None, names: Sequence[str], suite: str) -> ResultsFolder:
    stem = "+".join(Path(name).stem for name in names)
    return ResultsFolder(path=out or state_folder() / "bench" / f"{stem}-{suite}")
