"""Probe several hosts at once, here or over SSH; measure what cannot be read."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from fleet.deploy.ansible_host import shared_session
from fleet.effects.files import write_atomically
from fleet.effects.machine import LOCAL
from fleet.effects.ssh import on_each
from fleet.errors import FleetError, UserError
from fleet.observe.probe_host import probe_host
from fleet.sizes import Bandwidth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.deploy.rim import Rim
    from fleet.effects.commands import Commands
    from fleet.effects.ssh import SshTarget
    from fleet.facts.host_facts import HostFacts

BANDWIDTH_TIMEOUT_S = 120.0
# copies 256 MiB of memory in each of N processes at once; the best of five passes counts.
# Into memory that is there: what a new page costs is no bandwidth
BANDWIDTH = """
import multiprocessing as m, sys, time
def read(start, out):
    block = memoryview(bytes(256 << 20)); into = memoryview(bytearray(block))
    start.wait()
    best = 0.0
    for _ in range(5):
        at = time.perf_counter(); into[:] = block; took = time.perf_counter() - at
        best = max(best, 2 * len(block) / took)
    out.put(best)
if __name__ == "__main__":
    n = int(sys.argv[1]); start, out = m.Barrier(n), m.Queue()
    jobs = [m.Process(target=read, args=(start, out)) for _ in range(n)]
    [j.start() for j in jobs]; print(sum(out.get() for _ in jobs)); [j.join() for j in jobs]
"""


def commands_of(name: str, target: SshTarget | None, rim: Rim) -> Commands:
    """Return the seam to this machine or to a host over SSH."""
    if target is None or name == LOCAL:
        return rim.commands
    return shared_session(rim.folders.state / "known_hosts").commands(target)


def probe_hosts(
    targets: Mapping[str, SshTarget | None], *, rim: Rim
) -> dict[str, HostFacts | FleetError]:
    """Return each host's facts, or the error of one that does not answer."""
    return on_each(targets, lambda name: probe_host(commands_of(name, targets[name], rim), name))


def measure_bandwidth(
    found: Mapping[str, HostFacts | FleetError],
    targets: Mapping[str, SshTarget | None],
    *,
    rim: Rim,
) -> dict[str, HostFacts | FleetError]:
    """Return the facts with the memory bandwidth that copying on all cores reaches.

    Read and written bytes are counted; a host without python3 keeps None.
    """

    def measured(name: str) -> HostFacts | FleetError:
        facts = found[name]
        if isinstance(facts, FleetError):
            return facts
        words = ("python3", "-c", BANDWIDTH, str(facts.cores))
        commands = commands_of(name, targets[name], rim)
        told = commands.run(words, timeout_s=BANDWIDTH_TIMEOUT_S)
        return replace(facts, memory_bandwidth=Bandwidth(float(told.stdout))) if told.ok else facts

    return on_each(found, measured)


def save_hardware(name: str, text: str, *, rim: Rim) -> str:
    """Write a hardware profile among the user's own; return its path. Raises `UserError`."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        fix = "use letters, digits, `.`, `_` and `-`"
        raise UserError(f"`{name}` is no name of a profile", where="--save", fix=fix)
    path = rim.folders.config / "profiles" / f"{name}.yaml"
    write_atomically(path, text)
    return str(path)
