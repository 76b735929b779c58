"""Build what the tests need before they run, and say what cannot be had here."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support import engines, models, podman_env
from support.cache import Missing

PARTS = {
    "demo model": models.demo_model,
    "tiny models": models.tiny_models,
    "engine image": podman_env.ensure_engine_image,
    "older engine with RPC": engines.wheel_engine,
}


def main() -> None:
    """Prepare each part; a missing one is named, and its tests will be skipped."""
    for name, prepare in PARTS.items():
        try:
            prepare()
        except Missing as missing:
            print(f"no {name}: {missing}")


if __name__ == "__main__":
    main()
