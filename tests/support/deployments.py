"""Deployments for compiler tests, built from few words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet.compiler.compile_deployment import compile_deployment
from fleet.facts.host_facts import Gpu, HostFacts
from fleet.facts.known_builds import build_facts
from fleet.profiles.kinds import (
    Deployment,
    EngineProfile,
    HardwareProfile,
    HostTarget,
    ModelProfile,
    Place,
    SettingValue,
)
from fleet.sizes import GIB, ByteSize

if TYPE_CHECKING:
    from fleet.compiler.launch_config import LaunchConfig
    from fleet.facts.build_facts import BuildFacts

PLACE = Place(file="test.yaml", line=1)
HERE = HostFacts(
    name="local", cores=16, cpus=tuple(range(32)), first_cpu_of_core=tuple(range(16)), probed=True
)
WITH_CUDA = HostFacts(
    name="local", cores=16, cpus=tuple(range(16)), probed=True,
    gpus=(Gpu(name="RTX 3090", backend="cuda", memory=ByteSize(24 * GIB)),),
)  # fmt: skip
WITH_780M = HostFacts(
    name="local", cores=8, cpus=tuple(range(16)), probed=True,
    gpus=(Gpu(name="780M", backend="vulkan", memory=ByteSize(32 * GIB), unified=True),),
)  # fmt: skip

HOSTS = (
    HostTarget(name="a", address="a", fabric_address="10.0.0.1", fabric_interface="eth1"),
    HostTarget(name="b", address="b", fabric_address="10.0.0.2", fabric_interface="eth1"),
)


def deployment(
    settings: dict[str, Any] | None = None,
    *,
    engine: str = "llama.cpp",
    architecture: str | None = None,
    model: dict[str, Any] | None = None,
    hardware: dict[str, Any] | None = None,
    **keys: Any,
) -> Deployment:
    """Return a deployment with these settings; other keys go to the deployment itself."""
    given = {
        name: SettingValue(value=value, layer="deployment", place=PLACE)
        for name, value in (settings or {}).items()
    }
    image = None if engine == "embedded" else "localhost/engine:1"
    return Deployment(
        name="test",
        place=PLACE,
        hardware=HardwareProfile(name="test", place=PLACE, **(hardware or {})),
        model=ModelProfile(
            name="model", place=PLACE, architecture=architecture,
            **{"path": "/srv/model.gguf", **(model or {})},
        ),
        engine=EngineProfile(name=engine, place=PLACE, engine=engine, image=image),
        settings=given,
        **keys,
    )  # fmt: skip


def launches(
    settings: dict[str, Any] | None = None,
    *,
    build: str | BuildFacts | None = None,
    host: HostFacts = HERE,
    **keys: Any,
) -> tuple[LaunchConfig, ...]:
    """Compile such a deployment for one host and a build of its engine."""
    wanted = deployment(settings, **keys)
    facts = build_facts(wanted.engine.engine, build) if not hasattr(build, "flags") else build
    return compile_deployment(wanted, hosts={"local": host}, model=None, build=facts)


def launch(settings: dict[str, Any] | None = None, **keys: Any) -> LaunchConfig:
    """Return the only server of such a deployment."""
    (only,) = launches(settings, **keys)
    return only


def value_of(config: LaunchConfig, *names: str) -> str | None:
    """Return what stands after the first of `names` in the argument list."""
    for name in names:
        if name in config.argv:
            return config.argv[config.argv.index(name) + 1]
    return None
