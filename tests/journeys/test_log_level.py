"""The planned log level shows the cache and none of the prompts, asked of the real engines."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from conftest import have
from fleet.compiler.complete_settings import TRACE_LEVEL
from fleet.compiler.dialects.llama_cpp import has_trace_level
from fleet.facts.known_builds import build_facts
from support import engines

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.llama
MARKER = "zanzibar"
READY_S = 60.0
FLUSH_S = 1.0  # the engine writes its log from a thread of its own
SERVE = """
import sys, time, xllamacpp as x
p = x.CommonParams()
p.model.path, p.port, p.n_ctx, p.verbosity = sys.argv[1], int(sys.argv[2]), 512, int(sys.argv[3])
if hasattr(p, "hostnames"):
    p.hostnames = ["127.0.0.1"]
p.warmup = False
server = x.Server(p)
time.sleep(300)
"""


def test_level_four_of_a_newer_build_holds_no_prompt(
    wheel_engine: engines.WheelEngine, tiny_models: Mapping[str, Path], tmp_path: Path
) -> None:
    assert has_trace_level(build_facts("llama.cpp", wheel_engine.build))
    port, log = _free_port(), tmp_path / "log"
    words = [str(wheel_engine.server), "-m", str(tiny_models["llama"]), "-c", "512"]
    words += ["--port", str(port), "-lv", str(TRACE_LEVEL), "--no-warmup"]

    text = _log_of(words, port, log)

    assert "KV buffer size" in text
    assert MARKER not in text


@pytest.mark.slow
@pytest.mark.parametrize(("build", "plain"), [(9093, False), (9538, True)])
def test_the_builds_around_the_change(
    build: int, *, plain: bool, tiny_models: Mapping[str, Path], tmp_path: Path
) -> None:
    python = have(lambda: engines.older_embedded(build))
    port, log = _free_port(), tmp_path / "log"
    words = [str(python), "-c", SERVE, str(tiny_models["llama"]), str(port), str(TRACE_LEVEL)]

    text = _log_of(words, port, log)

    assert (MARKER not in text) is plain
    assert has_trace_level(build_facts("llama.cpp", build)) is plain


def _log_of(words: list[str], port: int, log: Path) -> str:
    """Start a server, ask it something with the marker, end it, return its log."""
    with log.open("w") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, env=dict(os.environ))
        try:
            _ask_when_ready(process, port)
            time.sleep(FLUSH_S)
        finally:
            process.kill()
            process.wait()
    return log.read_text(errors="replace")


def _ask_when_ready(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + READY_S
    body = {"prompt": f"tell me of {MARKER} ", "n_predict": 2, "grammar": "root ::= [a-z]+"}
    while process.poll() is None and time.monotonic() < until:
        try:
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/completion", json.dumps(body).encode()
            )
            urllib.request.urlopen(request, timeout=60).read()  # noqa: S310 - our own server
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("the server did not answer")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
