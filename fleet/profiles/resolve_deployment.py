"""A deployment as written, with its profiles, to one set of settings that knows its sources."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from fleet.errors import UserError, near_hint
from fleet.profiles.kind_tables import TABLES
from fleet.profiles.kinds import (
    LAYERS,
    Deployment,
    DeploymentProfile,
    EngineProfile,
    HardwareProfile,
    Layered,
    ModelProfile,
    Place,
    RuntimeName,
    Serving,
    SettingValue,
    TunedProfile,
    WorkloadProfile,
)
from fleet.profiles.model_file import is_model, model_of
from fleet.profiles.reading import Mistake
from fleet.profiles.scalar_fields import ScalarField
from fleet.profiles.settings_table import SETTINGS, parse_setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fleet.profiles.library import ProfileLibrary

COMMAND_LINE = "--set"
_CHOICES = ("hardware", "model", "engine", "workload")
_RANK = {layer: rank for rank, layer in enumerate(LAYERS)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Overrides:
    """What `--set` asks for: other profiles, keys of the deployment, settings."""

    profiles: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, SettingValue] = field(default_factory=dict)


def resolve_deployment(
    library: ProfileLibrary,
    name: str,
    *,
    sets: Sequence[str] = (),
    runtime: RuntimeName | None = None,
) -> Deployment:
    """Return the deployment `name` with its profiles found and its layers resolved.

    `sets` are `key=value` words; `runtime` is what `--runtime` says, which chooses between
    the deployment's `engine` and `container_engine`. Tuned profiles are candidates only,
    see `apply_tuned`. Raises `UserError` for unknown names and words, `BadProfile`.
    """
    return resolve_written(library, library.find(DeploymentProfile, name), sets, runtime=runtime)


def resolve_written(
    library: ProfileLibrary,
    written: DeploymentProfile,
    sets: Sequence[str] = (),
    *,
    runtime: RuntimeName | None = None,
) -> Deployment:
    """Return `written` resolved; its model may be a file or a repository, see `model_of`."""
    overrides = parse_sets(sets)
    keys = {**_own_keys(written), **overrides.keys}
    if runtime:
        keys["runtime"] = runtime
    named = _named_profiles(written, overrides, keys["runtime"])
    (hardware, says_hardware), (engine, says_engine) = named["hardware"], named["engine"]
    workload = named.get("workload")
    deployment = Deployment(
        name=written.name,
        place=written.place,
        hardware=library.find(HardwareProfile, hardware, where=says_hardware),
        engine=library.find(EngineProfile, engine, where=says_engine),
        model=_model(library, *named["model"]),
        workload=workload and library.find(WorkloadProfile, workload[0], where=workload[1]),
        pinned=frozenset(written.pinned),
        tuned_candidates=library.tuned_for(written.name),
        **keys,
    )
    _check_hosts(written, library)
    return replace(deployment, settings=_layered(deployment, written, overrides))


def apply_tuned(deployment: Deployment, *, fingerprint: str, build: str, digest: str) -> Deployment:
    """Return the deployment with the newest tuned profile that holds here, or as it was.

    A tuned profile holds when host fingerprint, engine build and model digest are those it
    was measured with. It yields to `pinned:` and `--set`.
    """
    here = (fingerprint, build, digest)
    for tuned in deployment.tuned_candidates:
        if (tuned.fingerprint, tuned.build, tuned.model_digest) == here:
            return with_tuned(deployment, tuned)
    return deployment


def with_tuned(deployment: Deployment, tuned: TunedProfile) -> Deployment:
    """Return the deployment with `tuned` laid over it, whether it matches or not."""
    below = {
        name: value
        for name, value in tuned.settings.items()
        if _RANK[deployment.settings[name].layer if name in deployment.settings else "default"]
        <= _RANK["tuned"]
    }
    return replace(deployment, settings=_sorted({**deployment.settings, **below}), tuned=tuned)


def parse_sets(sets: Iterable[str]) -> Overrides:
    """Read `key=value` words. Raises `UserError` that names the word."""
    profiles: dict[str, str] = {}
    keys: dict[str, Any] = {}
    settings: dict[str, SettingValue] = {}
    for index, word in enumerate(sets, start=1):
        key, equals, text = word.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise UserError(f"`{word}` is not `key=value`", where=COMMAND_LINE)
        if key in _CHOICES:
            profiles[key] = text
        elif key in SETTINGS:
            place = Place(file=COMMAND_LINE, line=index)
            value = _setting(key, text, word)
            settings[key] = SettingValue(value=value, layer="--set", place=place)
        else:
            keys[key] = _own_key(key, text, word)
    return Overrides(profiles=profiles, keys=keys, settings=settings)


def _setting(key: str, text: str, word: str) -> Any:  # noqa: ANN401 - a scalar of the table
    try:
        return parse_setting(key, text) if text else None
    except UserError as error:
        raise UserError(error.message, where=f"{COMMAND_LINE} {word}", fix=error.fix) from None


def _own_key(key: str, text: str, word: str) -> Any:  # noqa: ANN401 - as the key's type reads it
    known = {name: row.type for name, row in TABLES["deployment"].fields.items()}
    where = f"{COMMAND_LINE} {word}"
    type_ = known.get(key)
    if not isinstance(type_, ScalarField) or key not in _OWN:
        fix = near_hint(key, [*SETTINGS, *known], "`fleet schema deployment` lists the settings")
        raise UserError("unknown setting", where=where, fix=fix)
    try:
        return type_.read_text(text)
    except Mistake as mistake:
        raise UserError(mistake.message, where=where, fix=mistake.hint) from None


_OWN = {key.name for key in fields(Serving)} - {key.name for key in fields(Layered)}


def _own_keys(written: DeploymentProfile) -> dict[str, Any]:
    return {key: getattr(written, key) for key in _OWN}


def _named_profiles(
    written: DeploymentProfile, overrides: Overrides, runtime: RuntimeName | None
) -> dict[str, tuple[str, str]]:
    """Return for each kind the profile's name and the place that names it."""
    contained = runtime in ("podman", "ansible") or (runtime is None and written.hosts)
    engine_key = "container_engine" if contained and written.container_engine else "engine"
    keys = {"hardware": "hardware", "model": "model", "engine": engine_key, "workload": "workload"}
    named: dict[str, tuple[str, str]] = {}
    for kind, key in keys.items():
        name = overrides.profiles.get(kind)
        if name is not None:
            named[kind] = (name, f"{COMMAND_LINE} {kind}={name}")
        elif getattr(written, key):
            named[kind] = (getattr(written, key), f"{_line_of(written, key)}: {key}")
    return named


def _line_of(written: DeploymentProfile, key: str) -> Place:
    return Place(file=written.place.file, line=written.lines.get(key, written.place.line))


def _model(library: ProfileLibrary, name: str, where: str) -> ModelProfile:
    if is_model(name) and not library.has("model", name):
        return model_of(name)
    return library.find(ModelProfile, name, where=where)


def _check_hosts(written: DeploymentProfile, library: ProfileLibrary) -> None:
    for index, host in enumerate(written.hosts):
        if host.hardware:
            where = f"{_line_of(written, 'hosts')}: hosts[{index}].hardware"
            library.find(HardwareProfile, host.hardware, where=where)


def _layered(
    deployment: Deployment, written: DeploymentProfile, overrides: Overrides
) -> Mapping[str, SettingValue]:
    """Lay the layers over each other, later wins; all but the tuned one."""
    return _sorted(
        {
            **deployment.engine.settings,
            **deployment.hardware.settings,
            **deployment.model.settings,
            **(deployment.workload.settings if deployment.workload else {}),
            **written.settings,
            **written.pinned,
            **overrides.settings,
        }
    )


def _sorted(settings: Mapping[str, SettingValue]) -> Mapping[str, SettingValue]:
    return dict(sorted(settings.items()))
