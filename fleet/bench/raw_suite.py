"""`fleet bench --suite raw`: llama-bench of the image or of PATH, its JSON lines kept."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fleet import __version__
from fleet.bench.parse_llama_bench import RawRow, parse_llama_bench
from fleet.compiler.compile_deployment import image_of, runtime_of
from fleet.compiler.devices import container_devices
from fleet.deploy.build_image import ensure_image
from fleet.deploy.model_files import ensure_model
from fleet.effects.machine import LOCAL
from fleet.errors import OutsideError
from fleet.observe.probe_host import probe_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.bench.results_folder import ResultsFolder
    from fleet.deploy.bring_up import Progress
    from fleet.deploy.rim import Rim
    from fleet.effects.commands import Commands
    from fleet.facts.host_facts import HostFacts
    from fleet.profiles.kinds import Deployment

FILE = "rows.jsonl"
PROMPT, GENERATED, REPETITIONS = 512, 128, 5
NOT_THERE = (126, 127)
# settings that llama-bench has a word for; one value of threads serves prompt and generation
WORDS = {
    "threads": "-t",
    "batch_size": "-b",
    "ubatch_size": "-ub",
    "cache_type_k": "-ctk",
    "cache_type_v": "-ctv",
    "gpu_layers": "-ngl",
    "cpu_moe_layers": "-ncmoe",
}
_FLASH = {"on": "1", "off": "0"}


def bench_raw(
    deployment: Deployment,
    *,
    folder: ResultsFolder,
    rim: Rim,
    tell: Progress,
    repetitions: int = REPETITIONS,
) -> tuple[RawRow, ...]:
    """Run llama-bench with the deployment's model and settings; keep its rows.

    A missing image is made or pulled; in it llama-bench has the accelerators in use. Raises
    `OutsideError` when there is no llama-bench or it measured nothing.
    """
    model = str(ensure_model(deployment.model, rim=rim, progress=tell).path)
    if runtime_of(deployment) == "podman":
        ensure_image(deployment, rim=rim, progress=tell)
    words = bench_words(deployment, model, repetitions)
    programs = programs_for(deployment, model, probe_host(rim.commands, LOCAL))
    tell("llama-bench")
    with folder.locked():
        folder.refuse_used("raw")
        rows, argv = _run(programs, deployment, words, rim.commands)
        folder.write_run({
            "suite": "raw", "fleet": __version__, "deployment": deployment.name, "argv": argv,
            "started": rim.clock.now().isoformat(timespec="seconds"),
        })  # fmt: skip
        for row in rows:
            folder.add_line(FILE, asdict(row))
        return rows


def read_raw(folder: ResultsFolder) -> tuple[RawRow, ...]:
    """Return the rows of a raw folder."""
    return tuple(
        RawRow(**{**line, "samples": tuple(line["samples"])}) for line in folder.lines(FILE)
    )


def bench_words(deployment: Deployment, model: str, repetitions: int) -> tuple[str, ...]:
    """Return llama-bench's words for the deployment's settings."""
    words = [
        "-m", model, "-p", str(PROMPT), "-n", str(GENERATED), "-r", str(repetitions), "-o", "jsonl",
    ]  # fmt: skip
    for setting, word in WORDS.items():
        found = deployment.settings.get(setting)
        if found is not None and found.value not in {None, "auto", "all"}:
            words += [word, str(found.value)]
    flash = deployment.settings.get("flash_attention")
    if flash is not None and flash.value in _FLASH:
        words += ["-fa", _FLASH[str(flash.value)]]
    return tuple(words)


def _run(
    programs: Sequence[tuple[str, ...]],
    deployment: Deployment,
    words: Sequence[str],
    commands: Commands,
) -> tuple[tuple[RawRow, ...], list[str]]:
    for program in programs:
        argv = (*program, *words)
        said = commands.run(argv)
        if said.code in NOT_THERE or "executable file" in said.stderr:
            continue
        return parse_llama_bench(said.checked().stdout), list(argv)
    raise OutsideError(
        "there is no llama-bench, neither on PATH nor in the image",
        where=deployment.name,
        fix="install llama.cpp, or name an image that carries llama-bench",
    )


def programs_for(
    deployment: Deployment, model: str, host: HostFacts
) -> tuple[tuple[str, ...], ...]:
    """Return how llama-bench may be run for the deployment: in its image, then from PATH."""
    image = image_of(deployment)
    settings = {n: s.value for n, s in deployment.settings.items() if s.value is not None}
    devices = container_devices(host, settings, fabric=False)
    more = [word for device in devices for word in ("--device", device)]
    return (*(programs_in(image, model, *more) if image else ()), ("llama-bench",))


def programs_in(image: str, model: str, *more: str) -> tuple[tuple[str, ...], ...]:
    """Return how llama-bench of `image` may be run on the file `model`; `more` are podman's words.

    Images of autumn 2026 hold it as a sub-command.
    """
    folder = str(Path(model).parent)
    run = ("podman", "run", "--rm", "--network", "none", "-v", f"{folder}:{folder}:ro",
           "--security-opt", "label=disable", *more, "--entrypoint")  # fmt: skip
    names = (("llama-bench",), ("/app/llama-bench",), ("/app/llama", "bench"))
    return tuple((*run, name, image, *rest) for name, *rest in names)
