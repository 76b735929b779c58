"""What the engine inside an image accepts, asked once for each image."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fleet.effects.files import write_atomically
from fleet.facts.build_facts import BuildFacts, Engine, Flag
from fleet.facts.known_builds import known_llama_cpp_builds
from fleet.facts.parse_help import with_number
from fleet.observe.probe_engine import probe_image

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.deploy.rim import Rim


def image_build(image: str, engine: Engine, rim: Rim) -> BuildFacts | None:
    """Return the facts of the engine in `image`, None when the image is not here.

    Remembered by the image's id in the cache folder. Raises `OutsideError` when the image
    holds no such engine.
    """
    argv = ("podman", "image", "inspect", "--format", "{{.Id}}", image)
    asked = rim.commands.run(argv, timeout_s=60.0)
    if not asked.ok:
        return None
    path = rim.folders.cache / "builds" / f"{asked.stdout.strip()[:32]}.json"
    known = _remembered(path)
    if known is not None:
        return known
    found = probe_image(rim.commands, image, engine=engine)
    if found.number is None and engine == "llama.cpp":
        found = with_number(found, known_llama_cpp_builds())
    write_atomically(path, json.dumps(asdict(found)))
    return found


def _remembered(path: Path) -> BuildFacts | None:
    """Return what was written; anything else is asked again."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        flags = {name: Flag(**_tuples(flag)) for name, flag in found.pop("flags").items()}
        return BuildFacts(**_tuples(found), flags=flags)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }
