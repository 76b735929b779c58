"""A hub of models on loopback: `python fake_hub.py FOLDER [CUT]` prints its port and serves.

FOLDER holds ORG/REPO/FILE. The first time a file is asked for, its connection is cut after
CUT bytes (never without CUT). Requests are written to FOLDER/requests.jsonl.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "1" * 40
RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)")


class Hub(BaseHTTPRequestHandler):
    folder: Path
    cut: int
    seen: set[str]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = self.path.partition("?")[0]
        with (self.folder / "requests.jsonl").open("a") as log:
            asked = {"method": self.command, "path": path, "range": self.headers.get("Range")}
            log.write(json.dumps(asked) + "\n")
        if path.startswith("/api/models/"):
            self._model(path.removeprefix("/api/models/").partition("/revision/")[0])
        elif (match := RESOLVE.fullmatch(path)) and (self.folder / match[1] / match[2]).exists():
            self._file(self.folder / match[1] / match[2], body=body)
        else:
            self._missing()

    def _model(self, repo: str) -> None:
        files = sorted(file for file in (self.folder / repo).glob("**/*") if file.is_file())
        if not files:
            self._missing()
            return
        siblings = [
            {
                "rfilename": str(file.relative_to(self.folder / repo)),
                "size": file.stat().st_size,
                "lfs": {"sha256": _sha256(file), "size": file.stat().st_size, "pointerSize": 134},
            }
            for file in files
        ]
        text = json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings}).encode()
        self._head(200, {"Content-Type": "application/json", "Content-Length": str(len(text))})
        self.wfile.write(text)

    def _file(self, file: Path, *, body: bool) -> None:
        raw = file.read_bytes()
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        start = int(match[1]) if match else 0
        part = raw[start:]
        headers = {"Content-Length": str(len(part)), "Accept-Ranges": "bytes",
                   "ETag": f'"{_sha256(file)}"', "X-Repo-Commit": COMMIT}  # fmt: skip
        if match:
            headers["Content-Range"] = f"bytes {start}-{len(raw) - 1}/{len(raw)}"
        self._head(206 if match else 200, headers)
        if not body:
            return
        cut = self.cut and self.path not in self.seen
        self.seen.add(self.path)
        self.wfile.write(part[: self.cut] if cut else part)
        self.close_connection = True

    def _missing(self) -> None:
        self._head(404, {"X-Error-Code": "RepoNotFound", "Content-Length": "0"})

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def _sha256(file: Path) -> str:
    recorded = file.parent / f".{file.name}.sha256"  # a test may say another one
    return (
        recorded.read_text() if recorded.exists() else hashlib.sha256(file.read_bytes()).hexdigest()
    )


if __name__ == "__main__":
    members = {"folder": Path(sys.argv[1]), "seen": set(), "cut": int((*sys.argv, "0", "0")[2])}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Served", (Hub,), members))
    print(server.server_port, flush=True)
    server.serve_forever()
