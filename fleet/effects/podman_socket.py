"""Talk to podman over its socket; a service is started for as long as we need it if none runs."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import podman
import requests
from podman.errors import APIError, PodmanError

from fleet.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SERVICE_START_S = 20.0
IDLE_S = "300"
LOOK_S = 0.02
ROOT = 0
NOT_FOUND = 404


class _Cause(NamedTuple):
    pattern: re.Pattern[str]
    message: str
    fix: str


def _cause(pattern: str, message: str, fix: str) -> _Cause:
    return _Cause(re.compile(pattern, re.IGNORECASE), message, fix)


# what podman says, what it means, what mends it
CAUSES = (
    _cause(r"RLIMIT_\w+.*(?:operation not permitted|permission denied)|setrlimit",
           "podman's default limits are above what this machine allows",
           "in /etc/containers/containers.conf: `[containers]` `default_ulimits = "
           '["nofile=1024:1024", "nproc=1024:1024"]`'),
    _cause(r"cgroups in hybrid mode not supported",
           "crun does not run on hybrid cgroups",
           'install runc and set `[engine]` `runtime = "runc"` in containers.conf'),
    _cause(r"no cgroup mount found|cgroup.*(?:no such file|not mounted)",
           "the cgroup file systems are not mounted here", "mount /sys/fs/cgroup, then try again"),
    _cause(r"image not known|no such image|manifest unknown|unable to find image",
           "the image is missing", "`fleet build NAME` builds it, or `podman pull` it"),
    _cause(r"newuidmap|/etc/subuid|cannot set up namespace|cannot re-exec process",
           "rootless podman lacks sub-uids for this user",
           "install uidmap, then `usermod --add-subuids 100000-165535 --add-subgids ... USER`"),
    _cause(r"bind: address already in use|rootlessport listen",
           "the port is in use", "choose another `port:`, or end what listens there"),
    _cause(r"runtime \S+ not found|could not find .*(?:crun|runc)|oci runtime.*not found",
           "no container runtime is installed", "install crun or runc"),
    _cause(r"netavark|could not find .*network|cni",
           "podman's network back end is missing", "install netavark and aardvark-dns"),
    _cause(r"unresolvable CDI devices|could not resolve device",
           "the GPU is not known to podman",
           "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"),
    _cause(r"permission denied", "podman is not allowed to do this",
           "use a socket of your own, or run as the user that owns it"),
    _cause(r"no space left", "the disk is full", "free some space: `podman system df`, `df -h`"),
)  # fmt: skip


class PodmanFailed(OutsideError):
    """Podman said no; the message names the cause when it is a known one."""

    kind = "podman"


def explain(said: str, *, where: str | None = None) -> PodmanFailed:
    """Return the error for what podman said."""
    for cause in CAUSES:
        if cause.pattern.search(said):
            return PodmanFailed(f"{cause.message} ({_short(said)})", where=where, fix=cause.fix)
    return PodmanFailed(_short(said), where=where, fix="`fleet doctor` looks for the cause")


class PodmanSocket:
    """One connection; JSON in, JSON out, in the words of podman's own API (libpod)."""

    def __init__(self, client: podman.PodmanClient, service: OwnService | None = None) -> None:
        """Keep the client and the service that we started for it; `open_podman` makes both."""
        self._client = client
        self._service = service

    def renew(self) -> None:
        """Start our own service anew: after a failed start it still listens on that port."""
        if self._service is not None:
            self._service.end()
            self._service = OwnService()
            self._client = self._service.connect([])

    def _api(self) -> Any:  # noqa: ANN401 - untyped library
        if self._service is not None and self._service.ended():
            self.renew()  # it leaves after a time without work
        return self._client.api

    def get(self, path: str, **query: Any) -> Any:  # noqa: ANN401 - JSON
        """GET; None for what does not exist. Raises `PodmanFailed`."""
        with _explained():
            answer = self._api().get(path, params=_query(query))
            if answer.status_code == NOT_FOUND:
                return None
            answer.raise_for_status()
            return answer.json()

    def post(self, path: str, body: Mapping[str, Any] | str | None = None, **query: Any) -> Any:  # noqa: ANN401 - JSON
        """POST; the answer's JSON, None where it has none. Raises `PodmanFailed`."""
        text = body if isinstance(body, str) else json.dumps(body) if body is not None else None
        with _explained():
            answer = self._api().post(
                path, data=text, params=_query(query), headers={"Content-Type": "application/json"}
            )
            answer.raise_for_status()
            return answer.json() if answer.text.strip().startswith(("{", "[")) else None

    def delete(self, path: str, **query: Any) -> None:  # noqa: ANN401 - query values
        """DELETE; what is gone already is no failure. Raises `PodmanFailed`."""
        with _explained():
            answer = self._api().delete(path, params=_query(query))
            if answer.status_code != NOT_FOUND:
                answer.raise_for_status()

    def log_lines(self, container: str, *, follow: bool = False) -> Iterator[str]:
        """Yield the lines of a container's log, oldest first."""
        rest = b""
        with _explained():
            self._api()
            found = self._client.containers.get(container)
            for frame in _frames(found, follow=follow):
                *whole, rest = (rest + frame).split(b"\n")
                yield from (line.decode(errors="replace") for line in whole)
        if rest:
            yield rest.decode(errors="replace")


def _frames(container: Any, *, follow: bool) -> Iterator[bytes]:  # noqa: ANN401 - untyped library
    """Yield the log in the pieces in which it comes."""
    yield from container.logs(stream=True, follow=follow, stdout=True, stderr=True)


def _answers(client: Any) -> None:  # noqa: ANN401 - untyped library
    """Ask for the version, which raises when nobody answers."""
    client.version()


def open_podman() -> PodmanSocket:
    """Connect to the socket that is there, else start a service and end it when we end.

    Raises `PodmanFailed` when podman is missing or not allowed, with the cause.
    """
    refused: list[str] = []
    for address in _addresses():
        client = podman.PodmanClient(base_url=address)
        try:
            _answers(client)
        except (APIError, PodmanError, requests.RequestException, OSError) as error:
            refused.append(f"{address}: {_short(str(error))}")
            continue
        return PodmanSocket(client)
    service = OwnService()
    return PodmanSocket(service.connect(refused), service)


def _addresses() -> list[str]:
    """Return the sockets that exist: the one named, then the system's or the user's own."""
    named = os.environ.get("CONTAINER_HOST", "")
    if named.startswith("unix://"):
        return [named]
    if os.environ.get("CONTAINERS_STORAGE_CONF"):
        return []  # another storage than the one a system service has
    run = "/run" if os.geteuid() == ROOT else os.environ.get("XDG_RUNTIME_DIR", "")
    usual = Path(run) / "podman" / "podman.sock"
    return [f"unix://{usual}"] if run and usual.exists() else []


class OwnService:
    """`podman system service` as our child; it ends with us, or alone after minutes of silence."""

    def __init__(self) -> None:
        """Start it. Raises `PodmanFailed` when there is no podman."""
        self._folder = Path(tempfile.mkdtemp(prefix="fleet-podman-"))
        self._socket, self._log = self._folder / "podman.sock", self._folder / "service.log"
        words = ("podman", "system", "service", "--time", IDLE_S, f"unix://{self._socket}")
        try:
            with self._log.open("wb") as output:
                self._process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=output, stderr=output
                )
        except FileNotFoundError:
            fix = "install it (`apt-get install podman`), or use `--runtime embedded`"
            raise PodmanFailed("podman is not installed", fix=fix) from None
        except PermissionError:
            fix = "see `ls -l $(which podman)`"
            raise PodmanFailed("podman may not be run by this user", fix=fix) from None
        atexit.register(self.end)

    def connect(self, refused: list[str]) -> podman.PodmanClient:
        """Return a client as soon as the service answers. Raises `PodmanFailed`."""
        until = time.monotonic() + SERVICE_START_S
        while time.monotonic() < until:
            if self.ended():
                raise explain(" ".join([self._log.read_text(errors="replace"), *refused]))
            if self._socket.exists():
                client = podman.PodmanClient(base_url=f"unix://{self._socket}")
                with suppress(APIError, PodmanError, requests.RequestException, OSError):
                    _answers(client)
                    return client
            time.sleep(LOOK_S)
        message = f"its service did not answer within {SERVICE_START_S:.0f} s"
        raise PodmanFailed(message, where="podman", fix="try `podman info`")

    def ended(self) -> bool:
        """Whether the service has ended."""
        return self._process.poll() is not None

    def end(self) -> None:
        """End the service; containers go on, they belong to conmon."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        if not self.ended():
            self._process.kill()
            self._process.wait(2.0)
        shutil.rmtree(self._folder, ignore_errors=True)
        atexit.unregister(self.end)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except APIError as error:
        raise explain(str(error.explanation or error)) from None
    except (PodmanError, requests.RequestException, OSError) as error:
        raise explain(str(error)) from None


def _query(query: Mapping[str, Any]) -> dict[str, str]:
    return {
        key: json.dumps(value) if isinstance(value, dict | bool | list) else str(value)
        for key, value in query.items()
    }


def _short(said: str) -> str:
    return " ".join(said.split())[:300]
