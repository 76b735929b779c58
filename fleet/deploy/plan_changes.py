"""What must change on each host so that what runs is what is wanted; decides, never acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.compiler.launch_config import LaunchConfig, SettingScalar
    from fleet.observe.observation import RunningServer

Action = Literal["start", "stop", "replace", "keep"]
LIVE = frozenset({"starting", "running", "unknown"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """One setting whose running value is not the wanted one."""

    setting: str
    running: SettingScalar
    wanted: SettingScalar


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One step on one host. `old` is what runs there now, `new` what is to run."""

    host: str
    server: str
    action: Action
    why: str
    old: RunningServer | None = None
    new: LaunchConfig | None = None

    @property
    def disturbs(self) -> bool:
        """Whether a server that serves now would be stopped."""
        live = self.old is not None and self.old.state in LIVE
        return live and self.action in {"stop", "replace"}


def plan_changes(
    wanted: Sequence[LaunchConfig], running: Sequence[RunningServer]
) -> tuple[Change, ...]:
    """Return the steps in the order of `wanted`, then stops of what is wanted no more."""
    seen = {(server.host, server.server): server for server in running}
    steps = [_step(launch, seen.pop((launch.host, launch.server), None)) for launch in wanted]
    return (*steps, *(_stop(server) for server in seen.values()))


def drift(wanted: LaunchConfig, running: RunningServer) -> tuple[Drift, ...]:
    """Return the settings in which `running` differs from `wanted`, in fleet's own words."""
    want, have = dict(wanted.settings), dict(running.settings)
    names = [*want, *(name for name in have if name not in want)]
    changed = [
        Drift(setting=name, running=have.get(name), wanted=want.get(name))
        for name in names
        if have.get(name) != want.get(name)
    ]
    if running.image is not None and wanted.image is not None and running.image != wanted.image:
        changed.append(Drift(setting="image", running=running.image, wanted=wanted.image))
    return tuple(changed)


def _step(launch: LaunchConfig, old: RunningServer | None) -> Change:
    action, why = _judge(launch, old)
    return Change(
        host=launch.host, server=launch.server, action=action, why=why, old=old, new=launch
    )


def _judge(launch: LaunchConfig, old: RunningServer | None) -> tuple[Action, str]:
    if old is None:
        return "start", "does not run"
    if old.state not in LIVE:
        ended = f" (exit code {old.exit_code})" if old.exit_code is not None else ""
        return "replace", f"{old.state}{ended}"
    if old.damage is not None:
        return "replace", old.damage
    if old.digest == launch.digest:
        return "keep", "runs as wanted"
    return "replace", _difference(launch, old)


def _difference(launch: LaunchConfig, old: RunningServer) -> str:
    found = drift(launch, old)
    told = [f"{each.setting}: {each.running} -> {each.wanted}" for each in found]
    if (old.image is None) != (launch.image is None):
        told = [f"image: {old.image or 'none'} -> {launch.image or 'none'}", *told]
    return ", ".join(told or _words_apart(old.argv, launch.argv)) or "its launch differs"


def _words_apart(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the options in which two argument lists differ, where no setting tells."""
    have, want = _options(old), _options(new)
    return [
        f"`{name}`: {have.get(name, 'not given')} -> {want.get(name, 'not given')}"
        for name in dict.fromkeys([*have, *want])
        if have.get(name) != want.get(name)
    ]


def _options(argv: Sequence[str]) -> dict[str, str]:
    """Return each option with the words behind it, `on` where none is."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in argv:
        if word.startswith("-") and not word[1:2].isdigit():
            name = word
            found.setdefault(name, [])
        else:
            found.setdefault(name, []).append(word)
    return {name: " ".join(words) or "on" for name, words in found.items()}


def _stop(server: RunningServer) -> Change:
    why = "is wanted no more"
    return Change(host=server.host, server=server.server, action="stop", why=why, old=server)
