"""What a running server takes beside what was planned for it: one check for each item."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fleet.compiler.memory.compare_with_reality import gaps, printed_memory
from fleet.compiler.memory.plan_memory import plan_memory
from fleet.deploy.check_fit import question_of, within
from fleet.deploy.find_hosts import local_host
from fleet.deploy.trial_server import Weighable
from fleet.effects.machine import LOCAL
from fleet.observe.checks import Check
from fleet.observe.read_model import read_model_file
from fleet.sizes import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.compiler.memory.compare_with_reality import Gap
    from fleet.deploy.prepare import Prepared
    from fleet.deploy.rim import Rim
    from fleet.observe.observation import RunningServer

_SMI = ("nvidia-smi", "--query-compute-apps=pid,process_name,used_gpu_memory",
        "--format=csv,noheader,nounits")  # fmt: skip
_COLUMNS = 3
_FIX = "plan with `fleet fit --gguf FILE --build N`; `fleet logs` shows what the engine took"


def memory_checks(
    server: RunningServer, launch: LaunchConfig, prepared: Prepared, rim: Rim, who: str
) -> Iterator[Check]:
    """Yield a check for every item that both the plan and the server tell; local servers only."""
    file = Path(launch.model_path or "")
    if launch.host != LOCAL or not file.is_file():
        return
    question = question_of(launch, read_model_file(file), within(launch, prepared.host))
    if question is None:
        return
    host = local_host("podman" if server.container else "embedded", rim)
    actual = printed_memory(host.logs(server))
    if isinstance(host, Weighable) and (resident := host.memory_bytes(server)):
        actual["total host"] = resident / MIB
    if question.devices and (taken := _on_gpus(server, rim)):
        actual["total GPU"] = taken
    for gap in gaps(plan_memory(question), actual):
        yield Check(
            name=f"{who}: memory, {gap.item}", ok=not gap.finding, message=_said(gap), fix=_FIX
        )


def _said(gap: Gap) -> str:
    planned, most = f"{gap.planned:.2f}", max(gap.most or 0, gap.planned)
    if most > gap.planned:
        planned = f"between {planned} and {most:.2f}"
        if gap.planned <= gap.actual <= most:
            return f"{gap.actual:.2f} MiB, as planned: {planned}"
    return f"{gap.actual:.2f} MiB, planned {planned} ({gap.share:.1%} apart)"


def _on_gpus(server: RunningServer, rim: Rim) -> float:
    """Return what the driver counts for the server, MiB; in a container by the program's name."""
    done = rim.commands.run(_SMI, timeout_s=10)
    rows = [line.split(", ") for line in done.stdout.splitlines()] if done.ok else []
    mine = [row for row in rows if len(row) == _COLUMNS and _is(row, server)]
    return sum(float(row[2]) for row in mine if row[2].strip().isdigit())


def _is(row: list[str], server: RunningServer) -> bool:
    return row[0] == str(server.pid) if server.pid else row[1].endswith("llama-server")
