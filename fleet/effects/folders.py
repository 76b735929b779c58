"""The three folders outside of which fleet writes nothing unasked."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path


def config_folder() -> Path:
    """`$XDG_CONFIG_HOME/fleet`: the user's profiles and keys."""
    return _folder("XDG_CONFIG_HOME", ".config")


def state_folder() -> Path:
    """`$XDG_STATE_HOME/fleet`: records, generations, logs, locks."""
    return _folder("XDG_STATE_HOME", ".local/state")


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/fleet`: models and image build contexts."""
    return _folder("XDG_CACHE_HOME", ".cache")


@dataclass(frozen=True, kw_only=True, slots=True)
class Folders:
    """The three, as one value that a test can point elsewhere."""

    config: Path = field(default_factory=config_folder)
    state: Path = field(default_factory=state_folder)
    cache: Path = field(default_factory=cache_folder)


def _folder(variable: str, below_home: str) -> Path:
    # the XDG specification says that a relative path is to be ignored
    named = os.environ.get(variable, "")
    root = Path(named) if Path(named).is_absolute() else Path.home() / below_home
    return root / "fleet"
