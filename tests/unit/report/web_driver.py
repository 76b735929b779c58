"""A real Chromium driven through ChromeDriver's own HTTP protocol."""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from fleet.effects.machine import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars",
)  # fmt: skip
MISSING = "needs Chromium: `apt-get install chromium chromium-driver`"


def available() -> bool:
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


@dataclass(frozen=True)
class Browser:
    """One session; `run` evaluates JavaScript and returns its value."""

    url: str

    def post(self, path: str, body: dict[str, Any]) -> Any:
        answer = httpx.post(f"{self.url}{path}", json=body, timeout=60)
        answer.raise_for_status()
        return answer.json()["value"]

    def open(self, page: Path) -> None:
        self.post("/url", {"url": page.as_uri()})

    def run(self, script: str) -> Any:
        return self.post("/execute/sync", {"script": script, "args": []})

    def devtools(self, command: str, **parameters: object) -> Any:
        return self.post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=phone,
        )  # fmt: skip

    def scheme(self, name: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": name}
        self.devtools("Emulation.setEmulatedMedia", features=[feature])

    def press(self, key: str) -> None:
        keys = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        self.post("/actions", {"actions": [{"type": "key", "id": "keys", "actions": keys}]})

    def messages(self) -> list[str]:
        found = self.post("/se/log", {"type": "browser"})
        return [entry["message"] for entry in found]

    def screenshot(self, to: Path) -> None:
        found = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        to.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    port = free_port()
    driver = subprocess.Popen(
        ("chromedriver", f"--port={port}"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    root = f"http://127.0.0.1:{port}"
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            _await(root)
            wanted = {
                "browserName": "chrome",
                "goog:loggingPrefs": {"browser": "ALL"},
                "goog:chromeOptions": {"args": [*FLAGS, f"--user-data-dir={folder}"]},
            }
            made = httpx.post(
                f"{root}/session", json={"capabilities": {"alwaysMatch": wanted}}, timeout=60
            ).json()["value"]
            session = f"{root}/session/{made['sessionId']}"
            try:
                yield Browser(session)
            finally:
                httpx.delete(session, timeout=30)
    finally:
        driver.terminate()
        driver.wait()


def _await(root: str) -> None:
    for _ in range(200):
        try:
            if httpx.get(f"{root}/status").is_success:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise TimeoutError(root)
