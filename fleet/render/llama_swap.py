"""A llama-swap configuration: it starts a server when its model is asked for."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import yaml

from fleet.render.artefact import Artefact
from fleet.render.podman_line import by_host, podman_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fleet.compiler.launch_config import LaunchConfig

_START_PORT = 5800
_IDLE_S = 3600


def render_llama_swap(launches: Sequence[LaunchConfig]) -> tuple[Artefact, ...]:
    """Return `llama-swap/<host>.yaml` with the servers of each host."""
    servers = by_host(launch for launch in launches if launch.role == "server")
    return tuple(
        Artefact(path=f"llama-swap/{host}.yaml", text=_text(of_host))
        for host, of_host in servers.items()
    )


def _text(launches: Sequence[LaunchConfig]) -> str:
    slowest = max(launch.health.start_period_s for launch in launches)
    document = {
        "healthCheckTimeout": int(slowest),
        "startPort": _START_PORT,
        "models": {_model_name(launch): _model(launch) for launch in launches},
    }
    return yaml.safe_dump(document, sort_keys=False, width=4096)


def _model_name(launch: LaunchConfig) -> str:
    return str(dict(launch.settings).get("alias") or launch.deployment)


def _model(launch: LaunchConfig) -> dict[str, Any]:
    model: dict[str, Any] = {
        "cmd": _command(launch),
        "proxy": "http://127.0.0.1:${PORT}",
        "checkEndpoint": launch.health.path,
        "ttl": _IDLE_S,
    }
    if launch.image:
        model["cmdStop"] = f"podman stop --time 10 {launch.container_name}"
    elif launch.env:
        model["env"] = [f"{name}={value}" for name, value in launch.env]
    return model


def _command(launch: LaunchConfig) -> str:
    """Return the command with llama-swap's own port in the place of the planned one."""
    if launch.image:
        words = [it for it in podman_line(launch) if it != "--detach"]
        words.insert(2, "--rm")
        at = words.index("--restart")
        del words[at : at + 2]
    else:
        words = [launch.program, *launch.argv]
    return " ".join(_ported(words, launch.port))


def _ported(words: Sequence[str], port: int) -> Iterator[str]:
    """Yield shell words; what listens, is published or is asked for health moves along."""
    before = ""
    for word in words:
        quoted = shlex.quote(word)
        if before in {"--port", "--publish", "--health-cmd"}:
            quoted = quoted.replace(str(port), "${PORT}")
        yield quoted
        before = word
