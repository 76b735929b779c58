"""`fleet hosts probe`: what hosts are, over SSH or here, and as a hardware profile to keep."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from fleet.cli.load import load_library
from fleet.cli.options import Json, Profiles
from fleet.cli.output import note, print_json, print_table
from fleet.deploy.find_targets import find_targets
from fleet.deploy.probe_hosts import measure_bandwidth, probe_hosts, save_hardware
from fleet.deploy.rim import Rim
from fleet.errors import FleetError
from fleet.facts.host_facts import HostFacts
from fleet.profiles.hardware_of_host import hardware_yaml

app = typer.Typer(no_args_is_help=True)


@app.callback()
def hosts() -> None:
    """Probe hosts."""


@app.command()
def probe(
    names: Annotated[
        list[str], typer.Argument(metavar="HOST...", help="A deployment's host, or [USER@]ADDRESS")
    ],
    bandwidth: Annotated[
        bool, typer.Option("--bandwidth", help="Measure memory bandwidth (some seconds)")
    ] = False,
    save: Annotated[
        str | None, typer.Option(metavar="NAME", help="Write the first as a hardware profile")
    ] = None,
    profiles: Profiles = None,
    as_json: Json = False,
) -> None:
    """Say what each HOST is: CPU, memory, GPUs, podman, systemd, disk, fabric, clock."""
    rim = Rim()
    targets = find_targets(names, load_library(profiles or ()))
    found = probe_hosts(targets, rim=rim)
    if bandwidth:
        found = measure_bandwidth(found, targets, rim=rim)
    facts = [each for each in found.values() if isinstance(each, HostFacts)]
    if save and facts:
        note(f"written: {save_hardware(save, hardware_yaml(facts[0], save), rim=rim)}")
    answer(found, as_json=as_json)


def answer(found: dict[str, HostFacts | FleetError], *, as_json: bool) -> None:
    """Print what was found; a host that did not answer fails the command at the end."""
    facts = [each for each in found.values() if isinstance(each, HostFacts)]
    failed = {name: each for name, each in found.items() if isinstance(each, FleetError)}
    if as_json and facts:
        told = [asdict(each) | {"fingerprint": each.fingerprint} for each in facts]
        errors = [{"host": name, **error.as_json()} for name, error in failed.items()]
        print_json({"hosts": told, "failed": errors})
    elif facts:
        print_table(("host", "what", "value"), [row for each in facts for row in rows(each)])
    for error in failed.values():
        if not facts:
            raise error
        note(f"error: {error}" + (f"\n  hint: {error.fix}" if error.fix else ""))
    if failed:
        raise typer.Exit(next(iter(failed.values())).exit_code)


def rows(facts: HostFacts) -> list[tuple[str, str, object]]:
    """Return what is known as rows; what is not known is left out."""
    known = {
        name: value
        for name, value in asdict(facts).items()
        if value not in (None, (), frozenset()) and name not in {"name", "isa", "probed"}
    }
    known["gpus"] = ", ".join(f"{gpu.name} {gpu.memory}" for gpu in facts.gpus)
    known["cpus"] = len(facts.cpus)
    known["numa_nodes"] = len(facts.numa_nodes)
    known.pop("first_cpu_of_core", None)
    return [
        (facts.name, name.replace("_", " "), value) for name, value in known.items() if value != ""
    ]
