"""Whether two logs were measured under equal conditions, and what they say if so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleet.diagnose.diagnosis import Diagnosis
    from fleet.diagnose.read_log.log_reading import LogReading

NOT_IN_LOGS = ("sampling", "stop", "stream", "thinking")
SLACK = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A condition that was not the same."""

    condition: str
    a: str
    b: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """`differences` forbid a verdict; `unknown` could not be seen in either log."""

    differences: tuple[Difference, ...]
    unknown: tuple[str, ...]
    rates: tuple[tuple[str, float, float], ...]

    @property
    def comparable(self) -> bool:
        """Whether the rates may be set against each other."""
        return not self.differences


def compare_runs(a: Diagnosis, b: Diagnosis) -> Comparison:
    """Compare the conditions of two logs, and their rates where that is fair."""
    differences, unknown = [], []
    for condition, read in CONDITIONS.items():
        left, right = read(a.reading), read(b.reading)
        if left is None or right is None:
            unknown.append(condition)
        elif left != right:
            differences.append(Difference(condition=condition, a=left, b=right))
    return Comparison(
        differences=tuple(differences),
        unknown=tuple(unknown),
        rates=_rates(a.reading, b.reading) if not differences else (),
    )


def _output_tokens(reading: LogReading) -> str | None:
    counts = [task.gen for task in reading.tasks() if task.gen is not None]
    return ", ".join(str(count) for count in counts[:20]) if counts else None


def _prompt_tokens(reading: LogReading) -> str | None:
    counts = [task.prompt for task in reading.tasks() if task.prompt is not None]
    return ", ".join(str(count) for count in counts[:20]) if counts else None


def _truncated(reading: LogReading) -> str | None:
    return f"{reading.count('truncated')} cut at the context's end" if reading.task_count else None


def _hardware(reading: LogReading) -> str | None:
    names = sorted(reading.gpus - {"GPU"})
    return ", ".join(names) if names else None


def _kv(reading: LogReading) -> str | None:
    kv, options = reading.kv, reading.options
    if kv and kv.k:
        return f"K {kv.k}, V {kv.v}"
    return f"K {options['ctk']}, V {options.get('ctv', 'f16')}" if "ctk" in options else None


def _concurrency(reading: LogReading) -> str | None:
    if not reading.task_count:
        return None
    slots = {task.slot for task in reading.tasks() if task.slot is not None}
    return f"{len(slots)} slots in use" if slots else None


def _option(name: str) -> Callable[[LogReading], str | None]:
    return lambda reading: reading.options.get(name)


def _figure(name: str) -> Callable[[LogReading], str | None]:
    def read(reading: LogReading) -> str | None:
        value = getattr(reading, name)
        return None if value is None else str(value)

    return read


CONDITIONS: Mapping[str, Callable[[LogReading], str | None]] = {
    "output tokens": _output_tokens,
    "prompt tokens": _prompt_tokens,
    "truncation": _truncated,
    "hardware": _hardware,
    "layers on the accelerator": _figure("gpu_layers"),
    "threads": _option("threads"),
    "KV type": _kv,
    "flash attention": _figure("flash_attn"),
    "context": _figure("n_ctx"),
    "slots": _figure("n_slots"),
    "concurrency": _concurrency,
    **{name: _option(name) for name in NOT_IN_LOGS},
}


def _rates(a: LogReading, b: LogReading) -> tuple[tuple[str, float, float], ...]:
    rows = []
    for name, tokens, ms in (("pp_tps", "processed", "pp_ms"), ("tg_tps", "gen", "tg_ms")):
        pair = [
            reading.totals[tokens] / reading.totals[ms] * 1000
            for reading in (a, b)
            if reading.totals.get(ms) and tokens in reading.totals
        ]
        if len(pair) == 2:  # noqa: PLR2004
            rows.append((name, round(pair[0], 3), round(pair[1], 3)))
    return tuple(rows)
