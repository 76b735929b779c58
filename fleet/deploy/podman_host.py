"""The machine fleet runs on, with servers in podman containers; labels are the truth."""

from __future__ import annotations

import json
import os
import resource
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.deploy.api_keys import ensure_key
from fleet.deploy.embedded_host import server_url
from fleet.deploy.podman_container import LABEL, container_spec, started_at
from fleet.effects.files import write_atomically
from fleet.effects.machine import LOCAL
from fleet.effects.podman_causes import PodmanFailed
from fleet.effects.podman_socket import PodmanSocket, open_podman
from fleet.effects.processes import resident_bytes
from fleet.errors import OutsideError, UserError
from fleet.observe.observation import RunningServer
from fleet.render.podman_line import USER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.rim import Rim
    from fleet.effects.folders import Folders
    from fleet.observe.observation import State

DRAIN_S = 1.0
KILL_S = 3.0
LOOK_S = 0.02
ROOT = 0
KEPT_LINES = 20_000
STATES: dict[str, State] = {
    "running": "running", "paused": "unknown", "stopping": "running", "removing": "stopped",
}  # fmt: skip


def podman_host(rim: Rim, *, trial: bool = False) -> PodmanHost:
    """Connect to podman. Raises `PodmanFailed` with the cause."""
    return PodmanHost(socket=open_podman(), folders=rim.folders, trial=trial)


@dataclass(frozen=True, kw_only=True, slots=True)
class PodmanHost:
    """Containers of fleet's on this machine; `trial` keeps those of measurements apart."""

    socket: PodmanSocket
    folders: Folders
    name: str = LOCAL
    trial: bool = False

    def running(self) -> tuple[RunningServer, ...]:
        """Return every container that fleet made here, ended ones as `failed`."""
        filters = {"label": [f"{LABEL}deployment", f"{LABEL}trial={json.dumps(self.trial)}"]}
        listed = self.socket.get("/containers/json", all=True, filters=filters) or []
        looked = (self.socket.get(f"/containers/{each['Id']}/json") for each in listed)
        return tuple(self._seen(found) for found in looked if found is not None)

    def start(self, launch: LaunchConfig, *, generation: int) -> RunningServer:
        """Create and start the container; returns at once.

        Raises `OutsideError` when the name is taken, also by a container of others'.
        """
        if launch.image is None:
            fix = "name an `image:` or a `containerfile:` in the engine profile"
            raise UserError("the runtime `podman` needs an image", where=launch.deployment, fix=fix)
        self._refuse_taken_name(launch)
        if not self.socket.get(f"/images/{launch.image}/json"):
            fix = f"`fleet build {launch.deployment}`, or `podman pull {launch.image}`"
            raise OutsideError(f"the image {launch.image} is missing", where=self.name, fix=fix)
        self._deliver_secrets(launch)
        spec = container_spec(
            launch,
            generation=generation,
            url=server_url(launch),
            limits=_own_limits(),
            user=reader(launch.model_path),
        )
        spec["labels"][f"{LABEL}trial"] = json.dumps(self.trial)
        created = self.socket.post("/containers/create", spec)
        try:
            self.socket.post(f"/containers/{created['Id']}/start")
        except PodmanFailed:
            # what could not start would block the name, and podman's service its port
            self.socket.delete(f"/containers/{created['Id']}", force=True)
            self.socket.renew()
            raise
        return self._seen(self.socket.get(f"/containers/{created['Id']}/json"))

    def stop(self, server: RunningServer) -> None:
        """TERM, TERM again after a second (the first waits for open requests), then KILL."""
        container = server.container or server.container_name
        found = self.socket.get(f"/containers/{container}/json")
        if found is None or not _ours(found):
            return
        for signal, wait_s in (("TERM", DRAIN_S), ("TERM", DRAIN_S), ("KILL", KILL_S)):
            if self._ended(container, signal, wait_s):
                break
        self._keep_log(found)
        self.socket.delete(f"/containers/{container}", force=True)
        for secret in found["Config"].get("Secrets") or ():
            self.socket.delete(f"/secrets/{secret['Name']}")

    def logs(self, server: RunningServer, *, follow: bool = False) -> Iterator[str]:
        """Yield the container's lines, or those kept when it was removed."""
        name = server.container_name
        found = self.socket.get(f"/containers/{name}/json")
        if found is not None and _ours(found):
            yield from self.socket.log_lines(found["Id"], follow=follow)
        elif self._log(name).exists():
            yield from self._log(name).read_text(errors="replace").splitlines()

    def memory_bytes(self, server: RunningServer) -> int:
        """Return the resident memory of the engine, 0 when it has ended."""
        found = self.socket.get(f"/containers/{server.container}/json") or {}
        return resident_bytes(int(found.get("State", {}).get("Pid") or 0))

    def _refuse_taken_name(self, launch: LaunchConfig) -> None:
        found = self.socket.get(f"/containers/{launch.container_name}/json")
        if found is None:
            return
        whose = "already" if _ours(found) else "that fleet did not make"
        fix = f"see `podman ps -a --filter name={launch.container_name}`; rename or remove it"
        message = f"there is a container of this name {whose}"
        raise OutsideError(message, where=launch.container_name, fix=fix)

    def _deliver_secrets(self, launch: LaunchConfig) -> None:
        """Make the podman secrets of a launch anew: their content cannot be read back."""
        for secret in launch.secrets:
            key = ensure_key(self.folders, launch.deployment)
            self.socket.delete(f"/secrets/{secret.name}")
            self.socket.post("/secrets/create", key, name=secret.name)

    def _ended(self, container: str, signal: str, wait_s: float) -> bool:
        """Send `signal` and look whether the container ends within `wait_s` seconds."""
        if not _alive(self.socket.get(f"/containers/{container}/json")):
            return True
        try:
            self.socket.post(f"/containers/{container}/kill", signal=signal)
        except PodmanFailed:
            # it ended between the look and the signal
            if _alive(self.socket.get(f"/containers/{container}/json")):
                raise
            return True
        until = time.monotonic() + wait_s
        while time.monotonic() < until:
            if not _alive(self.socket.get(f"/containers/{container}/json")):
                return True
            time.sleep(LOOK_S)
        return False

    def _keep_log(self, found: dict[str, Any]) -> None:
        """Write the last lines into a file before they go with the container."""
        if self.trial:
            return
        lines = [*self.socket.log_lines(found["Id"])][-KEPT_LINES:]
        write_atomically(self._log(found["Name"]), "\n".join(lines) + "\n", mode=0o600)

    def _log(self, name: str) -> Path:
        return self.folders.state / "logs" / f"{name}.log"

    def _seen(self, found: dict[str, Any]) -> RunningServer:
        label = found["Config"]["Labels"]
        state = found["State"]
        status = STATES.get(state["Status"], "failed")
        return RunningServer(
            deployment=label[f"{LABEL}deployment"],
            server=label[f"{LABEL}server"],
            host=self.name,
            state=status,
            generation=int(label.get(f"{LABEL}generation", 0)),
            digest=label.get(f"{LABEL}digest", ""),
            url=label.get(f"{LABEL}url"),
            container=found["Id"][:12],
            argv=tuple(found["Config"].get("Cmd") or ()),
            settings=_settings(label, found.get("HostConfig", {})),
            image=found.get("ImageName"),
            exit_code=int(state.get("ExitCode") or 0) if status == "failed" else None,
            started_at=started_at(state),
            log_path=str(self._log(found["Name"])),
        )


def _ours(found: dict[str, Any]) -> bool:
    return f"{LABEL}deployment" in (found["Config"].get("Labels") or {})


def _alive(found: dict[str, Any] | None) -> bool:
    return found is not None and found["State"]["Status"] in {"running", "stopping", "paused"}


def _settings(
    label: dict[str, str], host: dict[str, Any]
) -> tuple[tuple[str, str | int | float | bool | None], ...]:
    """Return the settings of the label, and limits that someone changed behind our back."""
    settings = dict(json.loads(label.get(f"{LABEL}settings", "{}")))
    memory = int(host.get("Memory") or 0)
    if memory != int(label.get(f"{LABEL}memory", memory)):
        settings["memory_limit"] = memory
    cpus = host.get("CpusetCpus") or ""
    if cpus != label.get(f"{LABEL}cpuset", cpus):
        settings["cpuset"] = cpus
    return tuple(settings.items())


def _own_limits() -> dict[str, tuple[int, int]]:
    """Return this process's own limits: never above what the machine lets a child have."""
    kinds = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    return {name: resource.getrlimit(kind) for name, kind in kinds.items()}


def reader(model: str | None) -> str | None:
    """Return who the engine is inside: an ordinary user where that one may read the model.

    Else the model's owner, for root one without any capability; without root that is the
    container's own root, which is we ourselves. None leaves it to the image.
    """
    path = Path(model or "")
    try:
        file, folder = path.stat(), path.parent.stat()
    except OSError:
        return None
    if file.st_mode & stat.S_IROTH and folder.st_mode & stat.S_IXOTH:
        return USER
    return f"{file.st_uid}:{file.st_gid}" if os.geteuid() == ROOT else "0:0"
