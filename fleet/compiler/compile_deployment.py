"""From a resolved deployment and facts to the launch of every server; pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleet.compiler.check_settings import check_deployment, check_settings
from fleet.compiler.complete_settings import complete_settings
from fleet.compiler.cpu_placement import CpuPlacement, place_cpus
from fleet.compiler.devices import container_devices, rpc_devices, rpc_program, rpc_warnings
from fleet.compiler.dialects import embedded, ik_llama_cpp, llama_cpp, vllm
from fleet.compiler.dialects.spelling import Nodes, Settings, Spelled, Wish
from fleet.compiler.host_from_hardware import host_from_hardware
from fleet.compiler.launch_config import Health, LaunchConfig, Mount, Network, SecretFile, Warn
from fleet.compiler.model_files import (
    DRAFT_TARGET,
    MODELS_TARGET,
    WRITTEN,
    Seen,
    draft_path_on_host,
    model_path_on_host,
    seen_from,
)
from fleet.compiler.pair_advice import pair_advice
from fleet.compiler.placement import RPC_PORT, SHARED_MODEL, Placed, place_servers
from fleet.facts.architecture_records import model_facts_from_record, with_quant
from fleet.profiles.settings_table import SETTINGS
from fleet.sizes import GIB, ByteSize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.facts.build_facts import BuildFacts, Engine
    from fleet.facts.host_facts import HostFacts
    from fleet.facts.model_facts import ModelFacts
    from fleet.profiles.kinds import Deployment, RuntimeName

MODELS_DIR = "~/.cache/fleet/models"  # where nobody says better
KEY_TARGET = "/run/secrets/fleet-api-key"
VLLM_KEY = "VLLM_API_KEY"
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - inside a container's own network only
_TLS_TARGETS = ("/run/tls/cert.pem", "/run/tls/key.pem")
_VLLM_SHM = ByteSize(16 * GIB)
_SLOWEST_DISK = 200e6  # bytes a second that a start may count on
_LEAST_START_S = 120.0
_LEAST_VLLM_START_S = 900.0
_LOCKING = ("mlock", "mmap+mlock")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    """One server and all that is known about it."""

    deployment: Deployment
    placed: Placed
    host: HostFacts
    model: ModelFacts | None
    build: BuildFacts
    models_dir: str
    model_path: str
    workers: tuple[HostFacts, ...]  # of the head of an RPC pair

    @property
    def contained(self) -> bool:
        return runtime_of(self.deployment) != "embedded"

    @property
    def network(self) -> Network:
        chosen = self.deployment.settings.get("network")
        if chosen is not None and chosen.value is not None:
            return "host" if chosen.value == "host" else "bridge"
        return "host" if self.deployment.topology in SHARED_MODEL else "bridge"

    @property
    def listen(self) -> str:
        """The address that the server itself is given."""
        inside = self.contained and self.network == "bridge"
        return ANY_ADDRESS if inside else self.deployment.bind


def compile_deployment(
    deployment: Deployment,
    *,
    hosts: Mapping[str, HostFacts],
    model: ModelFacts | None,
    build: BuildFacts,
    models_dir: str | None = None,
    model_path: str | None = None,
) -> tuple[LaunchConfig, ...]:
    """Return one launch for each server, in the order in which they start.

    `hosts` are the probed facts by name (`local` for this machine); the hardware profile
    stands in for what is missing, the architecture record for a missing `model`.
    `model_path` is the first file on the host where it is known better than from
    `models_dir`. Raises `UserError`, `CannotExpress`.
    """
    check_deployment(deployment)
    facts = model or recorded_model(deployment)
    folder = deployment.models_dir or models_dir or MODELS_DIR
    whole = deployment.engine.engine == "vllm"
    path = model_path or model_path_on_host(deployment.model, folder, whole_folder=whole)
    if deployment.models_dir and not path.startswith(("/", "~")):
        path = f"{deployment.models_dir}/{path}"

    def facts_of(host: str) -> HostFacts:
        return hosts.get(host) or host_from_hardware(deployment.hardware, host)

    return tuple(
        _compile_one(
            _Case(
                deployment=deployment,
                placed=placed,
                host=facts_of(placed.host),
                model=facts,
                build=build,
                models_dir=folder,
                model_path=path,
                workers=tuple(facts_of(worker.name) for worker in placed.workers),
            )
        )
        for placed in place_servers(deployment)
    )


def runtime_of(deployment: Deployment) -> RuntimeName:
    """Return the runtime named, else ansible for named hosts, embedded or podman by engine."""
    if deployment.runtime:
        return deployment.runtime
    if deployment.hosts:
        return "ansible"
    return "embedded" if deployment.engine.engine == "embedded" else "podman"


def image_of(deployment: Deployment) -> str | None:
    """Return the engine's image, or the name of the one that its Containerfile makes."""
    engine = deployment.engine
    if engine.image or not engine.containerfile:
        return engine.image
    return f"localhost/fleet/{engine.name}:{engine.build or 'latest'}"


def recorded_model(deployment: Deployment) -> ModelFacts | None:
    """Return the shipped record of the model's architecture, with weights where known."""
    if not deployment.model.architecture:
        return None
    facts = model_facts_from_record(deployment.model.architecture)
    quant = (deployment.model.quant or "").casefold()
    return with_quant(facts, quant) if quant in {q.casefold() for q in facts.quants} else facts


def _compile_one(case: _Case) -> LaunchConfig:
    trained = case.model.n_ctx_train if case.model else case.deployment.model.context_train
    draft = draft_path_on_host(case.deployment, case.models_dir)
    settings = complete_settings(
        case.deployment, build=case.build, model=case.model, host=case.host, trained=trained,
        draft=draft,
    )  # fmt: skip
    warnings = list(
        check_settings(
            settings, build=case.build, model=case.model, host=case.host, trained=trained,
            memory_limit=case.deployment.memory_limit,
            allow_dangerous=case.deployment.allow_dangerous,
        )
    )  # fmt: skip
    if case.workers:
        settings |= rpc_devices(settings, case.host, case.model, case.workers)
        warnings += rpc_warnings(settings, case.model)
    if not case.host.probed and case.deployment.hardware.cores is None:
        message = f"`{case.deployment.hardware.name}` names no cores; probe the host"
        warnings.append(Warn(code="host-unknown", message=message))
    cpus = place_cpus(
        settings, case.host, reserved_cores=case.deployment.hardware.reserved_cores,
        full_offload=_full_offload(settings, case.host),
    )  # fmt: skip
    if case.build.engine != "vllm":
        settings["threads"], settings["threads_batch"] = cpus.threads, cpus.threads_batch
    launch = _launch(case, settings, cpus)
    if case.placed.role == "server":
        warnings += pair_advice(case.deployment, case.model, case.host)
    return replace(launch, warnings=(*launch.warnings, *warnings, *cpus.warnings))


def _full_offload(settings: Settings, host: HostFacts) -> bool:
    partly = ("cpu_moe", "cpu_moe_layers", "override_tensor", "cpu_ffn_layers")
    everything = settings.get("gpu_layers") == "all" and not any(settings.get(n) for n in partly)
    return bool(host.gpus) and everything


def _launch(case: _Case, settings: Settings, cpus: CpuPlacement) -> LaunchConfig:
    if case.placed.role == "rpc-worker":
        return _rpc_worker(case, settings, cpus)
    model = seen_from(
        case.model_path, MODELS_TARGET, contained=case.contained,
        whole_folder=case.deployment.engine.engine == "vllm",
    )  # fmt: skip
    inside, mounts = _files_inside(settings, contained=case.contained)
    wish = _wish(case, inside, model)
    spelled = _SPELL[case.build.engine](wish)
    launch = _config(case, settings, cpus, spelled, (*model.mounts, *mounts))
    if case.build.engine == "embedded":
        return replace(launch, attributes=embedded.attributes(wish))
    return launch


_SPELL = {
    "llama.cpp": llama_cpp.spell,
    "embedded": llama_cpp.spell,
    "ik_llama.cpp": ik_llama_cpp.spell,
    "vllm": vllm.spell,
}


def _wish(case: _Case, settings: Settings, model: Seen) -> Wish:
    deployment, target, gpus = case.deployment, case.placed.target, case.host.gpus
    nodes = Nodes()
    if case.build.engine == "vllm":
        settings = {"alias": deployment.model.name, **settings}
    if deployment.topology == "tensor-parallel":
        own = settings.get("tensor_parallel", len(deployment.hosts))
        settings = {**settings, "tensor_parallel": own}
        nodes = Nodes(
            count=len(deployment.hosts),
            rank=case.placed.rank,
            master=deployment.hosts[0].fabric_address,
            interface=target.fabric_interface if target else None,
            devices=case.host.rdma_devices,
        )
    return Wish(
        settings=settings,
        build=case.build,
        model_path=model.path,
        listen=case.listen,
        port=deployment.port,
        api_key_file=KEY_TARGET if deployment.api_key else None,
        tls_files=_tls_files(case),
        rpc_servers=tuple(f"{it.fabric_address}:{RPC_PORT}" for it in case.placed.workers),
        nodes=nodes,
        unified_gpu=any(gpu.unified for gpu in gpus),
        extra_args=deployment.extra_args,
    )


def _tls_files(case: _Case) -> tuple[str, str] | None:
    tls = case.deployment.tls
    if tls is None:
        return None
    return _TLS_TARGETS if case.contained else (tls.cert_file, tls.key_file)


def _files_inside(settings: Settings, *, contained: bool) -> tuple[Settings, tuple[Mount, ...]]:
    """Return the settings with files as the container sees them, and their mounts."""
    if not contained:
        return settings, ()
    inside, mounts = dict(settings), []
    for name, value in settings.items():
        if SETTINGS[name].kind != "path":
            continue
        seen = []
        for number, path in enumerate(str(value).split(",")):
            base = DRAFT_TARGET if name == "draft_model" else f"/files/{name}"
            apart = f"/{number}" if number else ""
            target = f"{base}{apart}/{path.rpartition('/')[2]}"
            mounts.append(Mount(source=path, target=target, read_only=name not in WRITTEN))
            seen.append(target)
        inside[name] = ",".join(seen)
    return inside, tuple(mounts)


def _config(
    case: _Case,
    settings: Settings,
    cpus: CpuPlacement,
    spelled: Spelled,
    mounts: tuple[Mount, ...],
) -> LaunchConfig:
    """Put the server's words and what surrounds them together."""
    deployment, contained = case.deployment, case.contained
    shared = deployment.topology in SHARED_MODEL
    devices = container_devices(case.host, settings, fabric=shared and _has_fabric(case))
    engine = case.build.engine
    return LaunchConfig(
        deployment=deployment.name,
        server=case.placed.server,
        host=case.placed.host,
        role=case.placed.role,
        engine=engine,
        build=case.build.number or case.build.version or case.build.date,
        program=deployment.engine.program
        or (vllm.PROGRAM if engine == "vllm" else llama_cpp.PROGRAM),
        argv=tuple(spelled.argv),
        env=tuple(sorted(spelled.env.items())),
        settings=tuple(sorted(settings.items())),
        image=image_of(deployment) if contained else None,
        mounts=(*mounts, *_tls_mounts(case)) if contained else (),
        devices=devices if contained else (),
        bind=deployment.bind,
        port=deployment.port,
        network=case.network,
        caps=cpus.caps if contained else (),
        cpuset=cpus.cpuset,
        cpuset_mems=cpus.mems,
        memory_limit=deployment.memory_limit,
        shm_size=_shm_size(settings, engine) if contained else None,
        memlock_unlimited=contained
        and (settings.get("load_mode") in _LOCKING or "/dev/infiniband" in devices),
        secrets=_secrets(case),
        health=Health(start_period_s=start_period_s(case.model, engine)),
        depends_on=case.placed.after,
        model_path=case.model_path,
        warnings=(*spelled.warnings, *_image_warnings(case)),
    )


def _has_fabric(case: _Case) -> bool:
    if case.host.probed:
        return bool(case.host.rdma_devices)
    return bool(case.deployment.hardware.fabric)


def _tls_mounts(case: _Case) -> tuple[Mount, ...]:
    tls = case.deployment.tls
    if tls is None:
        return ()
    pairs = zip((tls.cert_file, tls.key_file), _TLS_TARGETS, strict=True)
    return tuple(Mount(source=source, target=target) for source, target in pairs)


def _shm_size(settings: Settings, engine: str) -> ByteSize | None:
    if "shm_size" in settings:
        return ByteSize.from_mib(float(settings["shm_size"]))
    return _VLLM_SHM if engine == "vllm" else None


def _secrets(case: _Case) -> tuple[SecretFile, ...]:
    if not case.deployment.api_key or case.placed.rank:
        return ()
    name = f"fleet-{case.deployment.name}-api-key"
    if case.build.engine == "vllm":
        return (SecretFile(name=name, target=VLLM_KEY, kind="env"),)
    return (SecretFile(name=name, target=KEY_TARGET),)


def start_period_s(model: ModelFacts | None, engine: Engine) -> float:
    """Return how long a start may take: all weights read from the slowest disk.

    A byte a parameter where their size is not known; vLLM also compiles its kernels.
    """
    size = (model.weights_bytes or model.params or 0) if model else 0
    least = _LEAST_VLLM_START_S if engine == "vllm" else _LEAST_START_S
    return round(least + size / _SLOWEST_DISK)


def _image_warnings(case: _Case) -> tuple[Warn, ...]:
    image = image_of(case.deployment) or ""
    if case.deployment.topology == "rpc" and image.startswith("ghcr.io/ggml-org/llama.cpp"):
        message = "the official images are built without RPC; build one from source"
        return (Warn(code="image-without-rpc", message=message),)
    return ()


def _rpc_worker(case: _Case, settings: Settings, cpus: CpuPlacement) -> LaunchConfig:
    target = case.placed.target
    address = target.fabric_address if target and target.fabric_address else ""
    # on the fabric address alone
    words = ["--host", address, "--port", str(RPC_PORT), "-t", str(cpus.threads)]
    spelled = Spelled(argv=words)
    message = f"{address}:{RPC_PORT} has neither password nor encryption: keep its network apart"
    spelled.warn("rpc-open", message)
    only: Settings = {name: settings[name] for name in ("threads", "cpuset") if name in settings}
    launch = _config(case, only, cpus, spelled, ())
    return replace(
        launch,
        program=rpc_program(case.build),
        bind=address,
        port=RPC_PORT,
        network="host",
        secrets=(),
        health=Health(path=""),
        model_path=None,
    )
