"""What was seen of a running server; no opinion, no effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["starting", "running", "stopped", "failed", "unknown"]
HealthState = Literal["ready", "loading", "unhealthy", "unknown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningServer:
    """A server that fleet started, as its runtime sees it now.

    `container` is the container's id for podman and ansible, `pid` the process for the
    embedded runtime. `settings` and `argv` are what it was really started with.
    """

    deployment: str
    server: str
    host: str
    state: State
    generation: int
    digest: str
    url: str | None = None
    pid: int | None = None
    container: str | None = None
    argv: tuple[str, ...] = ()
    settings: tuple[tuple[str, str | int | float | bool | None], ...] = ()
    image: str | None = None
    exit_code: int | None = None
    restarts: int = 0  # by podman itself, since it was started
    started_at: float | None = None  # seconds since the epoch
    log_path: str | None = None
    role: str = "server"  # a worker answers no HTTP
    tunnel: str | None = None  # where this process asks it, when that is not `url`
    damage: str | None = None  # why its record cannot be read: what it runs is not known

    @property
    def container_name(self) -> str:
        """The name that fleet gave the container or process, as `LaunchConfig` has it."""
        return f"fleet-{self.deployment}-{self.server}"

    @property
    def asked_at(self) -> str | None:
        """The URL that this process can use: the tunnel's to another host, else its own."""
        return self.tunnel or self.url


@dataclass(frozen=True, kw_only=True, slots=True)
class Timings:
    """The `timings` object of one answer of llama-server; milliseconds and tokens.

    `prompt_n` excludes cached tokens: the whole prompt is `cache_n + prompt_n`.
    """

    cache_n: int
    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    draft_n: int = 0
    draft_n_accepted: int = 0
