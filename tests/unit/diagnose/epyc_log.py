"""A log in ik_llama.cpp's grammar with the figures of a slow DeepSeek server on one EPYC."""

# ruff: noqa: E501 - lines of a log are as long as they are
from __future__ import annotations

TASKS = (
    # task, prompt tokens read, generated, PP tok/s, TG tok/s, PP s, TG s, in the slot after
    (0, 2731, 1024, 99.75, 14.57, 27.38, 70.28, 3755),
    (1026, 857, 1024, 74.47, 15.21, 11.51, 67.32, 5636),
    (2051, 381, 912, 52.92, 14.51, 5.9, 67.7, 6929),
    (3034, 4865, 1024, 100.22, 14.22, 48.54, 72.01, 12818),
)
START = """\
INFO [                    main] build info | tid="1" timestamp=1769000000 build=4100 commit="0a1b2c3d"
llm_load_print_meta: arch             = deepseek2
llama_init_from_model: n_ctx         = 16384
llama_init_from_model: n_batch       = 2048
llama_init_from_model: n_ubatch      = 512
llama_init_from_model: flash_attn    = 1
llama_init_from_model: mla_attn      = 3
llama_init_from_model: fused_moe     = 1
llama_init_from_model: KV self size  =  1098.00 MiB, c^KV (f16): 1098.00 MiB, kv^T: not used
no implementations specified for speculative decoding
"""


def epyc_log() -> str:
    """Return the whole log."""
    return START + "".join(_task(row, before) for row, before in zip(TASKS, _before(), strict=True))


def _before() -> list[int]:
    return [0, *(row[7] for row in TASKS[:-1])]


def _task(row: tuple[int, int, int, float, float, float, float, int], held: int) -> str:
    task, read, made, pp, tg, pp_s, tg_s, left = row
    first = left - made - read
    tag = f'tid="1" timestamp={1769000100 + task} id_slot=0 id_task={task}'
    mismatch = (
        f"======== Cache: cache_size = {held}, n_past0 =  {first}, n_past1 =  {first}, "
        f"n_past_prompt1 = {first},  n_past2 =  {first}, n_past_prompt2 =  {first}\n"
        "Common part does not match fully\n"
        if held
        else ""
    )
    return (
        f"INFO [   launch_slot_with_task] slot is processing task | {tag}\n"
        f"{mismatch}"
        f"INFO [            update_slots] kv cache rm [p0, end) | {tag} p0={first}\n"
        f"INFO [           print_timings] prompt eval time     = {pp_s * 1000:11.2f} ms / {read:5d} "
        f"tokens ({pp_s * 1000 / read:8.2f} ms per token, {pp:8.2f} tokens per second) | {tag}\n"
        f"INFO [           print_timings] generation eval time = {tg_s * 1000:11.2f} ms / {made:5d} "
        f"runs   ({tg_s * 1000 / made:8.2f} ms per token, {tg:8.2f} tokens per second) | {tag}\n"
        f"INFO [            update_slots] slot released | {tag} n_ctx=16384 n_past={left - 1} "
        f"n_system_tokens=0 n_cache_tokens={left - 1} truncated=false\n"
    )
