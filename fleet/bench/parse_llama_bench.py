"""The JSON lines of llama-bench as values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fleet.errors import OutsideError


@dataclass(frozen=True, kw_only=True, slots=True)
class RawRow:
    """One test: `prompt` tokens read or `generated` tokens made at `depth`, tokens a second.

    `samples` are the single repetitions, of which `mean` and `spread` were made.
    """

    prompt: int
    generated: int
    depth: int
    mean: float
    spread: float
    samples: tuple[float, ...]
    build: int | None
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        """The test as llama-bench writes it: `pp512`, `tg128 @ d4096`."""
        what = f"pp{self.prompt}" if self.prompt else ""
        what += f"{'+' if what and self.generated else ''}"
        what += f"tg{self.generated}" if self.generated else ""
        return f"{what} @ d{self.depth}" if self.depth else what


_SETTINGS = (
    "n_threads", "n_batch", "n_ubatch", "type_k", "type_v", "n_gpu_layers", "flash_attn",
    "load_mode", "use_mmap", "model_type", "model_size", "backends", "cpu_info", "gpu_info",
)  # fmt: skip


def parse_llama_bench(text: str) -> tuple[RawRow, ...]:
    """Read what `llama-bench -o jsonl` printed; other lines are its log and are passed over.

    Raises `OutsideError` when no test is among them.
    """
    rows = tuple(_row(line) for line in text.splitlines() if line.startswith('{"build_commit"'))
    if not rows:
        last = text.strip().splitlines()[-1:] or ["nothing"]
        raise OutsideError(f"llama-bench measured nothing, its last line: {last[0]}")
    return rows


def _row(line: str) -> RawRow:
    try:
        row = json.loads(line)
        return RawRow(
            prompt=int(row["n_prompt"]),
            generated=int(row["n_gen"]),
            depth=int(row.get("n_depth", 0)),
            mean=float(row["avg_ts"]),
            spread=float(row["stddev_ts"]),
            samples=tuple(float(sample) for sample in row.get("samples_ts", ())),
            build=row.get("build_number"),
            settings={name: row[name] for name in _SETTINGS if name in row},
        )
    except (ValueError, KeyError, TypeError) as error:
        raise OutsideError(f"a line of llama-bench cannot be read: {error}") from None
