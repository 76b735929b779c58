"""The order in which a deployment comes up: plan, fit, start, ready, prime, verify, record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.compiler.launch_config import Warn
    from fleet.deploy.plan_changes import Change
    from fleet.deploy.rim import Rim
    from fleet.observe.observation import RunningServer, Timings
    from fleet.profiles.kinds import Deployment, RuntimeName


class Progress(Protocol):
    """What is told while work goes on; one line, replaced by the next."""

    def __call__(self, text: str) -> None:
        """Show `text`."""
        ...


def refuse(_: tuple[Change, ...]) -> bool:
    """Answer no to stopping a serving server."""
    return False


@dataclass(frozen=True, kw_only=True, slots=True)
class UpOptions:
    """How `up` is to act. `confirm` is asked before a serving server is stopped."""

    runtime: RuntimeName | None = None
    dry_run: bool = False
    confirm: Callable[[tuple[Change, ...]], bool] = field(default=refuse)
    prime: bool = True
    use_tuned: bool = True
    lock_wait_s: float = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class BroughtUp:
    """What `up` did and found. `first_request` is None when nothing was started."""

    deployment: str
    servers: tuple[RunningServer, ...]
    changes: tuple[Change, ...]
    seconds: float
    context: int | None = None
    first_request: Timings | None = None
    tuned: str | None = None
    warnings: tuple[Warn, ...] = ()


def bring_up(
    deployment: Deployment, *, rim: Rim, options: UpOptions, progress: Progress
) -> BroughtUp:
    """Make `deployment` run as its profile says; changes nothing when it does already.

    Raises `UserError`, `DoesNotFit`, `OutsideError` (`EngineFailed` names the classified
    cause and the log); on failure the generation that ran before runs again.
    """
    raise NotImplementedError


def take_down(name: str, *, rim: Rim, progress: Progress) -> tuple[RunningServer, ...]:
    """Stop and remove every server of the deployment `name`; return what was ended."""
    raise NotImplementedError
