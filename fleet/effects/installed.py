"""What is installed beside fleet: the embedded engine and models that come as packages."""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import TYPE_CHECKING

from fleet.errors import OutsideError

if TYPE_CHECKING:
    from pathlib import Path


def embedded_build() -> int | None:
    """Return the llama.cpp build inside xllamacpp (11549 of 2026.10.11549), None without it."""
    try:
        version = metadata.version("xllamacpp")
    except metadata.PackageNotFoundError:
        return None
    last = version.split(".")[-1]
    return int(last) if last.isdigit() else None


def assemble_package(package: str, target: Path) -> Path:
    """Join and check the parts of the model package `package` into `target`.

    Raises `OutsideError` when it is not installed or its parts are damaged.
    """
    module_name = package.replace("-", "_")
    try:
        module = importlib.import_module(module_name)
    except ImportError:
        fix = f"`pip install {package.replace('_', '-')}` (or `pip install 'fleet[demo]'`)"
        raise OutsideError("the model's package is not installed", where=package, fix=fix) from None
    part = target.with_name(f"{target.name}.part")
    try:
        module.assemble(part, overwrite=True)
    except (ValueError, RuntimeError) as error:
        fix = f"`pip install --force-reinstall {package}`"
        raise OutsideError(
            f"the model's package is damaged: {error}", where=package, fix=fix
        ) from None
    part.replace(target)
    return target
