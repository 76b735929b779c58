"""`doctor` for other hosts: the checks over SSH, and the playbook that mends them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleet.deploy.ansible_host import shared_session
from fleet.deploy.doctor import examine, examine_host
from fleet.deploy.find_targets import find_targets
from fleet.deploy.probe_hosts import commands_of
from fleet.effects.ansible import PlaybookRun, run_playbook
from fleet.effects.clock import SystemClock
from fleet.effects.files import read_text
from fleet.effects.profile_folders import read_profile_folders
from fleet.effects.ssh import on_each
from fleet.errors import FleetError
from fleet.observe.checks import Check
from fleet.profiles.library import ProfileLibrary, ProfileSource
from fleet.shipped_files import shipped_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fleet.deploy.rim import Rim
    from fleet.effects.commands import Commands
    from fleet.effects.ssh import SshTarget

CLOCK_SKEW_S = 5.0
PLAYBOOK = "prepare.yml"


def doctor_hosts(
    hosts: Sequence[str], *, rim: Rim, fix: bool, confirm: Callable[[str], bool]
) -> tuple[Check, ...]:
    """Return the checks of each host; with `fix`, show the playbook, ask, run it, look again.

    A host that does not answer has one failed check that says why.
    """
    targets = find_targets(hosts, _library())
    checks = _examine_all(targets, rim)
    ill = {check.host for check in checks if not check.ok and check.name != "ssh"}
    mendable = [target for name, target in targets.items() if name in ill and target is not None]
    if not fix or not mendable:
        return checks
    playbook = shipped_folder("playbooks") / PLAYBOOK
    names = ", ".join(target.name for target in mendable)
    if not confirm(f"{read_text(playbook)}\nrun this playbook on {names}?"):
        return checks
    outcomes = run_playbook(
        PlaybookRun(playbook=playbook, targets=mendable, variables={}),
        session=shared_session(rim.folders.state / "known_hosts"),
        artefacts=rim.folders.state / "failed-runs",
        progress=lambda _: None,
    )
    for outcome in outcomes.values():
        if outcome.error is not None:
            raise outcome.error
    return _examine_all(targets, rim)


def _examine_all(targets: Mapping[str, SshTarget | None], rim: Rim) -> tuple[Check, ...]:
    answers = on_each(targets, lambda name: _examine(name, targets[name], rim))
    return tuple(
        check
        for name, answer in answers.items()
        for check in (answer if not isinstance(answer, FleetError) else (_silent(name, answer),))
    )


def _examine(name: str, target: SshTarget | None, rim: Rim) -> tuple[Check, ...]:
    if target is None:
        return examine(rim)
    commands = commands_of(name, target, rim)
    checks = (*examine_host(commands, name), *_more(commands))
    return tuple(replace(check, host=name) for check in checks)


def _more(commands: Commands) -> tuple[Check, ...]:
    """Look for python, which playbooks need, and at the clock, which logs are read by."""
    python = commands.run(("python3", "--version"))
    here = SystemClock().now().timestamp()
    there = commands.run(("date", "+%s.%N")).stdout.strip()
    skew = float(there) - here if there.replace(".", "", 1).isdigit() else 0.0
    return (
        Check(
            name="python", ok=python.ok, message=python.stdout.strip() or "not installed",
            fix=None if python.ok else "`fleet doctor HOST --fix` installs it",
        ),
        Check(
            name="clock", ok=abs(skew) < CLOCK_SKEW_S, message=f"{skew:+.1f} s from this machine's",
            fix=None if abs(skew) < CLOCK_SKEW_S else "`timedatectl set-ntp true` there",
        ),
    )  # fmt: skip


def _silent(name: str, error: FleetError) -> Check:
    return Check(name="ssh", ok=False, message=error.message, fix=error.fix, host=name)


def _library() -> ProfileLibrary:
    files = read_profile_folders((), shipped_folder("profiles"))
    return ProfileLibrary(
        ProfileSource(file=file.path, layer=file.layer, content=file.content) for file in files
    )
