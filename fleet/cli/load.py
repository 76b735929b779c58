"""From the words of a command line to a library of profiles and a resolved deployment."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from fleet.deploy.generations import Origin, read_record
from fleet.effects.folders import Folders, cache_folder
from fleet.effects.profile_folders import absolute_path, read_profile_folders
from fleet.errors import UserError
from fleet.profiles.library import ProfileLibrary, ProfileSource
from fleet.profiles.model_file import HUGGING_FACE, deployment_of, is_model
from fleet.profiles.resolve_deployment import resolve_deployment, resolve_written
from fleet.shipped_files import shipped_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fleet.profiles.kinds import Deployment, RuntimeName


def load_library(extra_folders: Iterable[str] = ()) -> ProfileLibrary:
    """Return all profiles at hand: `--profiles` folders, the user's own, the shipped ones."""
    files = read_profile_folders(extra_folders, shipped_folder("profiles"))
    return ProfileLibrary(
        ProfileSource(file=file.path, layer=file.layer, content=file.content) for file in files
    )


def load_deployment(
    name: str,
    *,
    profiles: Iterable[str] = (),
    sets: Sequence[str] = (),
    runtime: RuntimeName | None = None,
    library: ProfileLibrary | None = None,
) -> Deployment:
    """Return the deployment that `name` means, resolved with `--set` words.

    `name` is a deployment, `path/to/model.gguf` or `hf:ORG/REPO:QUANT`; the last two make a
    deployment named after the file on `hardware: auto`, which is known by that name once it
    was brought up. A model file of the command line is
    relative to the working folder, one of a profile to the models folder; `path` is absolute.
    `runtime` is what `--runtime` says: podman and ansible take the deployment's
    `container_engine` where it has one. Raises `UserError`.
    """
    origin, known = words_of(name, profiles=profiles, sets=sets, library=library)
    name, words = origin.name, origin.sets
    if is_model(name) and not known.has("deployment", name):
        written = deployment_of(name, taken=lambda word: known.has("deployment", word))
        found = resolve_written(known, written, words, runtime=runtime)
    else:
        found = resolve_deployment(known, name, sets=words, runtime=runtime)
    return _in_models_folder(found)


def words_of(
    name: str,
    *,
    profiles: Iterable[str] = (),
    sets: Sequence[str] = (),
    library: ProfileLibrary | None = None,
) -> tuple[Origin, ProfileLibrary]:
    """Return the words that mean the same in any folder, and the library they are said of.

    A name that no profile has stands for the words it was brought up with.
    """
    folders = tuple(absolute_path(each) for each in profiles)
    known = library or load_library(folders)
    words = tuple(_absolute_model(word) for word in sets)
    if known.has("deployment", name):
        return Origin(name=name, profiles=folders, sets=words), known
    before = None if is_model(name) else _recorded(name)
    if before is None:
        whole = absolute_model(name) if is_model(name) else name
        return Origin(name=whole, profiles=folders, sets=words), known
    folders = tuple(dict.fromkeys([*folders, *before.profiles]))
    origin = Origin(name=before.name, profiles=folders, sets=(*before.sets, *words))
    return origin, load_library(folders) if before.profiles else known


def _recorded(name: str) -> Origin | None:
    with suppress(UserError):  # what cannot be a name has no record
        record = read_record(Folders(), name)
        return record.origin if record else None
    return None


def load_contained(
    name: str, *, profiles: Iterable[str] = (), sets: Sequence[str] = ()
) -> Deployment:
    """Return the deployment as it runs in containers, where it has an engine for them."""
    library = load_library(profiles)
    found = load_deployment(name, sets=sets, library=library)
    if found.hosts or found.engine.engine != "embedded":
        return found
    contained = load_deployment(name, sets=sets, runtime="podman", library=library)
    return found if contained.engine.engine == "embedded" else contained


def _absolute_model(word: str) -> str:
    """Return a `model=FILE` word with the file as the shell's folder makes it absolute."""
    key, _, value = word.partition("=")
    return f"{key}={absolute_model(value)}" if key == "model" and is_model(value) else word


def absolute_model(model: str) -> str:
    """Return the model that a command line names, its file from the working folder."""
    return model if model.startswith(HUGGING_FACE) else absolute_path(model)


def _in_models_folder(deployment: Deployment) -> Deployment:
    """Return the deployment with a model file that a profile names made absolute."""
    path = deployment.model.path
    if path is None:
        return deployment
    folder = deployment.models_dir or str(cache_folder() / "models")
    return replace(
        deployment, model=replace(deployment.model, path=absolute_path(path, folder=folder))
    )
