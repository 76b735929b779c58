"""A real HTTP server that answers like llama-server and fails as that one never would on demand."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from fleet.compiler.launch_config import LaunchConfig
from fleet.effects.http import Http
from fleet.observe.server_client import ServerClient

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Behaviour:
    """What the server does; `cut` requests are broken off first, `context` is what it says."""

    cut: int = 0
    timings: bool = True
    usage: bool = True
    context: int = 4096
    build: str = "b1-x"
    status: int = 200
    metrics: list[str] = field(default_factory=list)
    born: list[int] = field(default_factory=list)  # the start that goes with each of them
    requests: list[dict[str, Any]] = field(default_factory=list)
    alive: bool = True
    mortal: bool = False


class _Handler(BaseHTTPRequestHandler):
    behaviour: Behaviour

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass

    def do_GET(self) -> None:
        answers = {
            "/props": json.dumps(
                {
                    "build_info": self.behaviour.build,
                    "total_slots": 1,
                    "default_generation_settings": {"n_ctx": self.behaviour.context},
                }
            ),
            "/slots": json.dumps([{"id": 0}]),
            "/metrics": self.behaviour.metrics[0] if self.behaviour.metrics else "",
        }
        born = self.behaviour.born[:1]
        if self.path == "/metrics" and len(self.behaviour.metrics) > 1:
            self.behaviour.metrics.pop(0)
            self.behaviour.born[:1] = []
        if not answers[self.path]:
            self.send_error(503)
            return
        told = {"Process-Start-Time-Unix": str(born[0])} if born else {}
        self._say(answers[self.path].encode(), headers=told)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            self._say(json.dumps({"tokens": list(range(len(body["content"]) // 4))}).encode())
        elif self.path == "/apply-template":
            self._say(json.dumps({"prompt": str(body["messages"])}).encode())
        elif self.path == "/completion":
            self.behaviour.requests.append(body)
            self._say(json.dumps({"content": ""}).encode())
        else:
            self._chat(body)

    def _chat(self, body: dict[str, Any]) -> None:
        self.behaviour.requests.append(body)
        if self.behaviour.status != 200:
            self._say(json.dumps({"error": {"message": "no"}}).encode(), self.behaviour.status)
            return
        if self.behaviour.cut > 0:
            self.behaviour.cut -= 1
            self.send_response(200)
            self.send_header("Content-Length", "9999")
            self.end_headers()
            self.wfile.write(b"data: {}\n\n")
            return
        last: dict[str, Any] = {"choices": [{"delta": {}, "finish_reason": "length"}]}
        if self.behaviour.timings:
            last["timings"] = {
                "cache_n": 5, "prompt_n": 7, "prompt_ms": 3.0, "predicted_n": 2,
                "predicted_ms": 1.0,
            }  # fmt: skip
        if self.behaviour.usage:
            last["usage"] = {"prompt_tokens": 12, "completion_tokens": 2}
        events = [{"choices": [{"delta": {"content": part}}]} for part in ("he", "llo")]
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in [*events, last])
        self._say(f"{text}data: [DONE]\n\n".encode())

    def _say(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@dataclass
class FaultyTrial:
    """Looks like a trial server to the bench."""

    behaviour: Behaviour
    url: str
    settings: tuple[tuple[str, Any], ...]
    api_key: str | None = None
    load_s: float = 0.1

    @property
    def client(self) -> ServerClient:
        return ServerClient(url=self.url, http=Http())

    @property
    def launch(self) -> LaunchConfig:
        return LaunchConfig(
            deployment="d", server="s", host="local", engine="llama.cpp", build=1,
            program="llama-server", argv=("--port", self.url.rsplit(":", 1)[1]),
            settings=self.settings,
        )  # fmt: skip

    def alive(self) -> bool:
        return self.behaviour.alive

    def log_lines(self) -> tuple[str, ...]:
        return ("load_tensors: offloaded 13/13 layers to GPU", "the last line")

    def memory_bytes(self) -> int:
        return 1000


class Starts:
    """A `StartServer`: serves `behaviour`, counts its starts; one start may differ."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.started = 0
        self.overrides: list[dict[str, Any]] = []

    @contextmanager
    def __call__(self, deployment: Any, *, overrides: Any) -> Iterator[Any]:  # noqa: ARG002
        self.started += 1
        self.overrides.append(dict(overrides))
        self.behaviour.alive = not self.behaviour.mortal
        with served(self.behaviour) as url:
            yield FaultyTrial(
                behaviour=self.behaviour, url=url, settings=tuple(sorted(overrides.items()))
            )


@contextmanager
def served(behaviour: Behaviour) -> Iterator[str]:
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Handler", (_Handler,), {"behaviour": behaviour})
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
