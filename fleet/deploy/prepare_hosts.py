"""From a deployment on named hosts to launches: every host looked at once, then the compiler."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.compiler.compile_deployment import compile_deployment
from fleet.compiler.launch_config import Warn
from fleet.deploy.ansible_host import group_of
from fleet.deploy.host_container import restart_way
from fleet.deploy.host_files import host_files, wanted_draft, with_paths_of
from fleet.deploy.look_at_host import HostSight, look_at_host
from fleet.deploy.model_files import ModelOnDisk, ensure_model, find_model
from fleet.deploy.prepare import Prepared, engine_build
from fleet.deploy.ssh_hosts import target_of
from fleet.effects.ssh import on_each
from fleet.errors import FleetError, UserError
from fleet.facts.gguf_header import read_header
from fleet.facts.model_from_gguf import model_facts_from_gguf
from fleet.profiles.resolve_deployment import apply_tuned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.ansible_host import HostGroup
    from fleet.deploy.bring_up import Progress
    from fleet.deploy.host_files import HostFile
    from fleet.deploy.rim import Rim
    from fleet.effects.ssh import SshCommands
    from fleet.facts.build_facts import BuildFacts
    from fleet.facts.host_facts import HostFacts
    from fleet.facts.model_facts import ModelFacts
    from fleet.profiles.kinds import Deployment


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedHosts:
    """A deployment compiled for its hosts. `silent` are those that did not answer, and why.

    `model` is the copy on this machine, None when the hosts have their own or it is to be
    fetched yet; `facts` are the model's, from wherever it lies. `files` is every file that the
    launches name.
    """

    deployment: Deployment
    launches: tuple[LaunchConfig, ...]
    sights: Mapping[str, HostSight]
    silent: Mapping[str, FleetError]
    build: BuildFacts
    model: ModelOnDisk | None
    facts: ModelFacts | None
    files: tuple[HostFile, ...]

    @property
    def here(self) -> Mapping[str, Path]:
        """The first file here that each setting names."""
        named = [(file.setting, file.source) for file in reversed(self.files)]
        return {setting: source for setting, source in named if setting and source}

    @property
    def missing(self) -> Mapping[str, FleetError]:
        """The silent hosts that the deployment names; others it has left, maybe for good."""
        named = {host.name for host in self.deployment.hosts}
        return {host: error for host, error in self.silent.items() if host in named}


def prepare_hosts(
    deployment: Deployment, group: HostGroup, *, rim: Rim, progress: Progress, here_only: bool
) -> PreparedHosts:
    """Look at every host, find the model, compile. Raises `UserError`, `OutsideError`."""
    progress(f"looking at {len(group.targets)} host(s)")
    deployment = replace(deployment, runtime="ansible")
    here = _here(deployment, rim)
    draft = wanted_draft(deployment)
    if draft is not None and not here_only:
        ensure_model(draft, rim=rim, progress=progress)
    folder, files = host_files(deployment, here, rim)
    sights, silent = _look(group, folder, files)
    if not sights:
        raise next(iter(silent.values()))
    facts = here.facts if here else _facts_there(group, sights, files)
    lacking = facts is None or (here is None and _lack(deployment, sights, files))
    if lacking and not here_only and deployment.engine.engine != "vllm":
        here = ensure_model(deployment.model, rim=rim, progress=progress)
        facts = here.facts
        folder, files = host_files(deployment, here, rim)
        sights, silent = _look(group, folder, files)
    build = engine_build(deployment, rim)
    first = next(iter(sights.values()))
    if here is not None:
        deployment = apply_tuned(
            deployment, fingerprint=first.facts.fingerprint, build=build.name,
            digest=here.digest,
        )  # fmt: skip
    return PreparedHosts(
        deployment=deployment,
        launches=compile_for_hosts(deployment, sights, files, facts, build),
        sights=sights,
        silent=silent,
        build=build,
        model=here,
        facts=facts,
        files=files,
    )


def prepared_on_hosts(deployment: Deployment, *, rim: Rim, progress: Progress) -> Prepared:
    """Return what the profile says now for its hosts; fetches nothing, changes nothing."""
    group = group_of([target_of(host) for host in deployment.hosts], rim)
    made = prepare_hosts(deployment, group, rim=rim, progress=progress, here_only=True)
    return Prepared(
        deployment=made.deployment,
        runtime="ansible",
        launches=made.launches,
        host=next(iter(made.sights.values())).facts,
        build=made.build,
        model=made.model,
    )


def _here(deployment: Deployment, rim: Rim) -> ModelOnDisk | None:
    """Return the copy on this machine; a path that is not here may be one of the hosts'."""
    path = deployment.model.path
    if deployment.engine.engine == "vllm" or (path and not Path(path).expanduser().exists()):
        return None
    return find_model(deployment.model, rim)


def compile_for_hosts(
    deployment: Deployment,
    sights: Mapping[str, HostSight],
    files: tuple[HostFile, ...],
    facts: ModelFacts | None,
    build: BuildFacts,
) -> tuple[LaunchConfig, ...]:
    """Compile once for each set of paths that files have, and take each host's own launch."""
    hosts = {name: sight.facts for name, sight in sights.items()}
    named = [host.name for host in deployment.hosts if host.name in sights]
    paths = {
        name: (_path(deployment, sights[name], files), *(sights[name].at(f.place) for f in files))
        for name in named
    }
    compiled = {
        chosen: compile_deployment(
            with_paths_of(deployment, files, sights[name]), hosts=hosts, model=facts, build=build,
            model_path=chosen[0],
        )
        for name, chosen in paths.items()
    } or {(): compile_deployment(deployment, hosts=hosts, model=facts, build=build)}  # fmt: skip
    order = next(iter(compiled.values()))
    return tuple(
        _warned(compiled.get(paths.get(launch.host, ()), order)[index], hosts)
        for index, launch in enumerate(order)
    )


def _warned(launch: LaunchConfig, hosts: Mapping[str, HostFacts]) -> LaunchConfig:
    """Add what only the probed host tells: whether anything starts its servers at boot."""
    facts = hosts.get(launch.host)
    if facts is None or restart_way(facts) != "policy":
        return launch
    message = "no systemd: podman restarts the server, but nothing starts it after a reboot"
    return replace(launch, warnings=(*launch.warnings, Warn(code="no-systemd", message=message)))


def look_at_all(
    group: HostGroup, *, folder: str | None = None, files: Sequence[str] = ()
) -> tuple[dict[str, HostSight], dict[str, FleetError]]:
    """Return what each host of the group says of itself, and why others say nothing."""
    answers = on_each(
        group.targets,
        lambda host: look_at_host(group.commands(host), host, folder=folder, files=files),
        forks=group.forks,
    )
    silent = {host: answer for host, answer in answers.items() if isinstance(answer, FleetError)}
    for host, error in silent.items():
        error.where = error.where or host
    sights = {host: answer for host, answer in answers.items() if isinstance(answer, HostSight)}
    return sights, silent


def _look(
    group: HostGroup, folder: str, files: Sequence[HostFile]
) -> tuple[dict[str, HostSight], dict[str, FleetError]]:
    return look_at_all(group, folder=folder, files=[file.place for file in files])


def _path(deployment: Deployment, sight: HostSight, files: Sequence[HostFile]) -> str:
    """Return what the launch is told as its model."""
    if deployment.engine.engine == "vllm":
        return sight.folder
    main = next((file for file in files if file.setting is None), None)
    quant = deployment.model.quant
    guess = f"{deployment.model.name}{f'-{quant}' if quant else ''}.gguf"
    return sight.at(main.place) if main else f"{sight.folder}/{guess}"


def _facts_there(
    group: HostGroup, sights: Mapping[str, HostSight], files: Sequence[HostFile]
) -> ModelFacts | None:
    """Read the header on a host that has the whole model, where this machine has none."""
    for name, sight in sights.items():
        paths = [sight.at(file.place) for file in files if file.setting is None]
        if paths and all(path in sight.sizes for path in paths):
            commands = group.commands(name)
            headers = [
                read_header(_reader(commands, path), sight.sizes[path], name=f"{name}:{path}")
                for path in paths
            ]
            return model_facts_from_gguf(headers, files=paths)
    return None


def _lack(
    deployment: Deployment, sights: Mapping[str, HostSight], files: Sequence[HostFile]
) -> bool:
    """Whether a host that reads the model lacks some of it, and it can be fetched."""
    readers = deployment.hosts[:1] if deployment.topology == "rpc" else deployment.hosts
    places = [file.place for file in files if file.setting is None]
    return deployment.model.path is None and any(
        sights[host.name].at(place) not in sights[host.name].sizes
        for host in readers
        if host.name in sights
        for place in places
    )


def _reader(commands: SshCommands, path: str) -> Callable[[int, int], bytes]:
    def read(offset: int, size: int) -> bytes:
        return commands.read_range(path, offset, size)

    return read


def wanted_hosts(deployment: Deployment, only: tuple[str, ...]) -> Deployment:
    """Return the deployment on the hosts that `--hosts` names. Raises `UserError`."""
    if not only:
        return deployment
    known = {host.name: host for host in deployment.hosts}
    unknown = [name for name in only if name not in known]
    if unknown:
        fix = f"the deployment has: {', '.join(known) or 'none'}"
        raise UserError(f"no host `{unknown[0]}`", where="--hosts", fix=fix)
    if deployment.topology in {"rpc", "tensor-parallel"} and set(only) != set(known):
        message = "its hosts share one model and change together"
        raise UserError(message, where="--hosts", fix="leave `--hosts` out")
    return replace(deployment, hosts=tuple(known[name] for name in only))
