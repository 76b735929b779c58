"""Which files a deployment's launches name, where each lies here and where on the hosts.

What is on this machine is brought to the hosts, into fleet's folder of the model there; a
path that is not here is taken for the hosts' own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.compiler.model_files import WRITTEN
from fleet.deploy.model_files import SPLIT, draft_of, find_model, models_folder
from fleet.errors import UserError
from fleet.facts.gguf_header import split_names
from fleet.profiles.kinds import SettingValue
from fleet.profiles.settings_table import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.deploy.look_at_host import HostSight
    from fleet.deploy.model_files import ModelOnDisk
    from fleet.deploy.rim import Rim
    from fleet.profiles.kinds import Deployment, ModelProfile

SNAPSHOT = "config.json"  # what every folder of a model has


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFile:
    """A file for the hosts. `place` is absolute there, or below fleet's cache folder.

    `source` is the copy here, None for a file that the hosts have themselves; `setting` is
    the one that names it, None for the model itself.
    """

    place: str
    source: Path | None = None
    setting: str | None = None


def host_files(
    deployment: Deployment, here: ModelOnDisk | None, rim: Rim
) -> tuple[str, tuple[HostFile, ...]]:
    """Return the model's folder on the hosts and every file that a launch names, the model's first.

    Raises `UserError` for a relative path of a file that is not here.
    """
    folder, files = _model_files(deployment, here, rim)
    shelf = shelf_of(deployment)
    return folder, (*files, *_named_files(deployment, shelf, rim))


def with_paths_of(
    deployment: Deployment, files: tuple[HostFile, ...], sight: HostSight
) -> Deployment:
    """Return the deployment whose settings name the files as they lie on one host."""
    said = dict(deployment.settings)
    for name in dict.fromkeys(file.setting for file in files if file.setting):
        paths = ",".join(sight.at(file.place) for file in files if file.setting == name)
        old = said.get(name) or SettingValue(
            value=None, layer="model", place=deployment.model.place
        )
        said[name] = replace(old, value=paths)
    return replace(deployment, settings=said)


def wanted_draft(deployment: Deployment) -> ModelProfile | None:
    """Return the draft that is to be fetched, None when no repository's draft is used."""
    named = deployment.settings.get("draft_model")
    if not _speculates(deployment) or (named is not None and named.value):
        return None
    return draft_of(deployment.model)


def _speculates(deployment: Deployment) -> bool:
    kind = deployment.settings.get("speculation")
    return deployment.engine.engine != "vllm" and (kind is None or kind.value != "none")


def shelf_of(deployment: Deployment) -> str:
    """Return the place of fleet's own folder of the model on the hosts."""
    return f"{deployment.models_dir or 'models'}/{deployment.model.name}"


def _model_files(
    deployment: Deployment, here: ModelOnDisk | None, rim: Rim
) -> tuple[str, tuple[HostFile, ...]]:
    model, shelf = deployment.model, shelf_of(deployment)
    if deployment.engine.engine == "vllm":
        return _model_folder(model, shelf, rim)
    if here is not None:
        return shelf, tuple(
            HostFile(place=f"{shelf}/{file.name}", source=file) for file in here.files
        )
    if model.path:
        folder, _, file = model.path.rpartition("/")
        count = SPLIT.search(file)
        names = split_names(file, int(count[2]) if count else 1)
    else:
        folder, names = shelf, tuple(file.name for file in model.files)
    return folder, tuple(HostFile(place=f"{folder}/{name}") for name in names)


def _model_folder(model: ModelProfile, shelf: str, rim: Rim) -> tuple[str, tuple[HostFile, ...]]:
    """Return a model that is read as a folder: all its files where it is here, else none."""
    source = Path(model.path).expanduser() if model.path else models_folder(rim) / model.name
    if not (source / SNAPSHOT).is_file():
        return model.path or shelf, ()
    names = [file.relative_to(source) for file in sorted(source.rglob("*")) if file.is_file()]
    # a name with a dot first is the fetching library's own
    names = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    return shelf, tuple(HostFile(place=f"{shelf}/{name}", source=source / name) for name in names)


def _named_files(deployment: Deployment, shelf: str, rim: Rim) -> Iterator[HostFile]:
    said = {
        name: str(setting.value) for name, setting in deployment.settings.items()
        if setting.value and name not in WRITTEN and SETTINGS[name].kind == "path"
    }  # fmt: skip
    if deployment.model.draft_path and _speculates(deployment):
        said.setdefault("draft_model", deployment.model.draft_path)
    draft = wanted_draft(deployment)
    if draft is not None:
        found = find_model(draft, rim)
        place = f"{shelf}/draft/{draft.files[0].name}"
        yield HostFile(place=place, source=found.path if found else None, setting="draft_model")
    for name, value in said.items():
        for number, path in enumerate(value.split(",")):
            yield _named_file(
                name, path, f"{shelf}/{name}/{number}" if number else f"{shelf}/{name}"
            )


def _named_file(setting: str, path: str, folder: str) -> HostFile:
    source = Path(path).expanduser()
    if source.is_file():
        return HostFile(place=f"{folder}/{source.name}", source=source, setting=setting)
    if not path.startswith(("/", "~/")):
        fix = "check the path, or write it from `/` as the hosts have it"
        raise UserError(f"no file `{path}` here", where=setting, fix=fix)
    return HostFile(place=path, setting=setting)
