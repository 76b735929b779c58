"""A loopback address that passes requests on and keeps their bodies.

Run as `python -m` with TARGET and FILE; it prints its port on the first line of its output.
Kept lines are appended whole to a file that only its owner can read; headers, and so keys,
are passed on and never kept.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fleet.effects.http import connect

KEPT_PATHS = ("/completion", "/completions", "/v1/completions", "/v1/chat/completions",
              "/chat/completions", "/v1/messages", "/v1/responses")  # fmt: skip
HOP_HEADERS = {"connection", "transfer-encoding", "content-length", "host", "keep-alive"}
BAD_GATEWAY = 502
PIECE = 2**16


def serve(target: str, file: str) -> None:
    """Pass every request on to `target` until the process ends."""
    lock = threading.Lock()

    class Recorder(BaseHTTPRequestHandler):
        """One request: keep its body, pass it on, pass the answer back as it comes."""

        protocol_version = "HTTP/1.0"  # the end of the connection ends the answer

        def do_GET(self) -> None:
            """Pass a GET on."""
            _pass_on(self, target, b"")

        def do_POST(self) -> None:
            """Keep and pass on a POST."""
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.path.partition("?")[0] in KEPT_PATHS:
                _keep(file, body, lock)
            _pass_on(self, target, body)

        def log_message(self, *_words: object) -> None:
            """Say nothing: paths can carry what users wrote."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


def _pass_on(asked: BaseHTTPRequestHandler, target: str, body: bytes) -> None:
    headers = {k: v for k, v in asked.headers.items() if k.lower() not in HOP_HEADERS}
    connection = connect(target, timeout_s=None)  # answers take as long as they take
    try:
        connection.request(asked.command, asked.path, body or None, headers)
        _pass_back(asked, connection.getresponse())
    except (OSError, http.client.HTTPException) as error:
        asked.send_error(BAD_GATEWAY, explain=str(error))
    finally:
        connection.close()


def _pass_back(asked: BaseHTTPRequestHandler, answer: http.client.HTTPResponse) -> None:
    asked.send_response(answer.status)
    for name, value in answer.getheaders():
        if name.lower() not in HOP_HEADERS:
            asked.send_header(name, value)
    asked.end_headers()
    while piece := answer.read1(PIECE):
        asked.wfile.write(piece)
        asked.wfile.flush()


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
