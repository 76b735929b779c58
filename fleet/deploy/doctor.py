"""What this machine is missing for fleet, and the command that mends it."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from fleet.effects.files import write_atomically
from fleet.effects.installed import embedded_build
from fleet.effects.machine import LOCAL, disk_free
from fleet.effects.podman_causes import explain
from fleet.errors import FleetError, OutsideError
from fleet.observe.checks import Check
from fleet.observe.probe_host import probe_host
from fleet.sizes import GIB, ByteSize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from fleet.deploy.rim import Rim
    from fleet.effects.commands import Commands
    from fleet.facts.host_facts import HostFacts

LEAST_PYTHON = (3, 11)
LEAST_DISK = 2 * GIB
QUADLET_SINCE = (4, 4)
PODMAN_PACKAGES = ("podman", "crun", "netavark", "aardvark-dns", "uidmap")
TRIAL_IMAGE_TIMEOUT_S = 60.0


def examine(rim: Rim) -> tuple[Check, ...]:
    """Return the checks of this machine; a missing podman is no fault when embedded works."""
    host = probe_host(rim.commands, LOCAL)
    embedded = _embedded()
    podman = tuple(_podman(host, rim.commands))
    if embedded.ok and host.podman is None:
        # one runtime is enough
        podman = tuple(replace(check, ok=True) for check in podman)
    checks = (_python(), embedded, *podman, *_folders(rim), *_hardware(host))
    return tuple(replace(check, host=LOCAL) for check in checks)


def examine_host(commands: Commands, name: str) -> tuple[Check, ...]:
    """Return the checks of another host, which needs podman. Raises `OutsideError`."""
    host = probe_host(commands, name)
    checks = (*_podman(host, commands), *_hardware(host))
    return tuple(replace(check, host=name) for check in checks)


def mend(commands: Sequence[tuple[str, ...]], rim: Rim) -> None:
    """Run `commands` one after another. Raises `OutsideError` at the first that fails."""
    for words in commands:
        rim.commands.run(words).checked(fix="run it by hand, most need root")


def _good(name: str, message: str) -> Check:
    return Check(name=name, ok=True, message=message)


def _bad(name: str, message: str, fix: str | None = None) -> Check:
    return Check(name=name, ok=False, message=message, fix=fix)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    ok = sys.version_info[:2] >= LEAST_PYTHON
    fix = None if ok else "install Python 3.11 or newer"
    return Check(name="python", ok=ok, message=version, fix=fix)


def _embedded() -> Check:
    build = embedded_build()
    if build is None:
        return _bad("embedded engine", "not installed", "`pip install 'fleet[demo]'`")
    return _good("embedded engine", f"b{build}")


def _podman(host: HostFacts, commands: Commands) -> Iterator[Check]:
    """Look for podman, let it say what it thinks of itself, and look for its parts."""
    if host.podman is None:
        words = ("apt-get", "install", "-y", "--no-install-recommends", *PODMAN_PACKAGES)
        yield Check(
            name="podman", ok=False, message="not installed", fix=f"`{' '.join(words)}`",
            command=words,
        )  # fmt: skip
        return
    said = commands.run(("podman", "info", "--format", "{{.Host.OCIRuntime.Name}}"), timeout_s=60)
    if not said.ok:
        error = explain(said.stderr)
        yield _bad("podman", error.message, error.fix)
        return
    yield _good("podman", f"{host.podman}, runs with {said.stdout.strip()}")
    yield from _can_start(commands)
    version = tuple(int(part) for part in host.podman.split(".")[:2])
    if version < QUADLET_SINCE:
        yield _good("quadlet", f"podman {host.podman} has none (4.4 and newer do)")
    if not host.systemd:
        message = "no systemd: nothing restarts containers after a reboot, no health timers"
        yield _good("systemd", message)


def _can_start(commands: Commands) -> Iterator[Check]:
    """Start a small container of an image that is here: shows limits, cgroups and network."""
    listed = commands.run(("podman", "images", "--quiet", "--no-trunc"), timeout_s=30)
    if not listed.stdout.split():
        return
    image = listed.stdout.split()[0].removeprefix("sha256:")
    words = ("podman", "run", "--rm", "--entrypoint", "true", image)
    done = commands.run(words, timeout_s=TRIAL_IMAGE_TIMEOUT_S)
    if done.ok:
        yield _good("containers", "a container starts")
    else:
        error = explain(done.stderr)
        yield _bad("containers", error.message, error.fix)


def _folders(rim: Rim) -> Iterator[Check]:
    folders = (rim.folders.config, rim.folders.state, rim.folders.cache)
    for folder in folders:
        yield _writable(folder)
    free = disk_free(rim.folders.cache)
    message = f"{ByteSize(free)} free for models"
    fix = "`fleet prune --models`, or set XDG_CACHE_HOME to a larger disk"
    yield _good("disk", message) if free >= LEAST_DISK else _bad("disk", message, fix)


def _writable(folder: Path) -> Check:
    probe = folder / ".doctor"
    try:
        write_atomically(probe, "")
        probe.unlink()
    except (FleetError, OSError) as error:
        fix = error.fix if isinstance(error, OutsideError) else "check its owner and mode"
        return _bad(f"folder {folder}", str(error), fix)
    return _good(f"folder {folder}", "can be written")


def _hardware(host: HostFacts) -> Iterator[Check]:
    memory = host.memory_limit or host.memory_total
    yield _good("cpu", f"{host.cores} cores, {host.cpu_model or 'model not told'}")
    yield _good("memory", str(memory) if memory else "not told")
    for gpu in host.gpus:
        yield _good(f"gpu {gpu.name}", f"{gpu.memory}, driver {gpu.driver or 'not told'}")
    if host.numa_balancing and len(host.numa_nodes) > 1:
        yield Check(
            name="numa balancing", ok=False, fix="`sysctl kernel.numa_balancing=0`",
            message="moves pages between nodes while the engine runs",
            command=("sysctl", "kernel.numa_balancing=0"),
        )  # fmt: skip
    if host.rootless and host.systemd and host.linger is False:
        yield Check(
            name="linger", ok=False, message="containers end when you log out",
            fix="`loginctl enable-linger`", command=("loginctl", "enable-linger"),
        )  # fmt: skip
