"""`fleet bench --suite load`, and the same measurement on a server that runs already."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fleet import __version__
from fleet.bench.conversation_suite import machine_record
from fleet.bench.load_summary import Answered, LoadSummary, summarise_load
from fleet.bench.run_load import run_load
from fleet.errors import OutsideError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.bench.load_plan import Load
    from fleet.bench.results_folder import ResultsFolder
    from fleet.bench.run_conversations import StartServer
    from fleet.effects.clock import Clock
    from fleet.facts.host_facts import HostFacts
    from fleet.observe.server_client import ServerClient
    from fleet.profiles.kinds import Deployment, WorkloadProfile

FILE = "requests.jsonl"


def measure_load(
    client: ServerClient, workload: WorkloadProfile, load: Load, *, clock: Clock
) -> LoadSummary:
    """Put `load` on a running server and return its figures; nothing is written.

    Raises `OutsideError` when every request failed, `UserError` when none can fit.
    """
    summary = summarise_load(asked := run_load(client, workload, load, clock=clock))
    if summary.failed == summary.requests:
        raise OutsideError(f"every request failed, the first: {asked[0].error}", where=client.url)
    return summary


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadRun:
    """What a load run measures."""

    deployment: Deployment
    workload: WorkloadProfile
    load: Load


def bench_load(
    wanted: LoadRun,
    *,
    folder: ResultsFolder,
    start: StartServer,
    clock: Clock,
    machine: HostFacts,
    tell: Callable[[str], None],
) -> LoadSummary:
    """Measure a fresh server of the deployment and keep each request as a line.

    A load run is one whole: a folder that holds one cannot be gone on with (`UserError`).
    """
    with folder.locked():
        folder.refuse_used("load")
        folder.write_run(_record(wanted, machine, clock))
        tell("starting the server")
        with start(wanted.deployment, overrides={}) as server:
            done = 0

            def keep(asked: Answered) -> None:
                nonlocal done
                done += 1
                folder.add_line(FILE, asdict(asked))
                tell(f"load: {done} of {wanted.load.requests} requests answered")

            run_load(server.client, wanted.workload, wanted.load, clock=clock, on_done=keep)
            settings = dict(server.launch.settings)
            folder.write_server("load", {"settings": settings, "argv": server.launch.argv})
        return read_load(folder)


def read_load(folder: ResultsFolder) -> LoadSummary:
    """Return the figures of a load folder. Raises `UserError` when it holds no request."""
    asked = read_requests(folder)
    if not asked:
        raise UserError("no request was answered", where=str(folder.path))
    return summarise_load(asked)


def read_requests(folder: ResultsFolder) -> tuple[Answered, ...]:
    """Return the requests of a load folder in the order of their numbers."""
    lines = (Answered(**{**line, "gaps_ms": tuple(line["gaps_ms"])}) for line in folder.lines(FILE))
    return tuple(sorted(lines, key=lambda asked: asked.number))


def _record(wanted: LoadRun, machine: HostFacts, clock: Clock) -> dict[str, Any]:
    workload, load = wanted.workload, wanted.load
    return {
        "suite": "load",
        "fleet": __version__,
        "started": clock.now().isoformat(timespec="seconds"),
        "deployment": wanted.deployment.name,
        "workload": {
            "name": workload.name,
            "prompt_tokens": workload.prompt_tokens,
            "shared_prefix_tokens": workload.shared_prefix_tokens,
            "generated_tokens": workload.generated_tokens,
        },
        "requests": load.requests,
        "users": None if load.rate else load.users or workload.users,
        "rate": load.rate,
        "seed": load.seed,
        "machine": machine_record(machine),
    }
