"""What this machine draws: processor packages by RAPL's counters, GPUs by nvidia-smi."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from fleet.errors import OutsideError

RAPL = Path("/sys/class/powercap")
LOOK_S = 0.25
NVIDIA = ("nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits")


@dataclass(kw_only=True, slots=True)
class PowerMeter:
    """Mean watts between `start` and `stop`; counters that wrapped are put right."""

    rapl: Path = RAPL
    _began: float = 0.0
    _energy: dict[Path, float] = field(default_factory=dict)
    _gpu: list[float] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _watch: threading.Thread | None = None

    def check_readable(self) -> None:
        """Raise `OutsideError` when nothing here tells what is drawn."""
        if not self._joules() and not _gpu_watts():
            message = "the power that this machine draws cannot be read"
            fix = "RAPL (/sys/class/powercap, as root) or nvidia-smi is needed for `--max-power`"
            raise OutsideError(message, where=str(self.rapl), fix=fix)

    def start(self) -> None:
        """Begin to measure."""
        self._began, self._energy = time.monotonic(), self._joules()
        self._gpu, self._ended = [], threading.Event()
        if shutil.which(NVIDIA[0]):
            self._watch = threading.Thread(target=self._look_at_gpus, daemon=True)
            self._watch.start()

    def stop(self) -> float:
        """Return the mean watts since `start`, of all packages and GPUs together."""
        self._ended.set()
        if self._watch is not None:
            self._watch.join()
        passed = max(time.monotonic() - self._began, 1e-6)
        now = self._joules()
        used = sum(
            now[domain] - before + (_range(domain) if now[domain] < before else 0.0)
            for domain, before in self._energy.items()
            if domain in now
        )
        return used / passed + (mean(self._gpu) if self._gpu else 0.0)

    def _joules(self) -> dict[Path, float]:
        """Return each package's counter; those that may not be read are left out."""
        found = {}
        # a package is `intel-rapl:0`; `intel-rapl:0:1` is a part of it
        for domain in self.rapl.glob("intel-rapl:[0-9]*"):
            if domain.name.count(":") == 1:
                try:
                    found[domain] = int((domain / "energy_uj").read_text()) / 1e6
                except (OSError, ValueError):
                    continue
        return found

    def _look_at_gpus(self) -> None:
        while not self._ended.wait(LOOK_S):
            self._gpu += [sum(watts)] if (watts := _gpu_watts()) else []


def _range(domain: Path) -> float:
    return int((domain / "max_energy_range_uj").read_text()) / 1e6


def _gpu_watts() -> list[float]:
    if shutil.which(NVIDIA[0]) is None:
        return []
    told = subprocess.run(NVIDIA, capture_output=True, text=True, check=False)
    words = told.stdout.split()
    return [float(word) for word in words if word.replace(".", "", 1).isdigit()]
