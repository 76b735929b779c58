"""What every runtime must do; one subclass a runtime gives the host and a launch for it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleet.effects.http import Http
from fleet.effects.machine import free_port
from fleet.errors import OutsideError
from fleet.observe.server_client import ServerClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.compiler.launch_config import LaunchConfig
    from fleet.deploy.server_host import ServerHost
    from fleet.observe.observation import RunningServer

# tiny random models answer bytes that are no text unless held to letters
LETTERS = "root ::= [a-z]+"
HTTP = Http()


class ServerHostContract:
    """Subclasses define the fixtures `host`, `launch` and `stop_bar_s`."""

    stop_bar_s: float

    @pytest.fixture
    def host(self) -> ServerHost:
        raise NotImplementedError

    @pytest.fixture
    def launch(self) -> LaunchConfig:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _ends_what_it_started(self, host: ServerHost) -> Iterator[None]:
        yield
        for server in host.running():
            host.stop(server)

    def test_runs_nothing_at_first(self, host: ServerHost) -> None:
        assert host.running() == ()

    def test_what_was_started_is_listed_as_it_was_started(
        self, host: ServerHost, launch: LaunchConfig
    ) -> None:
        host.start(launch, generation=3)

        (seen,) = host.running()

        assert (seen.deployment, seen.server, seen.host) == (
            launch.deployment,
            launch.server,
            host.name,
        )
        assert (seen.generation, seen.digest) == (3, launch.digest)
        assert dict(seen.settings) == dict(launch.settings)
        assert seen.state in {"starting", "running"}
        assert seen.url == f"http://127.0.0.1:{launch.port}"

    def test_start_returns_before_the_server_is_ready_and_it_becomes_so(
        self, host: ServerHost, launch: LaunchConfig
    ) -> None:
        client = client_of(host.start(launch, generation=1))

        wait_until_ready(client)

        assert client.context() == 512

    def test_a_second_start_of_the_same_name_is_refused_and_touches_nothing(
        self, host: ServerHost, launch: LaunchConfig
    ) -> None:
        first = host.start(launch, generation=1)

        with pytest.raises(OutsideError, match=r"runs already|of this name"):
            host.start(replace(launch, port=free_port()), generation=2)

        (seen,) = host.running()
        assert (seen.generation, seen.pid, seen.container) == (1, first.pid, first.container)

    def test_stop_ends_and_forgets_it_and_its_log_stays(
        self, host: ServerHost, launch: LaunchConfig
    ) -> None:
        server = host.start(launch, generation=1)
        wait_until_ready(client_of(server))

        host.stop(server)

        assert host.running() == ()
        assert client_of(server).health() == "unreachable"
        assert any("model loaded" in line for line in host.logs(server))

    def test_stop_of_what_is_gone_does_nothing(
        self, host: ServerHost, launch: LaunchConfig
    ) -> None:
        server = host.start(launch, generation=1)
        host.stop(server)

        host.stop(server)

        assert host.running() == ()

    def test_stop_is_fast_with_a_request_open(self, host: ServerHost, launch: LaunchConfig) -> None:
        server = host.start(launch, generation=1)
        client = client_of(server)
        wait_until_ready(client)
        asking = threading.Thread(target=_ask_for_long, args=(client,))
        asking.start()
        _wait_until_busy(client)

        began = time.monotonic()
        host.stop(server)
        took = time.monotonic() - began

        asking.join(10.0)
        assert host.running() == ()
        assert took < self.stop_bar_s

    def test_a_server_that_cannot_start_is_failed_and_its_log_says_why(
        self, host: ServerHost, launch: LaunchConfig
    ) -> None:
        server = host.start(without_model(launch), generation=1)

        until = time.monotonic() + 20
        while host.running()[0].state != "failed" and time.monotonic() < until:
            time.sleep(0.05)

        assert host.running()[0].state == "failed"
        assert any("No such file" in line for line in host.logs(server))

    def test_log_holds_the_last_start_only(self, host: ServerHost, launch: LaunchConfig) -> None:
        host.stop(host.start(without_model(launch), generation=1))
        server = host.start(launch, generation=2)
        wait_until_ready(client_of(server))

        lines = tuple(host.logs(server))

        assert not any("No such file" in line for line in lines)
        assert any("model loaded" in line for line in lines)

    def test_following_a_log_ends_with_the_server(
        self, host: ServerHost, launch: LaunchConfig
    ) -> None:
        server = host.start(launch, generation=1)
        seen: list[str] = []
        reading = threading.Thread(target=lambda: seen.extend(host.logs(server, follow=True)))
        reading.start()
        wait_until_ready(client_of(server))

        host.stop(server)
        reading.join(5.0)

        assert not reading.is_alive()
        assert any("model loaded" in line for line in seen)


def client_of(server: RunningServer) -> ServerClient:
    return ServerClient(url=server.url or "", http=HTTP)


def wait_until_ready(client: ServerClient) -> None:
    until = time.monotonic() + 60
    while client.health() != "ready":
        assert time.monotonic() < until, "not ready within a minute"
        time.sleep(0.02)


def without_model(launch: LaunchConfig) -> LaunchConfig:
    """Return the launch with the model's path leading nowhere."""
    argv = tuple(f"{word}.gone" if word.endswith(".gguf") else word for word in launch.argv)
    attributes = tuple(
        (name, f"{value}.gone" if name == "model.path" else value)
        for name, value in launch.attributes
    )
    return replace(launch, argv=argv, attributes=attributes)


def _ask_for_long(client: ServerClient) -> None:
    body = {"prompt": "a", "n_predict": 100_000, "ignore_eos": True, "grammar": LETTERS}
    with suppress(OutsideError):
        client.completion({**body, "n_keep": 1})


def _wait_until_busy(client: ServerClient) -> None:
    until = time.monotonic() + 20
    while not any(slot["is_processing"] for slot in client.slots()):
        assert time.monotonic() < until, "the request never began"
        time.sleep(0.02)
