"""`fleet prompts`: what breaks a shared prefix, and priming it."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.load import load_deployment
from fleet.cli.options import Json, Name, Profiles
from fleet.cli.output import print_json, print_table
from fleet.deploy.capture import capture_file, capture_state, forget, start_capture, stop_capture
from fleet.deploy.look import client_of, last_server
from fleet.deploy.model_files import find_model
from fleet.deploy.prime_running import build_of, prime_running, shape_of
from fleet.deploy.rim import Rim
from fleet.deploy.trial_server import trial_server
from fleet.diagnose.fix_overlay import overlay
from fleet.diagnose.prompts.analysis import Analysis, analysis_json, analyze
from fleet.diagnose.prompts.placement import Memory, memory_of
from fleet.diagnose.prompts.requests import Request, parse_requests
from fleet.diagnose.prompts.tokens import Estimate, Tokenizer
from fleet.effects.files import write_atomically
from fleet.effects.installed import embedded_build
from fleet.errors import FleetError, UserError
from fleet.observe.engine_tokenizer import EngineTokenizer
from fleet.profiles.model_file import HUGGING_FACE, is_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.facts.build_facts import BuildFacts
    from fleet.profiles.kinds import Deployment
    from fleet.profiles.settings_table import SettingScalar

LARGEST_TO_LOAD = 8 << 30  # bytes; a larger model takes too long for a count of tokens
ONLY_TOKENS = {"ctx_size": 512, "parallel": 1, "warmup": False}
FixOut = Annotated[
    str | None, typer.Option("--fix-out", metavar="FILE", help="Write the choice as settings")
]

app = typer.Typer()
_HEAD = 4096  # bytes that tell a binary file from text
prompts = typer.Typer(no_args_is_help=True, help="Find what breaks a shared prefix; prime it")
app.add_typer(prompts, name="prompts")


@prompts.command(name="analyze")
def analyze_(
    source: Annotated[str, typer.Argument(metavar="FILE|DIR|NAME", help="Captured requests")],
    on: Annotated[
        str | None, typer.Option("--on", metavar="NAME", help="The deployment that reads them")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="GGUF", help="The model that reads them, without --on"),
    ] = None,
    pp_tps: Annotated[
        float | None,
        typer.Option("--pp", min=0.001, help="Prompt tokens a second, for the gain in seconds"),
    ] = None,
    show_text: Annotated[bool, typer.Option("--show-text", help="Show prompt text")] = False,
    fix_out: FixOut = None,
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """Say what requests share, what breaks it, and what each remedy would bring."""
    requests = _requests(source)
    name = on or model or (None if Path(source).exists() else source)
    with ExitStack() as running:
        reader = _reader(name, profiles or [], running)
        found = analyze(
            requests, reader.tokenizer, reader.memory, build=reader.build, pp_tps=pp_tps
        )
    if fix_out is not None:
        _write_fix(fix_out, found.choice.settings, found.choice.change)
    if as_json:
        print_json(analysis_json(found, show_text=show_text))
    else:
        _print(found, show_text=show_text)


@prompts.command()
def prime(
    name: Name, fix_out: FixOut = None, profiles: Profiles = None, as_json: Json = False
) -> None:
    """Send the deployment's shared prefix to every slot, and prove by a probe that it helps."""
    rim = Rim()
    deployment = load_deployment(name, profiles=profiles or [])
    report = prime_running(deployment, last_server(name, rim)[1], rim)
    if fix_out is not None:
        _write_fix(fix_out, report.settings, report.why)
    if as_json:
        print_json({**asdict(report), "choice": report.choice, "reused": report.reused})
    else:
        sys.stdout.write(
            f"{report.outcome}: {report.reused} of {report.prefix_tokens} tokens reused "
            f"(before: {report.before}); {report.why}\n"
        )


def _write_fix(path: str, settings: Mapping[str, SettingScalar], why: str) -> None:
    rows = {name: (value, "fleet prompts") for name, value in settings.items()}
    write_atomically(Path(path), overlay(rows, why))


@prompts.command()
def capture(
    name: Name,
    state: Annotated[str, typer.Argument(metavar="on|off", help="Start or stop recording")],
    as_json: Json = False,
) -> None:
    """Record requests of a deployment through a loopback address of its own."""
    if state not in {"on", "off"}:
        raise UserError(f"`{state}` is neither on nor off", where="capture", fix="on or off")
    rim = Rim()
    if state == "off":
        stop_capture(name, rim)
    else:
        _, server = last_server(name, rim)
        start_capture(name, server.url or "", rim)
    answer = asdict(capture_state(name, rim))
    if as_json:
        print_json(answer)
    elif answer["url"]:
        sys.stdout.write(f"send requests to {answer['url']}; they are kept in {answer['file']}\n")
    else:
        sys.stdout.write(f"off; {answer['requests']} requests are kept in {answer['file']}\n")


@prompts.command(name="forget")
def forget_(name: Name, as_json: Json = False) -> None:
    """Delete what was captured of a deployment."""
    removed = forget(name, Rim())
    if as_json:
        print_json({"deployment": name, "removed": removed})
    else:
        sys.stdout.write(f"{'deleted' if removed else 'nothing was captured'}\n")


def _requests(source: str) -> tuple[Request, ...]:
    """Read a file, every file of a folder, or what was captured of a deployment."""
    path = Path(source)
    if path.is_dir():
        files = sorted(one for one in path.iterdir() if one.is_file())
        if not files:
            raise UserError("the folder is empty", where=source, fix="name a folder of prompts")
        return tuple(found for one in files for found in _file(one))
    if not path.exists():
        path = capture_file(source, Rim())
        if not path.exists():
            fix = "name a file, a folder, or a deployment with `fleet prompts capture NAME on`"
            raise UserError("no such file, and nothing was captured", where=source, fix=fix)
    return _file(path)


def _file(path: Path) -> tuple[Request, ...]:
    with path.open("rb") as file:
        head = file.read(_HEAD)
        if b"\0" in head:
            fix = "name captured requests as JSON lines, or a prompt as text"
            raise UserError("this is a binary file", where=str(path), fix=fix)
        text = (head + file.read()).decode(errors="replace")
    return parse_requests(text, str(path))


@dataclass(frozen=True, kw_only=True, slots=True)
class Reader:
    """Who reads the requests: its tokenizer, how it resumes, and its build."""

    tokenizer: Tokenizer
    memory: Memory
    build: BuildFacts | None = None


def _reader(name: str | None, profiles: Sequence[str], running: ExitStack) -> Reader:
    """Return the best tokenizer at hand, and how the engine resumes."""
    if name is None:
        return Reader(tokenizer=Estimate(), memory=Memory())
    rim = Rim()
    is_path = (is_model(name) or "/" in name) and not name.startswith(HUGGING_FACE)
    if is_path and not Path(name).is_file():
        raise UserError("no such file", where=name, fix="name a GGUF file or a deployment")
    deployment = load_deployment(name, profiles=profiles)
    settings = {key: setting.value for key, setting in deployment.settings.items()}
    facts, build = shape_of(deployment.model, rim), build_of(deployment)
    with suppress(FleetError):
        _, server = last_server(name, rim)
        client = client_of(server, rim)
        if server.state == "running" and client.health() == "ready":
            memory = memory_of(dict(server.settings), facts, build)
            return Reader(tokenizer=EngineTokenizer(client=client), memory=memory, build=build)
    tokenizer = _embedded_tokenizer(deployment, rim, running) or Estimate()
    return Reader(tokenizer=tokenizer, memory=memory_of(settings, facts, build), build=build)


def _embedded_tokenizer(
    deployment: Deployment, rim: Rim, running: ExitStack
) -> EngineTokenizer | None:
    """Load a model that is here and small into the embedded engine, only to ask for tokens."""
    try:
        disk = find_model(deployment.model, rim)
    except UserError:
        return None
    if disk is None or disk.size > LARGEST_TO_LOAD or embedded_build() is None:
        return None
    alone = replace(
        deployment, engine=replace(deployment.engine, engine="embedded", image=None), hosts=(),
        settings={}, shared_prefix=None,
    )  # fmt: skip
    with suppress(FleetError):
        server = running.enter_context(trial_server(alone, overrides=ONLY_TOKENS, rim=rim))
        return EngineTokenizer(client=server.client, name="xllamacpp")
    return None


def _choice(found: Analysis) -> str:
    """Say what to do, what it brings, and how it is said to this engine."""
    choice = found.choice
    words = [f"{choice.variant}: {choice.change}", f"{choice.reusable_tokens:g} tokens reused"]
    if choice.settings:
        said = ", ".join(f"{key}: {str(value).lower()}" for key, value in choice.settings.items())
        words.append(f"`{' '.join(choice.options)}`" if choice.options else said)
    if choice.slot_files:
        words.append("`slot_save_path:` keeps it over a restart")
    return "; ".join(words)


def _print(found: Analysis, *, show_text: bool) -> None:
    how = "estimated" if found.tokenizer == "estimate" else f"counted by {found.tokenizer}"
    sys.stdout.write(
        f"{found.requests} requests of {found.prompt_tokens:g} tokens ({how}); "
        f"{found.common_prefix_tokens} in common\n"
    )
    print_table(("variant", "reusable tokens>"), list(found.reusable.items()))
    sys.stdout.write(f"choice: {_choice(found)}\n")
    if found.breaks:
        rows = [(row.at_token, row.where, row.kind, f"{row.share:.0%}") for row in found.breaks]
        print_table(("at token>", "where", "what breaks it", "share>"), rows)
    for kind, where, tokens, text in found.repeated:
        sys.stdout.write(f"said twice: {kind} in {where}, {tokens} tokens\n")
        if show_text:
            sys.stdout.write(json.dumps(text, ensure_ascii=False) + "\n")
    for row in found.advice:
        seconds = f", {row.saved_s:.1f} s saved" if row.saved_s is not None else ""
        more = row.reusable_tokens_after - found.reusable["default"]
        sys.stdout.write(
            f"{row.change}: {row.reusable_tokens_after:g} tokens, {more:g} more{seconds}\n"
        )
    if found.interval and found.choice.variant.startswith("interval"):
        sys.stdout.write(f"interval: {found.interval[0]} {found.interval[1]}\n")
