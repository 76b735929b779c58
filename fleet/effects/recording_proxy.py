"""A loopback address that passes requests on and keeps their bodies.

Run as `python -m` with TARGET and FILE; it prints its port on the first line of its output.
Kept lines are appended whole to a file that only its owner can read; headers, and so keys,
are passed on and never kept.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

KEPT_PATHS = ("/completion", "/completions", "/v1/completions", "/v1/chat/completions",
              "/chat/completions", "/v1/messages", "/v1/responses")  # fmt: skip
HOP_HEADERS = {"connection", "transfer-encoding", "content-length", "host", "keep-alive"}
BAD_GATEWAY = 502


def serve(target: str, file: str) -> None:
    """Pass every request on to `target` until the process ends."""
    lock = threading.Lock()
    client = httpx.Client(timeout=None, trust_env=False)  # noqa: S113 - answers take as long as they take

    class Recorder(BaseHTTPRequestHandler):
        """One request: keep its body, pass it on, pass the answer back as it comes."""

        protocol_version = "HTTP/1.0"  # the end of the connection ends the answer

        def do_GET(self) -> None:
            """Pass a GET on."""
            self._pass_on(b"")

        def do_POST(self) -> None:
            """Keep and pass on a POST."""
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.path.partition("?")[0] in KEPT_PATHS:
                _keep(file, body, lock)
            self._pass_on(body)

        def _pass_on(self, body: bytes) -> None:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP_HEADERS}
            try:
                with client.stream(
                    self.command, target + self.path, content=body, headers=headers
                ) as answer:
                    self.send_response(answer.status_code)
                    for name, value in answer.headers.items():
                        if name.lower() not in HOP_HEADERS | {"content-encoding"}:
                            self.send_header(name, value)
                    self.end_headers()
                    for piece in answer.iter_bytes():
                        self.wfile.write(piece)
                        self.wfile.flush()
            except httpx.HTTPError as error:
                self.send_error(BAD_GATEWAY, explain=str(error))

        def log_message(self, *_words: object) -> None:
            """Say nothing: paths can carry what users wrote."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


def _keep(file: str, body: bytes, lock: threading.Lock) -> None:
    try:
        line = json.dumps(json.loads(body), ensure_ascii=False)
    except ValueError:
        return
    with lock:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.encode() + b"\n")
        finally:
            os.close(descriptor)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
