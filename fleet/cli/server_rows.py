"""A running server in the contract's shape and as a table's row."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.deploy.plan_changes import Drift
    from fleet.observe.observation import HealthState, RunningServer


def server_json(
    server: RunningServer,
    *,
    health: HealthState,
    tuned: str | None,
    drift: Sequence[Drift] = (),
) -> dict[str, object]:
    """Return one element of `status`'s and `up`'s `servers`."""
    running_as = "container" if server.container is not None else "pid"
    return {
        "deployment": server.deployment,
        "name": server.server,
        "host": server.host,
        "state": server.state,
        "health": health,
        "generation": server.generation,
        "digest": server.digest,
        "drift": [
            {"setting": each.setting, "running": each.running, "wanted": each.wanted}
            for each in drift
        ],
        "url": server.url,
        running_as: server.container if server.container is not None else server.pid,
        "tuned": tuned,
    }
