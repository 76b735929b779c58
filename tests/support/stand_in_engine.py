"""A process that answers as llama-server does, as fast and as wrongly as a test asks.

`python stand_in_engine.py ORDER.json`: the order holds the launch's settings and port, and
`behaviour`: `sleep_s` for each request, and for settings given as `name=value` one of `hang`
(never answers), `die` (ends while it loads, its log says that memory is out), `garbage`
(text that is no JSON), `wrong` (other tokens than all others), `deaf` (never healthy), `eat`
(takes memory until it is killed). `cgroup` is a control group's folder to be in.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.deploy.launch_record import launch_from_json, launch_to_json
from fleet.observe.observation import RunningServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleet.compiler.launch_config import LaunchConfig

TOKENS = 4000


@dataclass(frozen=True, kw_only=True, slots=True)
class StandInHost:
    """A place for stand-in servers; what runs is written in `folder`, as a real host knows it."""

    folder: Path
    behaviour: Mapping[str, Any]
    name: str = "local"

    def running(self) -> tuple[RunningServer, ...]:
        self.folder.mkdir(parents=True, exist_ok=True)
        return tuple(self._seen(file) for file in sorted(self.folder.glob("*.json")))

    def start(self, launch: LaunchConfig, *, generation: int) -> RunningServer:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{launch.container_name}.json"
        order = {
            "settings": dict(launch.settings), "port": launch.port, "behaviour": self.behaviour,
            "launch": launch_to_json(launch), "generation": generation,
        }  # fmt: skip
        with file.with_suffix(".log").open("w") as log:
            child = subprocess.Popen(
                [sys.executable, __file__, json.dumps(order)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps({**order, "pid": child.pid}))
        partial.rename(file)
        return replace(self._seen(file), state="starting")

    def stop(self, server: RunningServer) -> None:
        if server.pid is not None and alive(server.pid):
            os.kill(server.pid, signal.SIGKILL)
        (self.folder / f"fleet-{server.deployment}-{server.server}.json").unlink(missing_ok=True)

    def logs(self, server: RunningServer, *, follow: bool = False) -> Iterator[str]:
        del follow
        log = self.folder / f"fleet-{server.deployment}-{server.server}.log"
        yield from log.read_text().splitlines()

    def _seen(self, file: Path) -> RunningServer:
        order = json.loads(file.read_text())
        launch = launch_from_json(order["launch"], where=str(file))
        return RunningServer(
            deployment=launch.deployment, server=launch.server, host=launch.host,
            state="running" if alive(order["pid"]) else "failed", generation=order["generation"],
            digest=launch.digest, url=f"http://127.0.0.1:{launch.port}", pid=order["pid"],
            settings=launch.settings, argv=launch.argv,
        )  # fmt: skip


def alive(pid: int) -> bool:
    """Whether the process runs; a dead child of ours is reaped."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def serve(order: Mapping[str, Any]) -> None:
    """Answer until killed."""
    settings, behaviour = order["settings"], order["behaviour"]
    kinds = {f"{name}={value}" for name, value in settings.items()}
    trouble = {kind for setting, kind in behaviour.get("trouble", {}).items() if setting in kinds}
    if "cgroup" in behaviour:
        Path(behaviour["cgroup"], "cgroup.procs").write_text(str(os.getpid()))
    if "die" in trouble:
        sys.stderr.write("E alloc: failed to allocate buffer of size 1099511627776\n")
        sys.exit(1)
    handler = type("Handler", (Answers,), {
        "settings": settings, "trouble": trouble, "sleep_s": behaviour.get("sleep_s", 0.0),
    })  # fmt: skip
    ThreadingHTTPServer(("127.0.0.1", order["port"]), handler).serve_forever()


class Answers(BaseHTTPRequestHandler):
    """What llama-server says, with timings that follow from the settings alone."""

    settings: Mapping[str, Any]
    trouble: set[str]
    sleep_s: float

    def do_GET(self) -> None:
        if self.path == "/health":
            self._say({"status": "ok"}, status=503 if "deaf" in self.trouble else 200)
        else:
            self._say({"default_generation_settings": {"n_ctx": self.settings["ctx_size"]}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            self._say({"tokens": list(range(TOKENS))})
            return
        measured = body.get("ignore_eos", False)
        if measured and "hang" in self.trouble:
            time.sleep(3600)
        if measured and "garbage" in self.trouble:
            self._write(b"<html>", 200)
            return
        eaten: list[bytes] = []
        while measured and "eat" in self.trouble:
            eaten.append(os.urandom(16 << 20))
        if measured:
            time.sleep(self.sleep_s)
        self._say(self._answer(body))

    def _answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        rate = 100.0 * float(self.settings.get("ubatch_size") or 512) ** 0.5
        prompt = len(body["prompt"]) if isinstance(body["prompt"], list) else 16
        made = body["n_predict"]
        likely = range(500, 510) if "wrong" in self.trouble else range(10)
        return {
            "content": "a" * made,
            "timings": {
                "cache_n": 0, "prompt_n": prompt, "prompt_ms": 1000 * prompt / rate,
                "predicted_n": made, "predicted_ms": 10.0 * made,
            },
            "completion_probabilities": [{"top_logprobs": [{"id": each} for each in likely]}],
        }  # fmt: skip

    def _say(self, answer: object, *, status: int = 200) -> None:
        self._write(json.dumps(answer).encode(), status)

    def _write(self, content: bytes, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
