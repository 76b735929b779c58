"""Turns made for tests."""

from __future__ import annotations

from fleet.bench.turn import Turn


def turn(
    *,
    conversation: str = "P0",
    condition: str = "C0",
    repeat: int = 1,
    number: int = 1,
    **more: object,
) -> Turn:
    values = {
        "processed_tokens": 100,
        "cached_tokens": 0,
        "generated_tokens": 11,
        "prefill_ms": 1000.0,
        "decode_ms": 500.0,
        "ttft_ms": 1010.0,
        "wall_ms": 1520.0,
        "draft_n": 0,
        "draft_accepted": 0,
        "cold": number == 1,
        "retries": 0,
        "answer_sha256": "a" * 64,
    } | more
    return Turn(
        conversation=conversation, condition=condition, repeat=repeat, turn=number, **values
    )  # type: ignore[arg-type]
