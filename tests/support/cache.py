"""The folder that holds what the tests build once: environments, images, models.

`FLEET_TEST_CACHE` names it, else it is `fleet-tests` in the user's cache folder.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Missing(Exception):
    """A real part of a test cannot be had here; the text says what would bring it."""


def cache_folder() -> Path:
    """Return the folder, made if it was not there."""
    chosen = os.environ.get("FLEET_TEST_CACHE")
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(chosen) if chosen else user / "fleet-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Hold the cache's lock `name`, so that two test runs do not build the same thing."""
    path = cache_folder() / "locks" / name
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
