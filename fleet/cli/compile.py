"""`fleet compile`: the launch of every server, spelled for one build."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.load import load_deployment
from fleet.cli.options import Json, Name, Profiles, Sets
from fleet.cli.output import notes, print_json
from fleet.compiler.compare_builds import differences
from fleet.compiler.compile_deployment import compile_deployment
from fleet.compiler.dialects.environment import as_environment
from fleet.deploy.model_files import read_model
from fleet.effects.commands import LocalCommands
from fleet.effects.files import read_given_text
from fleet.effects.folders import cache_folder
from fleet.errors import UserError
from fleet.facts.known_builds import build_facts, known_llama_cpp_builds
from fleet.facts.parse_help import parse_help, with_number
from fleet.observe.probe_engine import probe_image
from fleet.observe.probe_host import probe_host
from fleet.profiles.model_file import is_model
from fleet.render.podman_line import podman_line

if TYPE_CHECKING:
    from fleet.compiler.launch_config import LaunchConfig
    from fleet.facts.build_facts import BuildFacts
    from fleet.profiles.kinds import Deployment

app = typer.Typer()


class Form(StrEnum):
    """How people see the launch."""

    argv = "argv"
    env = "env"
    podman = "podman"


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildChoice:
    """Where the build's options are read: a number, an image, a help text; else the profile."""

    build: str | None = None
    image: str | None = None
    help_file: Path | None = None


@app.command(name="compile")
def compile_command(
    name: Name,
    build: Annotated[str | None, typer.Option(help="b9093, 9093 or a date")] = None,
    image: Annotated[str | None, typer.Option(help="ask this image for its options")] = None,
    help_file: Annotated[Path | None, typer.Option(help="a recorded `--help`")] = None,
    form: Annotated[Form, typer.Option("--as", help="for people: how to show it")] = Form.argv,
    sets: Sets = None,
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """Print the launch configurations of a deployment; needs neither podman nor host."""
    deployment = load_deployment(name, profiles=profiles or (), sets=sets or ())
    if is_model(name) and Path(deployment.model.path or "").is_file():
        read_model(Path(deployment.model.path or ""))  # a file that is here is a model's
    choice = BuildChoice(build=build, image=image, help_file=help_file)
    launches = compile_for(deployment, choice)
    if as_json:
        servers = [as_json_object(it, form) for it in launches]
        print_json({"deployment": deployment.name, "servers": servers})
        return
    for launch in launches:
        _show(launch, form)


def compile_for(deployment: Deployment, choice: BuildChoice) -> tuple[LaunchConfig, ...]:
    """Compile for the build that was chosen; `hardware: auto` is this machine, probed."""
    facts, tables = chosen_build(deployment, choice)
    probes = deployment.hardware.probe and not deployment.hosts
    hosts = {"local": probe_host(LocalCommands(), "local")} if probes else {}
    launches = compile_deployment(
        deployment, hosts=hosts, model=None, build=facts, models_dir=str(cache_folder() / "models")
    )
    return tuple(replace(it, warnings=(*it.warnings, *differences(it, *tables))) for it in launches)


def chosen_build(
    deployment: Deployment, choice: BuildChoice
) -> tuple[BuildFacts, tuple[BuildFacts, ...]]:
    """Return the build's facts and, when its own help was read, also what the table says."""
    engine = deployment.engine.engine
    if choice.build is not None and engine in {"vllm", "ik_llama.cpp"}:
        _refuse_foreign_build(deployment, choice.build)
    if choice.help_file is None and choice.image is None:
        return build_facts(engine, choice.build or deployment.engine.build), ()
    if choice.help_file is not None:
        read = parse_help(read_given_text(choice.help_file), engine=engine)
        number = build_facts(engine, choice.build) if choice.build else None
        read = replace(read, number=number.number, date=number.date) if number else read
    else:
        read = probe_image(LocalCommands(), str(choice.image), engine=engine)
    read = with_number(read, known_llama_cpp_builds())
    known = build_facts(engine, read.number) if read.number and not read.inferred else None
    return read, (known,) if known else ()


def _refuse_foreign_build(deployment: Deployment, build: str) -> None:
    engine = deployment.engine.engine
    try:
        build_facts(engine, build)
    except UserError:
        fix = "`--set engine=llama.cpp` compiles it for llama.cpp"
        message = f"`{deployment.name}` is for {engine}, `{build}` is no build of it"
        raise UserError(message, where="--build", fix=fix) from None


def as_json_object(launch: LaunchConfig, form: Form = Form.argv) -> dict[str, Any]:
    """Return one server as the contract of the command line wants it."""
    argv, env = as_environment(launch) if form is Form.env else (launch.argv, dict(launch.env))
    shown: dict[str, Any] = {
        "name": launch.server,
        "host": launch.host,
        "engine": launch.engine,
        "build": launch.build,
        "program": launch.program,
        "argv": list(argv),
        "env": env,
        "image": launch.image,
        "mounts": [
            {"source": it.source, "target": it.target, "read_only": it.read_only}
            for it in launch.mounts
        ],
        "devices": list(launch.devices),
        "ports": [f"{launch.bind}:{launch.port}:{launch.port}"],
        "caps": list(launch.caps),
        "cpuset": launch.cpuset,
        "cpuset_mems": launch.cpuset_mems,
        "network": launch.network,
        "digest": launch.digest,
        "warnings": [{"code": it.code, "message": it.message} for it in launch.warnings],
    }
    if launch.attributes:
        shown["attributes"] = dict(launch.attributes)
    if form is Form.podman:
        shown["podman"] = list(podman_line(launch))
    return shown


def _show(launch: LaunchConfig, form: Form) -> None:
    typer.echo(f"# {launch.server} on {launch.host}, {launch.engine} {launch.build}")
    if form is Form.podman and launch.image:
        typer.echo(shlex.join(podman_line(launch)))
    elif form is Form.env:
        argv, env = as_environment(launch)
        for name, value in env.items():
            typer.echo(f"{name}={shlex.quote(value)}")
        typer.echo(shlex.join((launch.program, *argv)))
    else:
        words = [f"{name}={shlex.quote(value)}" for name, value in launch.env]
        typer.echo(" ".join([*words, shlex.join((launch.program, *launch.argv))]))
    for warning in launch.warnings:
        notes.print(f"warning: {warning.message} [{warning.code}]", markup=False)
