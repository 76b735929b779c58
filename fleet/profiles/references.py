"""What a profile names in other profiles, and which of those names lead nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fleet.errors import UserError
from fleet.profiles.kinds import DeploymentProfile, Kind, Profile, TunedProfile
from fleet.profiles.model_file import is_model
from fleet.profiles.problems import BadProfile, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.profiles.library import ProfileLibrary


class Reference(NamedTuple):
    """A name that a profile uses: the key's path, the key whose line it is, what is named."""

    path: str
    key: str
    kind: Kind
    name: str


_KEYS: dict[str, Kind] = {
    "hardware": "hardware", "engine": "engine", "model": "model", "container_engine": "engine",
    "workload": "workload",
}  # fmt: skip


def broken_references(profile: Profile, library: ProfileLibrary) -> Iterator[Problem]:
    """Yield a problem for each name that no profile has, or whose profile is wrong."""
    lines = profile.lines if isinstance(profile, DeploymentProfile) else {}
    for reference in references(profile):
        line = lines.get(reference.key, profile.place.line)
        problem = _problem(reference, library, line)
        if problem:
            yield problem


def references(profile: Profile) -> Iterator[Reference]:
    """Yield what the profile names."""
    if isinstance(profile, TunedProfile):
        if not is_model(profile.deployment):
            yield Reference("deployment", "deployment", "deployment", profile.deployment)
        return
    if not isinstance(profile, DeploymentProfile):
        return
    for key, kind in _KEYS.items():
        name = getattr(profile, key)
        if name and not (key == "model" and is_model(name)):
            yield Reference(key, key, kind, name)
    for index, host in enumerate(profile.hosts):
        if host.hardware:
            yield Reference(f"hosts[{index}].hardware", "hosts", "hardware", host.hardware)


def _problem(reference: Reference, library: ProfileLibrary, line: int) -> Problem | None:
    kind, name = reference.kind, reference.name
    if not library.has(kind, name):
        near = library.near(kind, name)
        message = f"no {kind} is called `{name}`"
        return Problem(line=line, path=reference.path, message=message, near=near)
    try:
        library.profile(kind, name)
    except BadProfile as bad:
        message = f"`{name}` is wrong, see {bad.where}"
        return Problem(line=line, path=reference.path, message=message)
    except UserError as error:
        return Problem(line=line, path=reference.path, message=str(error))
    return None
