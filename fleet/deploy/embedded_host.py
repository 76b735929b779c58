"""A machine as a host without containers: each server is a process of fleet's own."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fleet.deploy.api_keys import key_file
from fleet.deploy.launch_record import damaged, launch_from_json, launch_to_json
from fleet.effects import processes
from fleet.effects.files import write_atomically
from fleet.effects.machine import LOCAL
from fleet.effects.processes import ProcessId
from fleet.errors import EngineFailed, OutsideError
from fleet.observe.observation import RunningServer
from fleet.observe.parse_probe import cpu_list

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.effects.folders import Folders
    from fleet.observe.observation import State

# by name: importing it here would load the engine into every command
MODULE = "fleet.effects.embedded_server"
LOG_BYTES = 64 * 2**20
GRACE_S = 1.0
SIGN_IN_S = 15.0  # a cold disk may take seconds to start Python
LOOK_S = 0.01
GLANCE_S = 0.2  # who only looks holds the lock for a moment
FOLLOW_S = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedHost:
    """Servers whose state lies in `<state>/servers/<name>/`.

    `order.json` says what was started, `process.json` which process signed in for it,
    `lock` is held by that process as long as it lives, `exit` is the code it ended with
    (128 + signal as shells say), `server.log` is its output.
    """

    folders: Folders
    name: str = LOCAL
    shelf: str = "servers"  # the folder's name below the state folder

    def running(self) -> tuple[RunningServer, ...]:
        """Return every server started and not stopped, dead ones as `failed`."""
        root = self.folders.state / self.shelf
        found = (_Place(folder) for folder in sorted(root.glob("*")) if folder.is_dir())
        return tuple(place.seen() for place in found if place.order_file.exists() or place.held())

    def start(self, launch: LaunchConfig, *, generation: int) -> RunningServer:
        """Start the process and return when it has signed in; loading goes on.

        Raises `OutsideError` when a server of that name lives, `EngineFailed` when the
        process ends before signing in.
        """
        place = _Place(self.folders.state / self.shelf / launch.container_name)
        place.folder.mkdir(parents=True, exist_ok=True)
        lock = place.locked(within_s=GLANCE_S)
        try:
            place.forget()
            place.write_order(launch, generation, key_file(self.folders, launch.deployment))
            pid = place.spawn(launch, lock)
        finally:
            os.close(lock)  # the child has its own copy, and with it the lock
        place.wait_for_signature(pid)
        return replace(place.seen(), state="starting")

    def stop(self, server: RunningServer) -> None:
        """End the process and remove its record; the log stays."""
        place = self._place(server)
        process = place.process()
        if process is not None:
            processes.end(process, grace_s=GRACE_S)
            place.wait_until_free()
        place.forget()

    def logs(self, server: RunningServer, *, follow: bool = False) -> Iterator[str]:
        """Yield the lines of the last start; with `follow` until the server ends."""
        yield from self._place(server).lines(follow=follow)

    def memory_bytes(self, server: RunningServer) -> int:
        """Return the resident memory of the server now."""
        process = self._place(server).process()
        return processes.memory_bytes(process) if process else 0

    def _place(self, server: RunningServer) -> _Place:
        folder = server.container_name
        return _Place(self.folders.state / self.shelf / folder)


@dataclass(frozen=True, slots=True)
class _Place:
    """One server's folder."""

    folder: Path

    @property
    def order_file(self) -> Path:
        return self.folder / "order.json"

    @property
    def process_file(self) -> Path:
        return self.folder / "process.json"

    @property
    def exit_file(self) -> Path:
        return self.folder / "exit"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def locked(self, *, within_s: float = 0.0) -> int:
        """Return a descriptor that holds the folder's lock, for the server to inherit."""
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        until = time.monotonic() + within_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < until:
                    time.sleep(LOOK_S)
                    continue
                os.close(descriptor)
                message = "a server of this name runs already"
                raise OutsideError(message, where=str(self.folder), fix="`fleet down` it") from None
            return descriptor

    def held(self) -> bool:
        """Whether a process holds the lock: a server lives here, signed in or not yet."""
        if not (self.folder / "lock").exists():
            return False
        try:
            os.close(self.locked())
        except OutsideError:
            return True
        return False

    def wait_until_free(self) -> None:
        """Wait for the last of its processes, which writes the exit code."""
        until = time.monotonic() + GRACE_S
        while self.held() and time.monotonic() < until:
            time.sleep(LOOK_S)

    def exit_code(self) -> int | None:
        """Return how the server ended, None while it lives or when nobody saw it."""
        try:
            return int(self.exit_file.read_text())
        except (OSError, ValueError):
            return None

    def forget(self) -> None:
        for file in (self.order_file, self.process_file, self.exit_file):
            file.unlink(missing_ok=True)

    def write_order(self, launch: LaunchConfig, generation: int, keys: Path) -> None:
        attributes = dict(launch.attributes)
        attributes.setdefault("hostnames", launch.bind)
        attributes["port"] = launch.port
        order = {
            "attributes": attributes,
            "cpus": cpu_list(launch.cpuset or ""),
            "api_key_file": str(keys) if launch.secrets else None,
            "process_file": str(self.process_file),
            "exit_file": str(self.exit_file),
            "log": str(self.log),
            "log_bytes": LOG_BYTES,
            "digest": launch.digest,
            "generation": generation,
            "launch": launch_to_json(launch),
        }
        write_atomically(self.order_file, json.dumps(order), mode=0o600)

    def spawn(self, launch: LaunchConfig, lock: int) -> int:
        if self.log.exists():
            self.log.replace(self.log.with_name(f"{self.log.name}.before"))
        self.log.with_name(f"{self.log.name}.1").unlink(missing_ok=True)
        argv = (sys.executable, "-m", MODULE, str(self.order_file))
        env = dict(launch.env)
        return processes.start_detached(argv, log=self.log, env=env, keep_open=[lock])

    def wait_for_signature(self, pid: int) -> None:
        until = time.monotonic() + SIGN_IN_S
        while not self.process_file.exists():
            code = processes.exit_code(pid)
            if code is not None or time.monotonic() > until:
                last = " ".join(list(self.lines(follow=False))[-1:])
                message = f"the server's process did not come up (code {code}): {last}"
                raise EngineFailed(message, where=str(self.log))
            time.sleep(LOOK_S)

    def process(self) -> ProcessId | None:
        """Return who signed in, else who lives here by its command line.

        Waits for one that was started a moment ago by a dead fleet: it has yet to sign in.
        """
        until = time.monotonic() + SIGN_IN_S
        while not self.process_file.exists() and self.held():
            found = processes.of_words(MODULE, str(self.order_file))
            if time.monotonic() > until or (found and time.time() - found.started > SIGN_IN_S):
                return found
            time.sleep(LOOK_S)
        if not self.process_file.exists():
            return None
        try:
            signed = _read_json(self.process_file)
            return ProcessId(
                pid=int(signed["pid"]),
                started=float(signed["started"]),
                marker=str(self.order_file),
            )
        except (OutsideError, KeyError, TypeError, ValueError):
            return processes.of_words(MODULE, str(self.order_file))

    def seen(self) -> RunningServer:
        """Return what the record and the process table say together."""
        process = self.process()
        state: State = "running" if process and processes.alive(process) else "failed"
        try:
            order = _read_json(self.order_file)
            launch = launch_from_json(order.get("launch", {}), where=str(self.order_file))
        except OutsideError as error:
            return self._of_unknown_order(process, state, error)
        return RunningServer(
            deployment=launch.deployment,
            server=launch.server,
            host=launch.host,
            state=state,
            generation=int(order.get("generation", 0)),
            digest=launch.digest,
            url=server_url(launch),
            pid=process.pid if process else None,
            argv=launch.argv,
            settings=launch.settings,
            exit_code=self.exit_code(),
            started_at=process.started if process else None,
            log_path=str(self.log),
        )

    def _of_unknown_order(
        self, process: ProcessId | None, state: State, error: OutsideError
    ) -> RunningServer:
        """Return what the folder's name and the process table say of a server."""
        deployment, _, server = self.folder.name.removeprefix("fleet-").rpartition("-")
        return RunningServer(
            deployment=deployment, server=server, host=LOCAL, state=state, generation=0, digest="",
            pid=process.pid if process else None, log_path=str(self.log),
            damage=f"{error.message} ({error.where})",
        )  # fmt: skip

    def lines(self, *, follow: bool) -> Iterator[str]:
        older = self.log.with_name(f"{self.log.name}.1")
        if older.exists():
            yield from older.read_text(errors="replace").splitlines()
        offset, rest = 0, ""
        while True:
            last_look = not (follow and self.held())
            offset, text = _read_from(self.log, offset)
            *whole, rest = (rest + text).split("\n")
            yield from whole
            if last_look:
                break
            if not text:
                time.sleep(FOLLOW_S)
        if rest:
            yield rest


def server_url(launch: LaunchConfig) -> str:
    """Return where the server is asked from this machine."""
    anywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - compared, not bound
    address = anywhere.get(launch.bind, f"[{launch.bind}]" if ":" in launch.bind else launch.bind)
    scheme = "https" if _has_tls(launch) else "http"
    return f"{scheme}://{address}:{launch.port}"


def _has_tls(launch: LaunchConfig) -> bool:
    names = {"--ssl-cert-file", "--ssl-certfile"}
    return bool(names & set(launch.argv)) or bool(dict(launch.attributes).get("ssl_file_cert"))


def _read_from(log: Path, offset: int) -> tuple[int, str]:
    """Return the text after `offset`; a log that was cut is read from its start."""
    try:
        with log.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(offset if size >= offset else 0)
            text = file.read()
            return file.tell(), text.decode(errors="replace")
    except FileNotFoundError:
        return offset, ""


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise damaged(str(path), str(error)) from None
    if not isinstance(content, dict):
        raise damaged(str(path), "not an object")
    return content
