"""Talk to podman over its socket; a service is started for as long as we need it if none runs."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import podman
import requests
from podman.errors import APIError, PodmanError

from fleet.effects.podman_causes import PodmanFailed, explain, short

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SERVICE_START_S = 20.0
IDLE_S = "300"
LOOK_S = 0.02
ROOT = 0
NOT_FOUND = 404


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
            found: Any = self._client.containers.get(container)
            for frame in found.logs(stream=True, follow=follow, stdout=True, stderr=True):
                *whole, rest = (rest + frame).split(b"\n")
                yield from (line.decode(errors="replace") for line in whole)
        if rest:
            yield rest.decode(errors="replace")


def open_podman() -> PodmanSocket:
    """Connect to the socket that is there, else start a service and end it when we end.

    Raises `PodmanFailed` when podman is missing or not allowed, with the cause; also when the
    socket that CONTAINER_HOST names does not answer: our own service would be another podman.
    """
    refused: list[str] = []
    for address in _addresses():
        try:
            client: Any = podman.PodmanClient(base_url=address)  # reads a file in the home folder
            client.version()
        except (APIError, PodmanError, requests.RequestException, OSError) as error:
            refused.append(f"{address}: {short(str(error))}")
            continue
        return PodmanSocket(client)
    if refused and _named():
        raise explain(refused[0], where="CONTAINER_HOST")
    service = OwnService()
    return PodmanSocket(service.connect(refused), service)


def _addresses() -> list[str]:
    """Return the sockets that exist: the one named, then the system's or the user's own."""
    if _named():
        return [_named()]
    if os.environ.get("CONTAINERS_STORAGE_CONF"):
        return []  # another storage than the one a system service has
    run = "/run" if os.geteuid() == ROOT else os.environ.get("XDG_RUNTIME_DIR", "")
    usual = Path(run) / "podman" / "podman.sock"
    return [f"unix://{usual}"] if run and usual.exists() else []


def _named() -> str:
    named = os.environ.get("CONTAINER_HOST", "")
    return named if named.startswith("unix://") else ""


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

    def connect(self, refused: list[str]) -> Any:  # noqa: ANN401 - untyped library
        """Return a client as soon as the service answers. Raises `PodmanFailed`."""
        until = time.monotonic() + SERVICE_START_S
        while time.monotonic() < until:
            if self.ended():
                raise explain(" ".join([self._log.read_text(errors="replace"), *refused]))
            if self._socket.exists():
                client: Any = podman.PodmanClient(base_url=f"unix://{self._socket}")
                with suppress(APIError, PodmanError, requests.RequestException, OSError):
                    client.version()
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
