"""Podman on other hosts: read over SSH, changed by playbooks, one host or many at once."""

from __future__ import annotations

import atexit
import functools
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fleet.deploy.api_keys import key_file
from fleet.deploy.generations import read_generations, recorded
from fleet.deploy.host_container import LIST_SCRIPT, START, run_words, servers_of, unit_of
from fleet.deploy.launch_record import launch_to_json
from fleet.deploy.ssh_hosts import remembered_targets
from fleet.effects.ansible import PlaybookRun, run_playbook
from fleet.effects.ssh import SshSession, ask_on_terminal, on_each
from fleet.errors import FleetError, OutsideError
from fleet.observe.observation import RunningServer
from fleet.shipped_files import shipped_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.bring_up import Progress
    from fleet.deploy.rim import Rim
    from fleet.effects.ansible import HostOutcome
    from fleet.effects.folders import Folders
    from fleet.effects.ssh import SshCommands, SshTarget
    from fleet.facts.host_facts import HostFacts

LIST_TIMEOUT_S = 60.0
FORKS = 10
KEPT = 5
# sshd ends nothing by itself when its client is gone: the end of the input does
FOLLOW = """
podman logs --follow "$1" 2>&1 & logs=$!
{ while kill -0 $logs; do sleep 0.5; done; kill $$; } >/dev/null 2>&1 &
cat >/dev/null 2>&1
kill $logs
"""
FREE_PORT = """
import socket, sys
with socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET) as probe:
    probe.bind((sys.argv[1], 0))
    print(probe.getsockname()[1])
"""


def silent(text: str) -> None:
    """Tell nobody."""


@functools.cache
def shared_session(known_hosts: Path) -> SshSession:
    """Return this process's connections; they are ended when it ends."""
    session = SshSession(known_hosts=known_hosts, ask_first_use=ask_on_terminal())
    session.__enter__()
    atexit.register(session.__exit__, None, None, None)
    return session


@dataclass(frozen=True, kw_only=True)
class HostGroup:
    """Some hosts as one place where servers run; a launch and a server name their host."""

    targets: Mapping[str, SshTarget]
    session: SshSession
    folders: Folders
    progress: Progress = silent
    forks: int = FORKS
    facts: Mapping[str, HostFacts] = field(default_factory=dict)
    name: str = "ansible"

    def only(self, host: str) -> HostGroup:
        """Return the same place with one host."""
        return replace(self, targets={host: self.targets[host]}, name=host)

    def commands(self, host: str) -> SshCommands:
        """Return the host as a place where commands run."""
        return self.session.commands(self.targets[host])

    def running(self) -> tuple[RunningServer, ...]:
        """Return every server of fleet's; those of a host that does not answer as `unknown`."""
        answers = on_each(self.targets, self._list, forks=self.forks)
        found: list[RunningServer] = []
        for host, answer in answers.items():
            found += self._recorded(host) if isinstance(answer, FleetError) else answer
        return tuple(found)

    def start(self, launch: LaunchConfig, *, generation: int) -> RunningServer:
        """Start one server. Raises `OutsideError` naming the host."""
        outcome = self.start_all((launch,), generation=generation)[launch.host]
        if outcome.error is not None:
            raise outcome.error
        return next(
            server
            for server in self.only(launch.host).running()
            if (server.deployment, server.server) == (launch.deployment, launch.server)
        )

    def start_all(
        self, launches: Sequence[LaunchConfig], *, generation: int
    ) -> dict[str, HostOutcome]:
        """Start a server on each host at once, at most one a host; outcomes by host."""
        variables = {launch.host: self._variables(launch, generation) for launch in launches}
        return self._play("deploy", variables)

    def rehearse(self, launch: LaunchConfig, *, generation: int) -> None:
        """Start a server that is soon taken away again. Raises `OutsideError`."""
        words = run_words(launch, generation=generation, restart="no")
        done = self.commands(launch.host).run((*START, *words))
        if done.ok:
            return
        # a name in use is another controller's rehearsal: not ours to end
        if "already in use" not in done.stderr:
            self.take_away(launch)
        last = done.stderr.strip().splitlines()[-1:] or ["no word why"]
        raise OutsideError(f"the new version does not start: {last[0]}", where=launch.host)

    def take_away(self, what: LaunchConfig | RunningServer) -> None:
        """Take away what `rehearse` started; does nothing where it is gone."""
        words = ("podman", "rm", "--force", "--ignore", "--time", "2", what.container_name)
        self.commands(what.host).run(words).checked()

    def free_port(self, host: str, address: str) -> int:
        """Return a port that nobody on the host listens on."""
        words = ("python3", "-c", FREE_PORT, address)
        return int(self.commands(host).run(words).checked().stdout)

    def stop(self, server: RunningServer) -> None:
        """End one server. Raises `OutsideError` naming the host."""
        self.stop_all((server,))

    def stop_all(self, servers: Sequence[RunningServer]) -> None:
        """End servers, one a host at once. Raises the first host's error."""
        self.play("remove", {each.host: self._removal(each) for each in servers})

    def play(self, playbook: str, variables: Mapping[str, Mapping[str, Any]]) -> None:
        """Run a shipped playbook on the hosts of `variables`. Raises the first host's error."""
        for outcome in self._play(playbook, variables).values():
            if outcome.error is not None:
                raise outcome.error

    def logs(self, server: RunningServer, *, follow: bool = False) -> Iterator[str]:
        """Yield the log's lines, oldest first. Raises `HostUnreachable`."""
        name = server.container_name
        commands = self.commands(server.host)
        if follow:
            yield from commands.stream(("sh", "-c", FOLLOW, "sh", name))
        else:
            told = commands.run(("sh", "-c", f"podman logs {name} 2>&1"), timeout_s=LIST_TIMEOUT_S)
            yield from told.stdout.splitlines()

    def reach(self, server: RunningServer) -> RunningServer:
        """Return the server with a `tunnel`: its URL for this process, over SSH."""
        address, _, port = (server.url or "").partition("://")[2].rpartition(":")
        scheme = (server.url or "").partition("://")[0]
        here = self.session.forward(self.targets[server.host], address.strip("[]"), int(port))
        return replace(server, tunnel=f"{scheme}://127.0.0.1:{here}")

    def _list(self, host: str) -> tuple[RunningServer, ...]:
        told = self.commands(host).run(("sh", "-s"), stdin=LIST_SCRIPT, timeout_s=LIST_TIMEOUT_S)
        found = servers_of(told.checked().stdout, host)
        return tuple(self.reach(each) if each.state == "running" else each for each in found)

    def _recorded(self, host: str) -> list[RunningServer]:
        """Return what was brought to a host that does not answer now."""
        found = []
        for name in recorded(self.folders):
            kept = read_generations(self.folders, name)
            found += [
                RunningServer(
                    deployment=name, server=launch.server, host=host, state="unknown",
                    generation=kept[-1].number, digest=launch.digest, argv=launch.argv,
                    settings=launch.settings,
                )
                for launch in (kept[-1].launches if kept else ())
                if launch.host == host
            ]  # fmt: skip
        return found

    def _play(
        self, playbook: str, variables: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, HostOutcome]:
        run = PlaybookRun(
            playbook=shipped_folder("playbooks") / f"{playbook}.yml",
            targets=[self.targets[host] for host in variables],
            variables={},
            host_variables=variables,
            forks=self.forks,
        )
        artefacts = self.folders.state / "failed-runs"
        return run_playbook(run, session=self.session, artefacts=artefacts, progress=self.progress)

    def _variables(self, launch: LaunchConfig, generation: int) -> dict[str, Any]:
        facts = self.facts.get(launch.host)
        unit = unit_of(launch, generation=generation, facts=facts) if facts else None
        content = {"generation": generation, "launch": launch_to_json(launch)}
        variables: dict[str, Any] = {
            "fleet_name": launch.container_name,
            "fleet_generation": generation,
            "fleet_launch": json.dumps(content, indent=1),
            "fleet_run": list(
                run_words(launch, generation=generation, restart=None if unit else "always")
            ),
            "fleet_secret": launch.secrets[0].name if launch.secrets else "",
            "fleet_key_file": str(key_file(self.folders, launch.deployment)),
            "fleet_keep": KEPT,
        }
        if unit and facts:
            path, text = unit
            scope = "user" if facts.rootless else "system"
            variables |= {"fleet_unit_path": path, "fleet_unit": text, "fleet_scope": scope}
        return variables

    def _removal(self, server: RunningServer) -> dict[str, Any]:
        return {
            "fleet_name": server.container_name,
            "fleet_secret": f"fleet-{server.deployment}-api-key",
        }


def recorded_group(rim: Rim, *, progress: Progress = silent) -> HostGroup:
    """Return all hosts that any recorded deployment was brought to."""
    targets = {
        target.name: target
        for name in recorded(rim.folders)
        for target in remembered_targets(rim.folders, name)
    }
    return group_of(targets.values(), rim, progress=progress)


def group_of(
    targets: Iterable[SshTarget], rim: Rim, *, progress: Progress = silent, forks: int = FORKS
) -> HostGroup:
    """Return `targets` as one place where servers run."""
    return HostGroup(
        targets={target.name: target for target in targets},
        session=shared_session(rim.folders.state / "known_hosts"),
        folders=rim.folders,
        progress=progress,
        forks=forks,
    )
