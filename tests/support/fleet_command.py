"""Run `fleet` as a user does, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The error object of a command that failed with `--json`."""
        return dict(self.json["error"])


def fleet(*words: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Ran:
    """Run `fleet WORDS` to its end."""
    done = subprocess.run(
        fleet_words(*words), capture_output=True, text=True, check=False, cwd=cwd,
        env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip
    return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


def fleet_words(*words: str) -> list[str]:
    """Return the command line of `fleet WORDS` with this interpreter."""
    return [sys.executable, "-m", "fleet", *words]
