"""Which servers a deployment is made of, and on which hosts they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.errors import UserError

if TYPE_CHECKING:
    from fleet.compiler.launch_config import Role
    from fleet.profiles.kinds import Deployment, HostTarget

LOCAL = "local"
SHARED_MODEL = frozenset({"rpc", "tensor-parallel"})  # topologies of one model over hosts
RPC_PORT = 50052
_PAIR = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """One server of a deployment. `rank` counts the hosts that share a model, from 0."""

    server: str
    host: str
    role: Role = "server"
    rank: int = 0
    target: HostTarget | None = None
    workers: tuple[HostTarget, ...] = ()  # that a head reaches over RPC
    after: tuple[str, ...] = ()  # servers that must be up before


def place_servers(deployment: Deployment) -> tuple[Placed, ...]:
    """Return the servers in the order in which they start. Raises `UserError`."""
    return _BY_TOPOLOGY[deployment.topology](deployment)


def _single(deployment: Deployment) -> tuple[Placed, ...]:
    if len(deployment.hosts) > 1:
        fix = "write `topology: replicas` for one server a host"
        raise UserError("a single server cannot run on several hosts", where="hosts", fix=fix)
    return _replicas(deployment)


def _replicas(deployment: Deployment) -> tuple[Placed, ...]:
    if not deployment.hosts:
        return (Placed(server="server", host=LOCAL),)
    return tuple(Placed(server="server", host=host.name, target=host) for host in deployment.hosts)


def _rpc(deployment: Deployment) -> tuple[Placed, ...]:
    """Workers first, on the fabric; then the head, which runs on the first host."""
    head, workers = _shared(deployment)
    if deployment.engine.engine != "llama.cpp":
        fix = "use llama.cpp, or `topology: tensor-parallel` for vllm"
        raise UserError(f"{deployment.engine.engine} has no RPC", where="topology", fix=fix)
    for worker in workers:
        _need_fabric(worker)
    placed = _placed_workers(workers, "rpc-worker")
    after = tuple(worker.server for worker in placed)
    last = Placed(server="head", host=head.name, target=head, workers=workers, after=after)
    return (*placed, last)


def _tensor_parallel(deployment: Deployment) -> tuple[Placed, ...]:
    """Head and workers start together: each waits for the others."""
    head, workers = _shared(deployment)
    if deployment.engine.engine != "vllm":
        fix = "use vllm, or `topology: rpc` for llama.cpp"
        message = f"{deployment.engine.engine} cannot share a layer over hosts"
        raise UserError(message, where="topology", fix=fix)
    for host in deployment.hosts:
        _need_fabric(host)
    first = Placed(server="head", host=head.name, target=head)
    return (*_placed_workers(workers, "tp-worker"), first)


def _shared(deployment: Deployment) -> tuple[HostTarget, tuple[HostTarget, ...]]:
    if len(deployment.hosts) < _PAIR:
        fix = "name two or more `hosts`, or write `topology: single`"
        raise UserError("a model over hosts needs several", where="hosts", fix=fix)
    return deployment.hosts[0], deployment.hosts[1:]


def _placed_workers(workers: tuple[HostTarget, ...], role: Role) -> tuple[Placed, ...]:
    return tuple(
        Placed(
            server="worker" if len(workers) == 1 else f"worker-{rank}",
            host=worker.name,
            role=role,
            rank=rank,
            target=worker,
        )
        for rank, worker in enumerate(workers, start=1)
    )


def _need_fabric(host: HostTarget) -> None:
    if not host.fabric_address:
        fix = "give its `fabric_address`: what runs there has neither password nor encryption"
        raise UserError("the host has no fabric address", where=f"hosts.{host.name}", fix=fix)
    if host.fabric_address in {"0.0.0.0", "::", "*"}:  # noqa: S104 - refused here
        message = "a fabric address that means every network is refused"
        raise UserError(message, where=f"hosts.{host.name}", fix="name one address")


_BY_TOPOLOGY = {
    "single": _single,
    "replicas": _replicas,
    "rpc": _rpc,
    "tensor-parallel": _tensor_parallel,
}
