"""`fleet fit`: what a model takes on each device, whether it fits, and what would."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.load import load_library
from fleet.cli.options import Json, Profiles
from fleet.cli.output import note, print_json
from fleet.compiler.host_from_hardware import host_from_hardware
from fleet.compiler.memory.advice import STEP, advise, longest_context
from fleet.compiler.memory.answer_cases import answer_case
from fleet.compiler.memory.fit import fit
from fleet.compiler.memory.plan_memory import plan_memory
from fleet.compiler.memory.question import MemoryQuestion
from fleet.compiler.memory.refusals import VLLM_TYPES
from fleet.compiler.memory.say_fit import as_json
from fleet.effects.commands import LocalCommands
from fleet.effects.files import write_atomically
from fleet.errors import OutsideError, UserError
from fleet.facts.architecture_records import (
    model_facts_from_record,
    near,
    record_lines,
    with_quant,
)
from fleet.facts.ggml_types import CACHE_TYPES, IK_CACHE_TYPES
from fleet.observe.probe_host import probe_host
from fleet.observe.read_model import read_model_config, read_model_file
from fleet.profiles.kinds import HardwareProfile, ModelProfile

if TYPE_CHECKING:
    from fleet.compiler.memory.fit import Verdict
    from fleet.compiler.memory.plan_memory import MemoryPlan
    from fleet.facts.host_facts import HostFacts
    from fleet.facts.model_facts import ModelFacts
    from fleet.profiles.library import ProfileLibrary

app = typer.Typer()
DOES_NOT_FIT = 4
_QUANT = "Q4_K_M"  # when none is named
_EVERY_LAYER = 1 << 16


@app.command(name="fit")
def fit_command(
    model: Annotated[
        str | None, typer.Argument(help="Model profile, architecture, GGUF or config.json")
    ] = None,
    on: Annotated[str | None, typer.Option("--on", help="Hardware profile, or `auto`")] = None,
    quant: Annotated[str | None, typer.Option(help="Quantisation, for instance Q4_K_M")] = None,
    gguf: Annotated[Path | None, typer.Option(help="The model's (first) GGUF file")] = None,
    build: Annotated[str | None, typer.Option(help="b9093, 9093 or a date")] = None,
    engine: Annotated[str, typer.Option(help="llama.cpp, ik_llama.cpp or vllm")] = "llama.cpp",
    ctx: Annotated[int | None, typer.Option("--ctx", help="Context, tokens of all slots")] = None,
    max_ctx: Annotated[bool, typer.Option("--max-ctx", help="Find the longest context")] = False,
    parallel: Annotated[int, typer.Option(help="Slots")] = 1,
    kv_unified: Annotated[bool, typer.Option("--kv-unified", help="Slots share one pool")] = False,
    batch: Annotated[int, typer.Option(help="Logical batch, tokens")] = 2048,
    ubatch: Annotated[int, typer.Option(help="Physical batch, tokens")] = 512,
    cache_type_k: Annotated[str, typer.Option(help="Type of the K cache")] = "f16",
    cache_type_v: Annotated[str, typer.Option(help="Type of the V cache")] = "f16",
    flash_attn: Annotated[str, typer.Option(help="on, off or auto")] = "auto",
    gpu_layers: Annotated[str | None, typer.Option(help="Layers on GPUs: a number, all")] = None,
    cpu_moe: Annotated[
        str | None, typer.Option(help="Experts on the host: a number of layers, or all")
    ] = None,
    draft: Annotated[str | None, typer.Option(help="Draft model: profile, record or GGUF")] = None,
    draft_tokens: Annotated[int, typer.Option(min=0, help="Drafts whose state is kept")] = 0,
    mmproj: Annotated[Path | None, typer.Option(help="Projector file")] = None,
    swa_full: Annotated[bool, typer.Option("--swa-full", help="Whole sliding windows")] = False,
    plot: Annotated[Path | None, typer.Option(help="Write a plot: .svg or .png")] = None,
    cases: Annotated[Path | None, typer.Option(help="Questions, one JSON line each")] = None,
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """Say what a model takes on each device, whether it fits, and what would."""
    if cases is not None:
        answer_cases(cases)
        return
    library = load_library(profiles or ())
    host, name = _host(library, _needed(on, "--on HARDWARE"))
    asked = MemoryQuestion(
        model=_model(library, model, quant, gguf),
        context=0,
        parallel=_positive(parallel, "--parallel"),
        unified=kv_unified,
        batch=_positive(batch, "--batch"),
        ubatch=_positive(ubatch, "--ubatch"),
        type_k=_cache_type(cache_type_k, "--cache-type-k"),
        type_v=_cache_type(cache_type_v, "--cache-type-v"),
        flash_attention=_flash(flash_attn),
        devices=0 if gpu_layers == "0" else len(host.gpus),
        gpu_layers=_layers(gpu_layers, "--gpu-layers"),
        cpu_moe_layers=_EVERY_LAYER if cpu_moe == "all" else _layers(cpu_moe, "--cpu-moe"),
        draft_tokens=draft_tokens,
        swa_full=swa_full,
        engine=_engine(engine),
        build=_build(build),
        build_date=build if build and "-" in build else None,
        draft=_model(library, draft, None, None) if draft else None,
        mmproj_bytes=_size(mmproj),
        backend=host.gpus[0].backend if host.gpus else "cpu",
    )
    question = replace(asked, context=_context(asked, ctx, host, longest=max_ctx))
    _tell_limits(question, cpu_moe, longest=max_ctx)
    plan = plan_memory(question)
    verdict = fit(plan, host)
    if plot is not None:
        _plot(question, host, plot)
    _print(plan, verdict, host, name, machine=as_json)
    raise typer.Exit(0 if verdict.fits else DOES_NOT_FIT)


def answer_cases(file: Path) -> None:
    """Print an answer for each line of the file, `{"id", "error"}` for one that is wrong.

    Raises `UserError` for the first wrong line once all are answered.
    """
    if not file.exists() or file.is_dir():  # a pipe is as good as a file
        raise UserError("there is no such file of cases", where=str(file), fix="check the path")
    write, dumps = sys.stdout.write, json.dumps
    wrong: list[UserError] = []
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            where, case = f"{file}:{number}", {}
            try:
                case = _parsed(line, where)
                write(dumps(answer_case(case, where)) + "\n")
            except UserError as error:
                wrong.append(error)
                write(dumps({"id": case.get("id"), "error": error.message}) + "\n")
    if wrong:
        first = wrong[0]
        message = f"{first.message} ({len(wrong)} wrong in all)" if wrong[1:] else first.message
        raise UserError(message, where=first.where, fix=first.fix)


def _parsed(line: str, where: str) -> dict[str, Any]:
    try:
        case = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"no JSON: {error}", where=where, fix="one object a line") from None
    if not isinstance(case, dict):
        raise UserError("a case is a JSON object", where=where, fix="one object a line")
    return case


def _needed(value: str | None, what: str) -> str:
    if value is None:
        raise UserError(f"{what} is missing", fix="fleet fit MODEL --on HARDWARE")
    return value


def _host(library: ProfileLibrary, name: str) -> tuple[HostFacts, str]:
    hardware = library.find(HardwareProfile, name)
    if hardware.probe:
        return probe_host(LocalCommands(), "localhost"), name
    host = host_from_hardware(hardware, name)
    return replace(host, gpus=host.gpus * hardware.nodes), name


def _model(
    library: ProfileLibrary, name: str | None, quant: str | None, gguf: Path | None
) -> ModelFacts:
    if gguf is not None:
        return read_model_file(gguf)
    wanted = _needed(name, "MODEL")
    if wanted.endswith(".gguf"):
        return read_model_file(wanted)
    if wanted.endswith(".json"):
        facts = read_model_config(wanted)
        return with_quant(facts, quant) if quant else facts
    architecture, named = wanted, None
    if library.has("model", wanted):
        profile = library.find(ModelProfile, wanted)
        if profile.path and Path(profile.path).is_file() and quant is None:
            return read_model_file(profile.path)
        architecture, named = profile.architecture or wanted, profile.quant
    if architecture not in record_lines():
        known = {*record_lines(), *(entry.name for entry in library.entries("model"))}
        fix = near(wanted, known, "`fleet list model`, or `--gguf FILE`")
        raise UserError(f"`{wanted}` is no model or architecture that fleet knows", fix=fix)
    facts = model_facts_from_record(architecture)
    chosen = quant or (named if named and _knows(facts, named) else None)
    return with_quant(facts, chosen or _default_quant(facts)) if facts.quants else facts


def _knows(facts: ModelFacts, quant: str) -> bool:
    return quant.casefold() in {known.casefold() for known in facts.quants}


def _default_quant(facts: ModelFacts) -> str:
    return _QUANT if _QUANT in facts.quants else min(facts.quants)


def _context(question: MemoryQuestion, ctx: int | None, host: HostFacts, *, longest: bool) -> int:
    if longest:
        return longest_context(question, host) or 256
    if ctx is not None and ctx < 0:
        raise UserError(f"a context of {ctx} tokens", where="--ctx", fix="0 or more")
    return ctx or question.model.n_ctx_train


def _positive(value: int, where: str) -> int:
    if value < 1:
        raise UserError(f"{value} is not positive", where=where, fix="1 or more")
    return value


def _cache_type(word: str, where: str) -> str:
    """Return a type that some engine has; whether this one takes it is the plan's to say."""
    known = list(dict.fromkeys([*CACHE_TYPES, *IK_CACHE_TYPES, *VLLM_TYPES]))
    if word not in known:
        fix = near(word, known, ", ".join(known))
        raise UserError(f"`{word}` is no type of a cache", where=where, fix=fix)
    return word


def _tell_limits(question: MemoryQuestion, cpu_moe: str | None, *, longest: bool) -> None:
    """Note what bounds the answer other than memory, and what was asked for nothing."""
    model, slots = question.model, 1 if question.unified else question.parallel
    if longest and question.context + STEP > model.n_ctx_train * slots:
        note(f"the limit is what {model.name} was trained for, {model.n_ctx_train} tokens a slot")
    if cpu_moe not in {None, "0"} and not model.n_expert:
        note(f"no experts of {model.name} are known: `--cpu-moe` changes nothing")


def _flash(word: str) -> bool:
    if word not in {"on", "off", "auto"}:
        raise UserError(f"`{word}` is not on, off or auto", where="--flash-attn")
    return word != "off"


def _engine(word: str) -> Any:  # noqa: ANN401 - checked here
    known = ("llama.cpp", "ik_llama.cpp", "vllm")
    if word not in known:
        fix = near(word, known, ", ".join(known))
        raise UserError(f"`{word}` is no engine", where="--engine", fix=fix)
    return word


def _layers(word: str | None, where: str) -> int | None:
    if word in {None, "all", "auto"}:
        return None
    if word is None or not word.isdigit():
        raise UserError(f"`{word}` is no number of layers", where=where, fix="a number or `all`")
    return int(word)


def _build(word: str | None) -> int | None:
    if word is None or "-" in word:
        return None
    digits = word.removeprefix("b")
    if not digits.isdigit():
        raise UserError(f"`{word}` is no build", where="--build", fix="b9093, 9093 or a date")
    return int(digits)


def _size(file: Path | None) -> int:
    if file is None:
        return 0
    if not file.is_file():
        raise UserError("there is no such projector", where=str(file), fix="check the path")
    return file.stat().st_size


def _print(
    plan: MemoryPlan, verdict: Verdict, host: HostFacts, name: str, *, machine: bool
) -> None:
    advice = () if verdict.answer == "fits" or plan.refused else advise(plan.question, host)
    if machine:
        print_json(as_json(plan, verdict, advice))
        return
    from fleet.cli.fit_bars import print_bars  # noqa: PLC0415 - rich is slow, and for people

    print_bars(plan, verdict, advice, name)


def _plot(question: MemoryQuestion, host: HostFacts, file: Path) -> None:
    if file.suffix not in {".svg", ".png"}:
        raise UserError("is no plot", where=f"--plot {file}", fix="end its name in .svg or .png")
    try:
        from fleet.report.memory_plot import memory_plot  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        fix = "pip install 'fleet[report]'"
        raise OutsideError(f"drawing needs matplotlib: {error}", where="--plot", fix=fix) from None
    figure = memory_plot(question, host)
    write_atomically(file, figure.svg if file.suffix == ".svg" else figure.png)
