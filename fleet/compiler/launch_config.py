"""`LaunchConfig`: everything that starts one server, and nothing else."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.facts.build_facts import Engine
    from fleet.sizes import ByteSize

SettingScalar = str | int | float | bool | None
Role = Literal["server", "rpc-worker", "tp-worker"]
Network = Literal["bridge", "host"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Warn:
    """Something that the user should know; `code` is stable, kebab-case."""

    code: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """A folder or file of the host inside the container."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretFile:
    """A secret by name, as a file (`target` is a path) or a variable (`target` is its name)."""

    name: str
    target: str
    kind: Literal["file", "env"] = "file"


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """How to ask the running server whether it is ready; no `path`: its port accepts."""

    path: str = "/health"
    interval_s: float = 10.0
    timeout_s: float = 5.0
    start_period_s: float = 600.0
    retries: int = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchConfig:
    """One server on one host, spelled for one engine build.

    `argv` is without the program. `settings` are the resolved values in fleet's own words,
    kept for drift and for the embedded engine, whose attributes stand in `attributes`.
    `bind` is the address the server listens on (on the host), `port` its port there. In a
    container of the `bridge` network the server listens on all addresses inside and the same
    port is published on `bind` alone; of the `host` network it listens on `bind` itself.
    `digest` identifies the launch: same input, same bytes, same digest.
    """

    deployment: str
    server: str
    host: str
    role: Role = "server"
    engine: Engine
    build: int | str | None
    program: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    attributes: tuple[tuple[str, SettingScalar], ...] = ()
    settings: tuple[tuple[str, SettingScalar], ...] = ()
    image: str | None = None
    mounts: tuple[Mount, ...] = ()
    devices: tuple[str, ...] = ()
    bind: str = "127.0.0.1"
    port: int = 8080
    network: Network = "bridge"
    caps: tuple[str, ...] = ()
    cpuset: str | None = None
    cpuset_mems: str | None = None
    memory_limit: ByteSize | None = None
    shm_size: ByteSize | None = None
    memlock_unlimited: bool = False
    ipc_host: bool = False
    secrets: tuple[SecretFile, ...] = ()
    health: Health = field(default_factory=Health)
    depends_on: tuple[str, ...] = ()  # servers of the deployment that must be up before
    model_path: str | None = None  # on the host, of the first file
    warnings: tuple[Warn, ...] = ()

    @property
    def digest(self) -> str:
        """Sixteen hex digits over all that changes the running server (not the warnings)."""
        content = asdict(self)
        del content["warnings"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def options(self) -> Iterator[tuple[str, str | None]]:
        """Yield each option of `argv` with its value, None for a switch; no plain words."""
        words = list(self.argv)
        while words:
            name = words.pop(0)
            if is_option(name):
                yield name, words.pop(0) if words and not is_option(words[0]) else None

    @property
    def container_name(self) -> str:
        """The name fleet gives the container or process: `fleet-<deployment>-<server>`."""
        return f"fleet-{self.deployment}-{self.server}"


def is_option(word: str) -> bool:
    """Whether a word of an argument list is an option: `-c` is one, `-1` is a value."""
    return word.startswith("-") and not word[1:2].isdigit()
