"""Speed over hosts: a no-op `up`, a start, a no-op with delay, planning a thousand hosts.

    tests/benchmarks/run hosts [--hosts 8] [--pairs 5] [--delay] [--only plan|no-op|start|delay]

Ratios are of runs taken in turn, medians. The delay is that of a relay in this process, so it
needs no netem. Bars: planning at most 12 times the reading; a no-op at most 2 bare playbooks;
a start at most the engine's load and 2.5 bare playbooks (ratio 1); 16 far hosts at most 6
times one.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from fleet.cli.load import load_deployment, load_library
from fleet.compiler.compile_deployment import compile_deployment
from fleet.deploy.plan_changes import plan_changes
from fleet.deploy.prepare import engine_build
from fleet.effects.commands import LocalCommands
from fleet.observe.parse_probe import parse_probe
from fleet.observe.probe_host import SCRIPT
from fleet.profiles.kinds import HostTarget
from support import models, podman_env
from support.far_road import far_roads
from support.net_hosts import start_network
from support.town import NAME, Town

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.net_hosts import Network

BARE = """\
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.setup:
        gather_subset: [min]
"""
# as many tasks as `deploy.yml` runs for a container without a key
TWO_TASKS = """\
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.shell: "true"
    - ansible.builtin.shell: "true"
"""


def seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def bare_playbook(town: Town, content: str = BARE) -> None:
    """Run a playbook on the same hosts, with pipelining and as many forks."""
    inventory = town.folder / "inventory.json"
    hosts = {
        host.name: {
            "ansible_host": host.address, "ansible_user": "root",
            "ansible_ssh_private_key_file": str(host.key_file),
        }
        for host in town.hosts
    }  # fmt: skip
    inventory.write_text(json.dumps({"all": {"hosts": hosts}}))
    (town.folder / "bare.yml").write_text(content)
    options = f"-o UserKnownHostsFile={town.hosts[0].known_hosts} -o ControlMaster=no"
    variables = {"ANSIBLE_PIPELINING": "true", "ANSIBLE_SSH_ARGS": options, "ANSIBLE_FORKS": "10"}
    words = ["ansible-playbook", "-i", str(inventory), str(town.folder / "bare.yml")]
    subprocess.run(words, env={**os.environ, **variables}, check=True, capture_output=True)


def up(town: Town) -> None:
    code, told = town.fleet("up", town.name, "--yes", "--forks", "16")
    assert code == 0, told


def no_op(count: int, pairs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        network = start_network(count, podman_env.podman_environment())
        try:
            town = _town(Path(folder), network)
            town.write(batch="100%")
            up(town)
            rows = [
                (seconds(lambda: bare_playbook(town)), seconds(lambda: up(town)))
                for _ in range(pairs)
            ]
            bare, ours = (statistics.median(row[i] for row in rows) for i in (0, 1))
            ratio = f"bare playbook {bare:.2f} s, ratio {ours / bare:.2f}"
            print(f"no-op up on {count} hosts: {ours:.2f} s, {ratio}")
        finally:
            network.remove()


def start_two(pairs: int) -> None:
    """Start on 2 hosts that have image and model, against the engine's load and a playbook."""
    with tempfile.TemporaryDirectory() as folder:
        network = start_network(2, podman_env.podman_environment())
        try:
            town = _town(Path(folder), network)
            town.write()
            up(town)
            rows = []
            for _ in range(pairs):
                load = seconds(lambda: _load_again(town))
                town.fleet("down", NAME, "--yes")
                bare = seconds(lambda: bare_playbook(town, TWO_TASKS))
                rows.append((load, bare, seconds(lambda: up(town))))
            load, bare, ours = (statistics.median(row[i] for row in rows) for i in range(3))
            bar = load + 2.5 * bare
            print(
                f"up on 2 hosts: {ours:.2f} s; engine's own load {load:.2f} s, bare playbook "
                f"{bare:.2f} s, ratio to load + 2.5 x bare {ours / bar:.2f}"
            )
        finally:
            network.remove()


def _load_again(town: Town) -> None:
    """Start the same containers by hand, on all hosts at once, until each is healthy."""
    name = f"fleet-{NAME}-server"
    wait = "until curl -sf 127.0.0.1:8080/health >/dev/null; do sleep 0.02; done"
    for host in town.hosts:
        host.run(f"podman stop --time 0 {name}")
    began = [
        subprocess.Popen(
            ["ssh", *host.ssh_options(), f"root@{host.address}", f"podman start {name}; {wait}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for host in town.hosts
    ]  # fmt: skip
    assert [each.wait() for each in began] == [0] * len(began)


def with_delay(counts: tuple[int, ...], milliseconds: int, repeats: int = 3) -> None:
    """Print how long a no-op takes as hosts are added, each that far away, taken in turn."""
    with tempfile.TemporaryDirectory() as folder:
        network = start_network(max(counts), podman_env.podman_environment())
        addresses = [host.address for host in network.hosts]
        try:
            with far_roads(addresses, milliseconds / 1000) as ports:
                towns = [_far_town(Path(folder) / str(n), network, ports[:n]) for n in counts]
                for town in towns:
                    up(town)
                rows = [[seconds(functools.partial(up, town)) for town in towns]
                        for _ in range(repeats)]  # fmt: skip
        finally:
            network.remove()
    medians = [statistics.median(row[i] for row in rows) for i in range(len(counts))]
    print(f"no-op up with {milliseconds} ms of delay a host")
    for count, taken in zip(counts, medians, strict=True):
        print(f"{count:3} hosts: {taken:.2f} s, {taken / medians[0]:.2f} times one host")


def _far_town(folder: Path, network: Network, ports: list[int]) -> Town:
    """Return a deployment of its own on the first hosts, reached by the long roads."""
    name, count = f"far{len(ports)}", len(ports)
    town = _town(folder, network)
    hosts = [
        {**town.target(host), "address": "127.0.0.1", "port": port}
        for host, port in zip(network.hosts, ports, strict=False)
    ]
    town.name = name
    town.write(hosts=hosts, batch="100%", port=8100 + count)
    return town


def plan_many(count: int) -> None:
    """Compile and plan `count` hosts from recorded facts, against reading the same facts."""
    text = LocalCommands().run(("sh", "-s"), stdin=SCRIPT).stdout
    library = load_library()
    model = models.tiny_models()["llama"]
    base = replace(load_deployment(str(model), library=library), topology="replicas")
    targets = tuple(
        HostTarget(name=f"h{i}", address=f"10.0.{i // 250}.{i % 250}") for i in range(count)
    )
    deployment = replace(
        base,
        hosts=targets,
        runtime="ansible",
        engine=replace(base.engine, engine="llama.cpp", image="x", build="b11549"),
    )
    build = engine_build(deployment)
    facts = {}
    reading = seconds(
        lambda: facts.update({t.name: parse_probe(text, name=t.name) for t in targets})
    )
    planning = seconds(
        lambda: plan_changes(
            compile_deployment(deployment, hosts=facts, model=None, build=build), ()
        )
    )
    ratio = f"planning {planning:.2f} s, ratio {planning / reading:.2f}"
    print(f"{count} hosts: reading {reading:.2f} s, {ratio}")
    assert len({json.dumps(asdict(each), default=str) for each in facts.values()}) == count


def _town(folder: Path, network: Network) -> Town:
    image = podman_env.ensure_engine_image()
    return Town(folder=folder, network=network, model=models.tiny_models()["llama"], image=image)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--delay", action="store_true")
    parser.add_argument("--only", choices=("plan", "no-op", "start", "delay"))
    chosen = parser.parse_args()
    os.environ.update(podman_env.podman_environment())
    sections: dict[str, Callable[[], object]] = {
        "plan": lambda: plan_many(1000),
        "no-op": lambda: no_op(chosen.hosts, chosen.pairs),
        "start": lambda: start_two(chosen.pairs),
        "delay": lambda: with_delay((1, 2, 4, 8, 16), 100),
    }
    wanted = chosen.only or [name for name in sections if name != "delay" or chosen.delay]
    for name in [wanted] if isinstance(wanted, str) else wanted:
        sections[name]()


if __name__ == "__main__":
    main()
