"""From the words of a command line to a library of profiles and a resolved deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.effects.profile_folders import read_profile_folders
from fleet.profiles.library import ProfileLibrary, ProfileSource
from fleet.profiles.model_file import deployment_of, is_model
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
    deployment named after the file on `hardware: auto`. `runtime` is what `--runtime` says:
    podman and ansible take the deployment's `container_engine` where it has one.
    Raises `UserError`.
    """
    known = library or load_library(profiles)
    if is_model(name) and not known.has("deployment", name):
        return resolve_written(known, deployment_of(name), sets, runtime=runtime)
    return resolve_deployment(known, name, sets=sets, runtime=runtime)
