"""Whether each host can hold what is planned for it, alone or beside what serves there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleet.compiler.memory.fit import host_capacity
from fleet.deploy.check_fit import refuse_too_large, verdict_of
from fleet.deploy.rollout import both_fit
from fleet.facts.host_facts import Gpu
from fleet.sizes import ByteSize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.facts.host_facts import HostFacts
    from fleet.facts.model_facts import ModelFacts

FILES = frozenset({"draft_model", "mmproj"})


def check_fit_on_hosts(
    launches: Sequence[LaunchConfig],
    model: ModelFacts,
    hosts: Mapping[str, HostFacts],
    here: Mapping[str, Path] | None = None,
) -> None:
    """Raise `DoesNotFit`, naming the host, for the first launch that its host cannot hold.

    The head of a model over several hosts has the memory of its workers too. `here` are this
    machine's copies of a draft and a projector, by setting: their sizes count.
    """
    where = {launch.server: launch.host for launch in launches}
    for launch in launches:
        workers = [hosts[where[server]] for server in launch.depends_on]
        asked = _with_files(launch, here or {})
        refuse_too_large(asked, model, seen_by_head(hosts[launch.host], workers))


def _with_files(launch: LaunchConfig, here: Mapping[str, Path]) -> LaunchConfig:
    """Name files as they lie here; what lies on the host alone is left out, its size unknown."""
    return replace(
        launch,
        settings=tuple(
            (name, str(here[name]) if name in FILES else value)
            for name, value in launch.settings
            if name not in FILES or name in here
        ),
    )


def seen_by_head(head: HostFacts, workers: Sequence[HostFacts]) -> HostFacts:
    """Return the head with the devices of its workers behind its own, as RPC shows them."""
    return replace(head, gpus=(*head.gpus, *(gpu for each in workers for gpu in _lent(each))))


def _lent(worker: HostFacts) -> Iterator[Gpu]:
    """Yield the devices that a worker offers: its accelerators, else its CPU with its memory."""
    memory = host_capacity(worker)
    for gpu in worker.gpus:
        size = min(int(gpu.memory), memory) if gpu.unified and memory else int(gpu.memory)
        yield replace(gpu, unified=False, memory=ByteSize(size))
    if not worker.gpus and memory:
        yield Gpu(name=worker.name, backend="vulkan", memory=ByteSize(memory))


def fits_beside(
    new: LaunchConfig, old: LaunchConfig, *, model: ModelFacts, host: HostFacts
) -> bool:
    """Whether `new` may start while `old` serves on `host`; False where that is not known."""
    files = FILES & {name for name, value in new.settings if value}
    alone = new.role == "server" and not new.depends_on and "--port" in new.argv and not files
    same = new.model_path == old.model_path and new.secrets == old.secrets
    wanted = verdict_of(new, model, host) if alone and same else None
    serving = verdict_of(_with_files(old, {}), model, host) if wanted else None
    return wanted is not None and serving is not None and both_fit(wanted, serving, host)
