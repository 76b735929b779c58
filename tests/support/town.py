"""A deployment on hosts in network namespaces, driven as a person drives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from support.net_hosts import start_network

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from support.net_hosts import NetHost, Network

NAME = "town"


@dataclass(kw_only=True, slots=True)
class Town:
    """Folders of one controller and its hosts; `write` changes the deployment's file."""

    folder: Path
    network: Network
    model: Path
    image: str
    build: str = "b11549"
    name: str = NAME
    engine: str = "llama.cpp"

    @property
    def hosts(self) -> list[NetHost]:
        return self.network.hosts

    def write(
        self,
        *,
        settings: Mapping[str, object] | None = None,
        model: Mapping[str, object] | None = None,
        **keys: object,
    ) -> None:
        """Write the profiles anew; `model` in place of the model that lies here."""
        profiles = self.folder / "profiles"
        profiles.mkdir(parents=True, exist_ok=True)
        small = {"ctx_size": 1024, "parallel": 1, "threads": 1}
        known = {**(small if self.engine == "llama.cpp" else {}), **(settings or {})}
        engine = {"engine": self.engine, "image": self.image, "build": self.build}
        self._write("engine", "packaged", engine)
        self._write("model", "tiny", model or {"path": str(self.model)})
        named = {
            "hardware": "auto", "model": "tiny", "engine": "packaged", "topology": "replicas",
            "hosts": [self.target(host) for host in self.hosts], "settings": known, **keys,
        }  # fmt: skip
        self._write("deployment", self.name, named)

    def target(self, host: NetHost) -> dict[str, object]:
        """Return the host as a deployment names it."""
        return {
            "name": host.name, "address": host.address, "user": "root",
            "key_file": str(host.key_file), "fabric_address": host.fabric,
            "fabric_interface": "fab0",
        }  # fmt: skip

    def variables(self) -> dict[str, str]:
        kinds = ("config", "state", "cache")
        folders = {f"XDG_{kind.upper()}_HOME": str(self.folder / kind) for kind in kinds}
        return {**os.environ, **folders}

    def popen(self, *words: str) -> subprocess.Popen[str]:
        """Start fleet and return at once."""
        return subprocess.Popen(
            [sys.executable, "-m", "fleet", *words], cwd=self.folder, env=self.variables(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def fleet(self, *words: str) -> tuple[int, Any]:
        """Run fleet with `--json`; return its exit code and its answer."""
        with self.popen(*words, "--json") as process:
            said, noted = process.communicate()
        assert said.strip(), noted
        return process.returncode, json.loads(said)

    def containers(self, host: NetHost) -> list[Any]:
        """Return podman's own list of the host's containers."""
        return json.loads(host.run("podman ps --all --format json").stdout or "[]")

    def ask(self, host: NetHost, port: int = 8080) -> dict[str, Any]:
        """Let the server of a host complete a text, asked on the host itself."""
        body = json.dumps({"prompt": "hello", "n_predict": 4})
        answer = host.run(f"curl -sS 127.0.0.1:{port}/completion -d '{body}'")
        return json.loads(answer.stdout)

    @contextmanager
    def stranger_listens(self, host: NetHost, port: int) -> Iterator[None]:
        """Let another program listen on a port of the host."""
        program = f"import http.server as h; h.test(port={port}, bind='127.0.0.1')"
        words = ["nsenter", f"--net=/run/netns/{host.namespace}", sys.executable, "-c", program]
        with subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as stranger:
            try:
                while host.run(f"ss -Hltn sport = :{port}").stdout == "":
                    assert stranger.poll() is None, "it could not take the port"
                    time.sleep(0.05)
                yield
            finally:
                stranger.kill()

    def _write(self, kind: str, name: str, content: Mapping[str, object]) -> None:
        # JSON is YAML
        text = json.dumps({"kind": kind, "version": 1, "name": name, **content})
        (self.folder / "profiles" / f"{name}.yaml").write_text(text)


@contextmanager
def town_of_two(
    folder: Path, *, podman: Mapping[str, str], model: Path, image: str
) -> Iterator[Town]:
    """Give a town of two new hosts, whose servers read prompts in small batches."""
    network = start_network(2, podman)
    try:
        made = Town(folder=folder, network=network, model=model, image=image)
        made.write(settings={"batch_size": 32, "ubatch_size": 32})
        yield made
    finally:
        network.remove()
