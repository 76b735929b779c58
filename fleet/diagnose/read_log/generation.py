"""Which engine and which generation of log it was, by what was seen in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleet.diagnose.read_log.log_reading import LogReading

OLD_FUNCTIONS = {
    "llm_load_tensors", "llama_new_context_with_model", "llm_load_print_meta",
    "llama_model_load_internal", "llama_init_from_file",
}  # fmt: skip
GEN2_FUNCTIONS = {"load_tensors", "llama_kv_cache", "llama_context", "llama_init_from_model"}


def settle_generation(reading: LogReading) -> None:
    """Set engine and generation from the marks; None when nothing was recognised."""
    marks = reading.marks
    kv = reading.kv
    if reading.vllm.seen and not marks & {"slots", "stamps", "started23"}:
        reading.engine = "vllm"
        reading.generation = _vllm(marks)
        return
    if reading.engine is None and (
        "ik-cache" in marks
        or "ik" in marks
        or (kv is not None and kv.mla and marks & OLD_FUNCTIONS)
    ):
        reading.engine = "ik_llama.cpp"
    if reading.engine == "ik_llama.cpp":
        reading.generation = "ik-new" if marks & {"ik-cache", "slots"} else "ik-old"
        return
    reading.generation = next((name for seen, name in GENERATIONS if marks & seen), None)
    if reading.generation is not None or reading.events:
        reading.engine = "llama.cpp"
        reading.generation = reading.generation or NEWEST


def _vllm(marks: set[str]) -> str:
    if "v0" in marks and "v1" not in marks:
        return "vllm-v0"
    return "vllm-metrics" if "metrics" in marks and "v1" not in marks else "vllm-v1"


GENERATIONS: tuple[tuple[set[str], str], ...] = (
    ({"timings"}, "timings-json"),
    ({"stamps", "jsonl"}, "gen3-ts"),
    ({"json23", "slots23"}, "gen0-2023"),
    ({"brackets"}, "gen1-2024"),
    ({"slots", "reuse", "srv", "gen2"}, "gen2-slots"),
    ({*OLD_FUNCTIONS, "old-timing"}, "gen1-2024"),
    ({*GEN2_FUNCTIONS, "timing"}, "gen2-slots"),
)
NEWEST = "gen3-ts"  # when no wording tells an older one
