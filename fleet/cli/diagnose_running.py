"""The part of `fleet diagnose` that needs a running deployment or the profiles."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from fleet.cli.load import load_library
from fleet.deploy.await_ready import FIRST_TOKENS
from fleet.deploy.look import client_of, last_server
from fleet.deploy.model_files import find_model
from fleet.deploy.rim import Rim
from fleet.diagnose.bandwidth_wall import bandwidth_wall
from fleet.diagnose.diagnosis import judge
from fleet.diagnose.live import LiveScrape, add_live, read_metrics_page
from fleet.diagnose.own_requests import own_requests
from fleet.diagnose.read_log.reader import read_log
from fleet.diagnose.task_rules import TaskTally
from fleet.errors import FleetError, OutsideError, UserError
from fleet.facts.architecture_records import model_facts_from_record
from fleet.profiles.kinds import HardwareProfile, ModelProfile
from fleet.profiles.resolve_deployment import resolve_deployment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fleet.diagnose.diagnosis import Diagnosis
    from fleet.diagnose.read_log.log_reading import LogReading
    from fleet.observe.observation import RunningServer
    from fleet.observe.server_client import ServerClient

T = TypeVar("T")
_WINDOW = re.compile(r"^(\d+(?:\.\d+)?)\s*(s|m|h)?$")
UNITS = {"s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0}
BATCH = 5000


def diagnose_running(name: str, window: str) -> Diagnosis:
    """Diagnose a deployment by its log and what its server answers over `window`.

    What the server does not answer (it stopped in between) is a note, not an error.
    Raises `UserError` for an unknown name or window.
    """
    seconds = window_seconds(window)
    rim = Rim()
    host, server = last_server(name, rim)
    first = scrape(server, rim)
    second = None
    if seconds and _runs(server):
        rim.clock.sleep(seconds)
        second = scrape(server, rim)
    tally = TaskTally()
    own = own_requests(host.logs(server), first_tokens=FIRST_TOKENS, primed=_primed(name))
    reading = read_log(_chunks(host.logs(server), own.lines), tally.add)
    if own.count:
        reading.notes.append(f"{own.count} requests of fleet itself are left out")
    add_live(reading, first, second)
    return _with_own_limit(judge(reading, tally), name)


def _primed(name: str) -> bool:
    """Whether the deployment has a shared prefix, so that priming sends requests to it."""
    try:
        return resolve_deployment(load_library(), name).shared_prefix is not None
    except FleetError:
        return False


def _chunks(lines: Iterable[str], left_out: frozenset[int]) -> Iterator[bytes]:
    """Yield lines put together, empty for those left out: many at once are read faster."""
    some: list[str] = []
    for number, line in enumerate(lines, start=1):
        some.append("" if number in left_out else line.rstrip("\n"))
        if len(some) >= BATCH:
            yield ("\n".join(some) + "\n").encode(errors="replace")
            some = []
    yield "\n".join(some).encode(errors="replace")


def window_seconds(text: str) -> float:
    """Return the seconds of `30s`, `5m` or `1h`. Raises `UserError`."""
    found = _WINDOW.match(text.strip())
    if found is None:
        raise UserError(f"`{text}` is no length of time", where="--window", fix="as in `5m`")
    return float(found[1]) * UNITS[found[2]]


def scrape(server: RunningServer, rim: Rim) -> LiveScrape:
    """Ask the server what it knows; each question that fails is told apart."""
    if not _runs(server):
        return LiveScrape(missing=(f"the server is {server.state}: only its log was read",))
    client = client_of(server, rim)
    missing: list[str] = []
    page = _asked(lambda: _metrics_text(client), "metrics", missing)
    return LiveScrape(
        props=_asked(client.props, "props", missing) or {},
        slots=_asked(client.slots, "slots", missing) or (),
        metrics=read_metrics_page(page or ""),
        missing=tuple(missing),
    )


def _runs(server: RunningServer) -> bool:
    return server.url is not None and server.state in {"running", "starting"}


def _asked(ask: Callable[[], T], part: str, missing: list[str]) -> T | None:
    try:
        return ask()
    except OutsideError as error:
        missing.append(f"/{part}: {error.message}")
        return None


def _metrics_text(client: ServerClient) -> str:
    answer = client.http.get(f"{client.url}/metrics", headers=client.headers)
    if not answer.ok:
        raise OutsideError(f"HTTP {answer.status}", where=answer.url, fix="set `metrics: true`")
    return answer.text


def with_limit(found: Diagnosis, hardware: str | None, model: str | None) -> Diagnosis:
    """Add the bandwidth limit for named profiles. Raises `UserError` for unknown ones."""
    library = load_library()
    if hardware is None or model is None:
        fix = "give both --hardware and --model"
        raise UserError("the limit needs the machine and the model", where="--hardware", fix=fix)
    machine = library.find(HardwareProfile, hardware, where="--hardware")
    known = library.find(ModelProfile, model, where="--model")
    return _limited(found, machine, known)


def _with_own_limit(found: Diagnosis, name: str) -> Diagnosis:
    """Add the limit of the deployment's own machine and model where its profile says them."""
    try:
        deployment = resolve_deployment(load_library(), name)
        return _limited(found, deployment.hardware, deployment.model)
    except FleetError:
        return found


def _limited(found: Diagnosis, machine: HardwareProfile, model: ModelProfile) -> Diagnosis:
    rate = _rate(found.reading)
    bandwidth = next((gpu.bandwidth for gpu in machine.gpus if gpu.bandwidth), None)
    bandwidth = bandwidth or machine.memory_bandwidth
    active = _active_bytes(model)
    if not rate or not bandwidth or not active:
        return found
    return replace(found, wall=bandwidth_wall(rate, float(bandwidth) * machine.nodes, active))


def _active_bytes(model: ModelProfile) -> int | None:
    if model.architecture:
        facts = model_facts_from_record(model.architecture, model.quant)
        if facts.active_bytes_per_token:
            return facts.active_bytes_per_token
    disk = find_model(model, Rim())
    return disk.facts.active_bytes_per_token if disk is not None else None


def _rate(reading: LogReading) -> float | None:
    """Return generated tokens a second over all tasks of the log."""
    totals = reading.totals
    return totals["gen"] / totals["tg_ms"] * 1000 if totals.get("tg_ms") else None
