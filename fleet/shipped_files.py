"""Where the profiles, playbooks and container templates that travel with fleet lie.

In a checkout they are the folders beside the package; in an installed wheel they are
inside it, under `fleet/_shipped/` (see `[tool.hatch.build]` in pyproject.toml).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

_PACKAGE = Path(__file__).resolve().parent

type_of_folder = Literal["profiles", "playbooks", "containers"]


def shipped_folder(name: type_of_folder) -> Path:
    """Return the folder `name` of this installation; it always exists."""
    installed = _PACKAGE / "_shipped" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


def shipped_text(path: str) -> str:
    """Return the text of a data file inside the package, named relative to it."""
    return (_PACKAGE / path).read_text(encoding="utf-8")


def container_templates() -> tuple[str, ...]:
    """Return the names of the Containerfiles in `containers/`."""
    suffix = ".Containerfile"
    files = shipped_folder("containers").glob(f"*{suffix}")
    return tuple(sorted(file.name.removesuffix(suffix) for file in files))


def container_template(name: str) -> str:
    """Return the text of one of them."""
    return (shipped_folder("containers") / f"{name}.Containerfile").read_text(encoding="utf-8")
