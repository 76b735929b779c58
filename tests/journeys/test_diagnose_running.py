"""`fleet diagnose NAME`: a real engine over a window, and vLLM's metrics page as recorded."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from fleet.cli.diagnose_running import scrape
from fleet.deploy.rim import Rim
from fleet.diagnose.diagnosis import judge
from fleet.diagnose.diagnosis_json import diagnosis_json
from fleet.diagnose.live import add_live
from fleet.diagnose.read_log.log_reading import LogReading
from fleet.diagnose.task_rules import TaskTally
from fleet.effects.http import Http
from fleet.effects.machine import free_port
from fleet.observe.observation import RunningServer
from fleet.observe.server_client import ServerClient
from support.fleet_command import fleet

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROMPT = "A clock of the harbour museum, told at some length: wheels, weights and a bell. "


@pytest.mark.llama
@pytest.mark.parametrize(("level", "traced"), [(4, True), (3, False), (2, False)])
def test_a_running_server_is_read_over_a_window(
    level: int, traced: bool, tiny_models: Mapping[str, Path], home: Path
) -> None:
    pytest.importorskip("xllamacpp", reason="pip install 'fleet[demo]'")
    assert home
    sets = {"port": free_port(), "ctx_size": 1024, "threads": 1, "log_verbosity": level}
    words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    try:
        up = fleet("up", str(tiny_models["llama"]), *words, "--json")
        assert up.code == 0, up.out
        client = ServerClient(url=up.json["servers"][0]["url"], http=Http())
        told = [ask(client, number)["timings"] for number in range(2)]
        done = threading.Event()
        asking = threading.Thread(target=ask_until, args=(client, done))
        asking.start()
        found = fleet("diagnose", "name:llama", "--window", "2s", "--json").json
        done.set()
        asking.join()
        text = fleet("diagnose", "llama").out
    finally:
        fleet("down", "llama", "--yes")
    stopped = fleet("diagnose", "llama", "--json").json

    codes = {one["code"]: one for one in found["findings"]}
    assert ("VERBOSITY_TOO_LOW" in codes) is not traced
    assert traced or "log_verbosity: 4" in text or "-lv 4" in text
    tasks = {(task["processed_tokens"], task["cached_tokens"]) for task in found["tasks"]}
    assert level == 2 or {(one["prompt_n"], one["cache_n"]) for one in told} <= tasks
    assert found["live"]["processed_tokens"] > 0
    assert found["live"]["cached_tokens"] > 0
    assert found["n_slots"] == 1
    assert level == 2 or len(stopped["tasks"]) >= len(told)
    assert any("stopped" in note for note in stopped["notes"])


def ask(client: ServerClient, number: int) -> Mapping[str, Any]:
    return client.completion({"prompt": f"{PROMPT}{number}", "n_predict": 2})


def ask_until(client: ServerClient, done: threading.Event) -> None:
    number = 2
    while not done.wait(0.2):
        ask(client, number)
        number += 1


STAND_IN = """
import http.server, sys
LABELS = 'engine="0",model_name="m"'
class Answer(http.server.BaseHTTPRequestHandler):
    looks = 0
    def do_GET(self):
        if self.path != "/metrics":
            return self.send_error(404)
        Answer.looks += 1
        n = Answer.looks
        rows = {"prefix_cache_queries_total": 9000.0 + 1000 * n,
                "prefix_cache_hits_total": 9000.0 + 160 * n, "num_preemptions_total": 0.0,
                "num_requests_running": 3.0, "num_requests_waiting": 1.0,
                "kv_cache_usage_perc": 0.25}
        page = "".join(f"# TYPE vllm:{k} x\\nvllm:{k}{{{LABELS}}} {v}\\n" for k, v in rows.items())
        page += ('vllm:cache_config_info{block_size="16",cache_dtype="auto",'
                 'effective_attention_block_size="1056",enable_prefix_caching="True"} 1.0\\n')
        self.send_response(200)
        self.end_headers()
        self.wfile.write(page.encode())
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
print(server.server_port, flush=True)
server.serve_forever()
"""


def test_vllm_tells_its_hits_over_the_window_and_its_whole_cache_setup() -> None:
    process = subprocess.Popen([sys.executable, "-c", STAND_IN], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        server = RunningServer(
            deployment="pair", server="server", host="local", state="running", generation=1,
            digest="", url=url,
        )  # fmt: skip
        first, second = (scrape(server, Rim()) for _ in range(2))
    finally:
        process.kill()
        process.communicate()
    silent = scrape(server, Rim())

    reading = LogReading()
    add_live(reading, first, second)
    found = diagnosis_json(judge(reading, TaskTally()))
    assert found["engine"] == "vllm"
    assert found["vllm"]["prefix_hit_rate"] == 0.16
    assert (found["vllm"]["running"], found["vllm"]["waiting"]) == (3, 1)
    assert found["vllm"]["attention_block_size"] == 1056
    said = {one["code"] for one in found["findings"]}
    assert {"VLLM_PREFIX_HIT_LOW", "VLLM_HYBRID_BLOCK_LARGE"} <= said
    assert "VLLM_PREEMPTION" not in said
    assert silent.metrics == ()
    assert any("metrics" in each for each in silent.missing)
