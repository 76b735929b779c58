"""Run one of the shipped playbooks on some hosts and say, host by host, how it went."""

from __future__ import annotations

import importlib
import os
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.effects.causes import Cause, cause_of
from fleet.errors import HostUnreachable, OutsideError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fleet.effects.ssh import SshSession, SshTarget
    from fleet.errors import FleetError

# found before the PATH's, so that ansible-core and fleet are of the same environment
BESIDE_PYTHON = Path(sys.executable).parent
LAST_LINES = 3
CAUSES = (
    Cause("No space left on device", "its disk is full", "free some space there, see `df -h`"),
    Cause(r"python\S*: (?:not found|No such file)|interpreter.*not found|failed to discover",
          "it has no python", "`fleet doctor {host} --fix` installs it"),
    Cause("podman: (?:command )?not found|No such file or directory: b?'podman'",
          "it has no podman", "`fleet doctor {host} --fix` installs it"),
    Cause("sudo: a password is required|Missing sudo password",
          "sudo asks for a password there", "log in as root, or allow sudo without a password"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class HostOutcome:
    """How a playbook ended on one host; `error` is None where it ended well."""

    name: str
    changed: bool
    error: FleetError | None = None
    answers: Mapping[str, Any] = field(default_factory=dict)  # a task's `msg` by its name


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaybookRun:
    """What to run where. `variables` may not hold secrets: they are kept when a run fails."""

    playbook: Path
    targets: Sequence[SshTarget]
    variables: Mapping[str, Any]
    host_variables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    forks: int = 10


def run_playbook(
    run: PlaybookRun,
    *,
    session: SshSession,
    artefacts: Path,
    progress: Callable[[str], None],
) -> dict[str, HostOutcome]:
    """Run the playbook; `progress` is told each task as `host: task`.

    The folder of a failed run stays below `artefacts` and each error names it.
    """
    folder = Path(tempfile.mkdtemp(prefix="fleet-ansible-"))
    told = _Told(progress)
    # by name: it takes a third of a second to import, and most commands need no playbook
    runner = importlib.import_module("ansible_runner")
    try:
        runner.run(
            private_data_dir=str(folder),
            playbook=str(run.playbook),
            inventory=_inventory(run),
            extravars=dict(run.variables),
            envvars=_environment(run, session, folder),
            quiet=True,
            event_handler=told.hear,
        )
        outcomes = {
            target.name: _in_ssh_words(told.outcome(target.name), target, session)
            for target in run.targets
        }
        failed = any(outcome.error for outcome in outcomes.values())
        kept = _keep(folder, artefacts, run.playbook.stem) if failed else None
        return {name: _with_place(outcome, kept) for name, outcome in outcomes.items()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Told:
    """What the run's events said so far."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self._failures: dict[str, FleetError] = {}
        self._answers: dict[str, dict[str, Any]] = {}
        self._changed: set[str] = set()
        self._finished: set[str] = set()
        self._said: list[str] = []

    def hear(self, event: dict[str, Any]) -> bool:
        """Take one event of the runner; True keeps it among the artefacts."""
        what = event.get("event_data", {})
        host, task = str(what.get("host", "")), str(what.get("task", ""))
        result = what.get("res", {})
        match event.get("event"):
            case "runner_on_start":
                self._progress(f"{host}: {task}")
            case "runner_on_ok":
                self._answers.setdefault(host, {})[task] = result.get("msg", result.get("stdout"))
                self._changed |= {host} if result.get("changed") else set()
            case "runner_on_failed" if not what.get("ignore_errors"):
                self._failures[host] = _failure(host, task, result)
            case "runner_on_unreachable":
                self._failures[host] = _lost(host, str(result.get("msg", "")))
            case "playbook_on_stats":
                self._finished |= {
                    name for kind in what.values() if isinstance(kind, dict) for name in kind
                }
            case _:
                self._said += str(event.get("stdout", "")).splitlines()
        return True

    def outcome(self, host: str) -> HostOutcome:
        error = self._failures.get(host)
        if error is None and host not in self._finished:
            last = " ".join(line for line in self._said if line.strip())[-300:]
            error = OutsideError(f"the playbook did not run there: {last}", where=host)
        return HostOutcome(
            name=host,
            changed=host in self._changed,
            error=error,
            answers=self._answers.get(host, {}),
        )


def _failure(host: str, task: str, result: Mapping[str, Any]) -> FleetError:
    """Return one sentence about a failed task; a loop's failed items are looked into."""
    parts = [result, *result.get("results", ())]
    texts = [
        str(part.get(key, ""))
        for part in parts
        if part is result or part.get("failed")
        for key in ("stderr", "module_stderr", "msg", "stdout", "module_stdout")
    ]
    cause = cause_of("\n".join(texts), CAUSES)
    if cause:
        fix = cause.fix.format(host=host)
        return OutsideError(f"`{task}` failed: {cause.message}", where=host, fix=fix)
    texts = [text.removeprefix("Task failed: ") for text in texts]
    lines = [
        line for text in texts if text.strip() for line in text.strip().splitlines()[-LAST_LINES:]
    ]
    return OutsideError(f"`{task}` failed: {' '.join(lines[:LAST_LINES])}", where=host)


def _in_ssh_words(outcome: HostOutcome, target: SshTarget, session: SshSession) -> HostOutcome:
    """Ask ssh itself why a host was unreachable: Ansible keeps only the last line."""
    if not isinstance(outcome.error, HostUnreachable):
        return outcome
    try:
        session.commands(target).run(("true",))
    except HostUnreachable as error:
        return replace(outcome, error=error)
    return outcome


def _lost(host: str, said: str) -> FleetError:
    fix = f"`fleet hosts probe {host}` says what ssh says"
    line = said.strip().splitlines()[-1:] or ["no answer"]
    return HostUnreachable(f"the SSH connection failed: {line[0]}", where=host, fix=fix)


def _inventory(run: PlaybookRun) -> dict[str, Any]:
    hosts = {}
    for target in run.targets:
        known: dict[str, Any] = {"ansible_host": target.address, "ansible_port": target.port}
        known |= {"ansible_user": target.user} if target.user else {}
        known |= {"ansible_ssh_private_key_file": target.key_file} if target.key_file else {}
        hosts[target.name] = known | dict(run.host_variables.get(target.name, {}))
    return {"all": {"hosts": hosts}}


def _environment(run: PlaybookRun, session: SshSession, folder: Path) -> dict[str, str]:
    options = [word for option in session.options() for word in ("-o", option)]
    empty = folder / "empty.cfg"
    empty.touch()
    return {
        "PATH": f"{BESIDE_PYTHON}{os.pathsep}{os.environ.get('PATH', '')}",
        "ANSIBLE_SSH_ARGS": shlex.join(options),
        "ANSIBLE_SSH_CONTROL_PATH": session.control_path,
        "ANSIBLE_PIPELINING": "true",
        "ANSIBLE_FORKS": str(run.forks),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        "ANSIBLE_GATHERING": "explicit",
        "ANSIBLE_RETRY_FILES_ENABLED": "false",
        # nothing of this machine's own configuration may change what a run does
        "ANSIBLE_CONFIG": str(empty),
    }


def _keep(folder: Path, artefacts: Path, name: str) -> Path:
    """Move the run's folder to where it can be read later; return its new place."""
    artefacts.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=artefacts))
    shutil.copytree(folder, kept, dirs_exist_ok=True, ignore_dangling_symlinks=True)
    return kept


def _with_place(outcome: HostOutcome, kept: Path | None) -> HostOutcome:
    if outcome.error is not None and kept is not None:
        fix = outcome.error.fix
        outcome.error.fix = f"{fix}; " if fix else ""
        outcome.error.fix += f"the whole run is kept in {kept}"
    return outcome
