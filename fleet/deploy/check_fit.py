"""Refuse a launch that this machine's memory cannot hold, before anything is stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.errors import DoesNotFit
from fleet.sizes import ByteSize

if TYPE_CHECKING:
    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.prepare import Prepared


def check_fit(prepared: Prepared) -> None:
    """Raise `DoesNotFit` with needed and present memory when a launch is too large."""
    for launch in prepared.launches:
        _check(launch, prepared)


def _check(launch: LaunchConfig, prepared: Prepared) -> None:
    host, model = prepared.host, prepared.model
    limits = [size for size in (host.memory_total, host.memory_limit, launch.memory_limit) if size]
    if model is None or launch.devices or not limits:
        return
    needed, present = ByteSize(model.size), min(limits)
    if needed > present:
        message = f"the weights alone take {needed}, the host has {ByteSize(present)}"
        raise DoesNotFit(message, where=launch.host, fix="choose a smaller quantisation")
