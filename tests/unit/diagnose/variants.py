"""Excerpts in the grammar of each engine and year, and the findings each must (not) give.

A row: name, log, findings that must be there, findings that must not, figures by the words
of `diagnose --json` (dots for inner ones).
"""

# ruff: noqa: E501 - lines of a log are as long as they are
from __future__ import annotations

from typing import Any, NamedTuple


class Variant(NamedTuple):
    """One excerpt and what it means."""

    name: str
    log: str
    findings: set[str] = set()  # noqa: RUF012 - rows are read only
    traps: set[str] = set()  # noqa: RUF012 - as above
    figures: dict[str, Any] = {}  # noqa: RUF012 - as above


FORCED = (
    "forcing full prompt re-processing due to lack of cache data (likely due to SWA or "
    "hybrid/recurrent memory, see a pull request)"
)
VARIANTS = (
    Variant(
        "newest, three tasks at default verbosity",
        """\
0.01.000.000 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 8192, kv_unified = 'false'
0.02.000.000 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = -1
0.02.000.100 I slot launch_slot_: id  0 | task 0 | processing task, is_child = 0
0.04.000.000 I slot print_timing: id  0 | task 0 | prompt eval time =     500.00 ms /   800 tokens (    0.62 ms per token,  1600.00 tokens per second)
0.04.000.001 I slot print_timing: id  0 | task 0 |        eval time =    1000.00 ms /    50 tokens (   20.00 ms per token,    50.00 tokens per second)
0.04.000.002 I slot      release: id  0 | task 0 | stop processing: n_tokens = 849, truncated = 0
0.05.000.000 I slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, f_sim_best = 0.950 (> 0.100 thold), f_keep = 0.960
0.05.000.100 I slot launch_slot_: id  0 | task 51 | processing task, is_child = 0
0.07.000.000 I slot print_timing: id  0 | task 51 | prompt eval time =     520.00 ms /   860 tokens (    0.60 ms per token,  1653.85 tokens per second)
0.07.000.001 I slot print_timing: id  0 | task 51 |        eval time =    1000.00 ms /    50 tokens (   20.00 ms per token,    50.00 tokens per second)
0.07.000.002 I slot      release: id  0 | task 51 | stop processing: n_tokens = 909, truncated = 0
""",
        {"VERBOSITY_TOO_LOW"},
        {"CACHE_OFF_SERVER", "CACHE_OFF_REQUEST", "PREFIX_STABLE"},
        {"cached_tokens": 0, "n_slots": 1, "generation": "gen3-ts"},
    ),
    Variant(
        "September 2025 words",
        """\
slot get_availabl: id  0 | task -1 | selected slot by lcs similarity, lcs_len = 900, similarity = 0.750 (> 0.500 thold)
slot launch_slot_: id  0 | task 7 | processing task
slot update_slots: id  0 | task 7 | new prompt, n_ctx_slot = 4096, n_keep = 0, n_prompt_tokens = 1200
slot update_slots: id  0 | task 7 | n_past = 900, cache_tokens.size() = 1300, seq_id = 0, pos_min = 800, n_swa = 512
slot update_slots: id  0 | task 7 | SWA checkpoint restore, pos_min = 300, pos_max = 811, size = 12.000 MiB
slot update_slots: id  0 | task 7 | kv cache rm [812, end)
slot update_slots: id  0 | task 7 | SWA checkpoint create, pos_min = 687, pos_max = 1199, size = 12.012 MiB, total = 2/3 (24.000 MiB)
slot      release: id  0 | task 7 | stop processing: n_past = 1300, truncated = 0
""",
        {"CHECKPOINT_RESTORED", "PREFIX_DIVERGES_LATE", "PARTIAL_REUSE"},
        {"FULL_REPROCESS_SWA_HYBRID", "PREFIX_DIVERGES_EARLY"},
        {"cached_tokens": 812, "prompt_tokens": 1200, "checkpoints.created": 1,
         "checkpoints.restored": 1, "checkpoints.max": 3, "generation": "gen2-slots"},
    ),
    Variant(
        "2024, mainline",
        """\
INFO [                    main] build info | tid="1" timestamp=1718000000 build=3100 commit="abc"
INFO [   launch_slot_with_task] slot is processing task | tid="1" timestamp=1718000001 id_slot=0 id_task=4
INFO [            update_slots] kv cache rm [p0, end) | tid="1" timestamp=1718000001 id_slot=0 id_task=4 p0=55
INFO [           print_timings] prompt eval time     =     200.00 ms /   100 tokens (    2.00 ms per token,   500.00 tokens per second) | tid="1" timestamp=1718000003 id_slot=0 id_task=4 t_prompt_processing=200 n_prompt_tokens_processed=100
INFO [           print_timings] generation eval time =    1000.00 ms /    20 runs   (   50.00 ms per token,    20.00 tokens per second) | tid="1" timestamp=1718000003 id_slot=0 id_task=4
INFO [            update_slots] slot released | tid="1" timestamp=1718000003 id_slot=0 id_task=4 n_ctx=4096 n_past=174 n_system_tokens=0 n_cache_tokens=174 truncated=false
""",
        set(),
        {"CACHE_OFF_REQUEST"},
        {"engine": "llama.cpp", "generation": "gen1-2024", "cached_tokens": 55,
         "prompt_tokens": 155, "gen_tokens": 20, "pp_tps": 500.0, "build": "3100"},
    ),
    Variant(
        "2024, JSON",
        '{"tid":"1","timestamp":1712000000,"level":"INFO","function":"launch_slot_with_data",'
        '"line":833,"msg":"slot is processing task","id_slot":0,"id_task":9}\n'
        '{"tid":"1","timestamp":1712000000,"level":"INFO","function":"update_slots","line":1,'
        '"msg":"kv cache rm [p0, end)","id_slot":0,"id_task":9,"p0":12}\n'
        '{"tid":"1","timestamp":1712000002,"level":"INFO","function":"print_timings","line":2,'
        '"msg":"prompt eval time     =     100.00 ms /    40 tokens (    2.50 ms per token,   '
        '400.00 tokens per second)","id_slot":0,"id_task":9}\n',
        figures={"cached_tokens": 12, "processed_tokens": 40, "prompt_tokens": 52,
                 "generation": "gen1-2024"},
    ),
    Variant(
        "router children side by side",
        f"""\
[100] 0.01.000.000 I slot launch_slot_: id  0 | task 5 | processing task, is_child = 0
[200] 0.01.000.000 I slot launch_slot_: id  0 | task 5 | processing task, is_child = 0
[100] 0.01.000.001 I slot update_slots: id  0 | task 5 | new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 900
[200] 0.01.000.001 I slot update_slots: id  0 | task 5 | new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 300
[100] 0.01.000.002 W slot update_slots: id  0 | task 5 | {FORCED}
[200] 0.01.000.002 I slot update_slots: id  0 | task 5 | cached n_tokens = 290, memory_seq_rm [290, end)
""",
        {"FULL_REPROCESS_SWA_HYBRID", "PREFIX_STABLE"},
        figures={"checkpoints.forced_full": 1},
    ),
    Variant(
        "a router child that is partly offloaded beside one that is not",
        """\
[57130] 0.03.100.000 I load_tensors: offloaded 49/49 layers to GPU
[57131] 0.03.200.000 I load_tensors: offloaded 20/33 layers to GPU
""",
        {"PARTIAL_OFFLOAD"}, {"GPU_NOT_USED"}, {"gpu_layers": "20/33"},
    ),
    Variant(
        "ik after a cold start: the mismatch is the second question's",
        """\
slot launch_slot_: id  0 | task 0 | processing task
======== Cache: cache_size = 0, n_past0 =  0, n_past1 =  0, n_past_prompt1 = 0,  n_past2 =  0, n_past_prompt2 =  0
slot print_timing: id  0 | task 0 |
prompt eval time =   10000.00 ms /  1000 tokens (   10.00 ms per token,   100.00 tokens per second)
       eval time =   10000.00 ms /   100 tokens (  100.00 ms per token,    10.00 tokens per second)
slot      release: id  0 | task 0 | stop processing: n_past = 1099, truncated = 0
slot launch_slot_: id  0 | task 102 | processing task
======== Cache: cache_size = 1100, n_past0 =  1050, n_past1 =  1050, n_past_prompt1 = 1050,  n_past2 =  1050, n_past_prompt2 =  1050
Common part does not match fully
cache : <think>
prompt: <|im_end|>
slot print_timing: id  0 | task 102 |
prompt eval time =    1000.00 ms /   100 tokens (   10.00 ms per token,   100.00 tokens per second)
       eval time =   10000.00 ms /   100 tokens (  100.00 ms per token,    10.00 tokens per second)
slot      release: id  0 | task 102 | stop processing: n_past = 1249, truncated = 0
""",
        {"THINK_STRIPPED", "PREFIX_DIVERGES_LATE", "COLD_START"}, {"PREFIX_DIVERGES_EARLY"},
        {"task_count": 2, "cached_tokens": 1050},
    ),
    Variant(
        "a checkpoint restored a few tokens before the change is as good as it gets",
        """\
slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, sim_best = 0.990 (> 0.100 thold), f_keep = 0.970
slot launch_slot_: id  0 | task 12 | processing task
slot update_slots: id  0 | task 12 | new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = 4000
slot update_slots: id  0 | task 12 | n_past = 3900, slot.prompt.tokens.size() = 4010, seq_id = 0, pos_min = 4009, n_swa = 1
slot update_slots: id  0 | task 12 | restored context checkpoint (pos_min = 3861, pos_max = 3861, n_tokens = 3862, n_past = 3862, size = 75.376 MiB)
slot update_slots: id  0 | task 12 | erased invalidated context checkpoint (pos_min = 3999, pos_max = 3999, n_tokens = 4000, n_swa = 1, pos_next = 3862, size = 75.376 MiB)
slot update_slots: id  0 | task 12 | n_tokens = 3862, memory_seq_rm [3862, end)
""",
        {"CHECKPOINT_RESTORED"}, {"CHECKPOINTS_INVALIDATED"}, {"cached_tokens": 3862},
    ),
    Variant(
        "compose and JSON lines",
        "llama-1  | 0.01.000.000 I slot launch_slot_: id  0 | task 5 | processing task\n"
        "llama-1  | 0.01.000.001 I slot update_slots: id  0 | task 5 | cached n_tokens = 64, "
        "memory_seq_rm [64, end)\n"
        '{"type":"log","time":12.5,"level":"info","msg":"slot      release: id  0 | task 5 | '
        'stop processing: n_tokens = 99, truncated = 0"}\n',
        figures={"cached_tokens": 64, "generation": "gen3-ts"},
    ),
    Variant(
        "port in use", "srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, "
        "port: 8080\nexiting due to HTTP server error\n", {"PORT_IN_USE"}, {"CRASH"},
    ),
    Variant("unknown argument", "error: invalid argument: --flub\n", {"UNKNOWN_ARGUMENT"},
            {"REMOVED_ARGUMENT"}),
    Variant("ik's unknown argument", "error: unknown argument: --flub\n", {"UNKNOWN_ARGUMENT"}),
    Variant("removed option", "error: invalid argument: --no-mmap\n", {"REMOVED_ARGUMENT"},
            {"UNKNOWN_ARGUMENT"}),
    Variant(
        "removed, as the stub says",
        'error while handling argument "--draft-max": the argument has been removed. use '
        "--spec-draft-n-max\n", {"REMOVED_ARGUMENT"}, {"UNKNOWN_ARGUMENT"},
    ),
    Variant(
        "vulkan memory", "ggml_vulkan: Device memory allocation of size 1073741824 failed.\n"
        "ggml_vulkan: Requested buffer size exceeds device memory allocation limit: "
        "ErrorOutOfDeviceMemory\nalloc_tensor_range: failed to allocate Vulkan0 buffer of size "
        "1073741824\nllama_model_load: error loading model: unable to allocate Vulkan0 buffer\n",
        {"OOM_GPU_MODEL"}, {"OOM_HOST", "OOM_GPU_COMPUTE"},
        {"oom.mib": 1024.0, "oom.stage": "model"},
    ),
    Variant(
        "compute buffers", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 900.00 MiB on "
        "device 0: cudaMalloc failed: out of memory\nggml_gallocr_reserve_n_impl: failed to "
        "allocate CUDA0 buffer of size 943718400\ngraph_reserve: failed to allocate compute "
        "buffers\nllama_init_from_model: failed to initialize the context: failed to allocate "
        "compute pp buffers\n", {"OOM_GPU_COMPUTE"}, {"OOM_GPU_MODEL", "OOM_GPU_KV"},
        {"oom.mib": 900.0, "oom.device": 0},
    ),
    Variant(
        "killed by the kernel", "Mar  1 10:00:00 box kernel: Out of memory: Killed process 77 "
        "(llama-server) total-vm:1kB\n", {"OOM_HOST"}, {"CRASH"},
    ),
    Variant(
        "host allocation", "ggml_aligned_malloc: insufficient memory (attempted to allocate "
        "9000.00 MB)\nggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of "
        "size 9437184000\n", {"OOM_HOST"}, {"OOM_GPU_MODEL", "OOM_GPU_KV", "OOM_GPU_COMPUTE"},
    ),
    Variant(
        "memory ran out while serving", "CUDA error: out of memory\n  current device: 0, in "
        "function alloc at /src/ggml-cuda.cu:523\n  cuMemCreate(&handle, reserve_size, &prop, 0)\n"
        "/src/ggml-cuda.cu:103: CUDA error\n", {"OOM_GPU_COMPUTE", "CRASH"},
        figures={"crash.file": "ggml-cuda.cu", "crash.line": 103, "crash.error": "out of memory"},
    ),
    Variant(
        "request too long", "srv    send_error: task id = 3, error: request (16002 tokens) exceeds "
        "the available context size (4096 tokens), try increasing it\n", {"CTX_EXCEEDED"},
        {"KV_FULL"},
    ),
    Variant(
        "quantized without flash attention",
        "llama_init_from_model: quantized V cache requires flash_attn to be enabled\n",
        {"KV_QUANT_NEEDS_FA"}, {"CRASH"},
    ),
    Variant(
        "numa", "WARNING: /proc/sys/kernel/numa_balancing is enabled, this has been observed to "
        "impair performance\n", {"NUMA_BALANCING_ON"},
    ),
    Variant(
        "no driver", "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is "
        "detected\nwarning: no usable GPU found, --gpu-layers option will be ignored\n",
        {"CUDA_INIT_FAILED", "GPU_NOT_USED"},
    ),
    Variant(
        "window cache, both halves", """\
llama_kv_cache_iswa: creating non-SWA KV cache, size = 8192 cells
llama_kv_cache:      CUDA0 KV buffer size =    24.00 MiB
llama_kv_cache: size =   24.00 MiB (  8192 cells,   3 layers,  1/1 seqs), K (q8_0):   12.00 MiB, V (q8_0):   12.00 MiB
llama_kv_cache_iswa: creating     SWA KV cache, size = 1024 cells
llama_kv_cache:      CUDA0 KV buffer size =    15.00 MiB
llama_kv_cache: size =   15.00 MiB (  1024 cells,  15 layers,  1/1 seqs), K (q8_0):    7.50 MiB, V (q8_0):    7.50 MiB
""", set(), {"KV_F16", "KV_ON_CPU", "MODEL_IS_HYBRID"},
        {"kv_mib": 39.0, "kv_type.k": "q8_0"},
    ),
    Variant(
        "target and draft", """\
load_tensors: offloaded 49/49 layers to GPU
llama_context: constructing llama_context
llama_context: n_ctx         = 8192
llama_kv_cache: size =  448.00 MiB (  8192 cells,  28 layers,  1/1 seqs), K (f16):  224.00 MiB, V (f16):  224.00 MiB
load_tensors: offloaded 25/25 layers to GPU
llama_context: constructing llama_context
llama_kv_cache: size =   96.00 MiB (  8192 cells,  24 layers,  1/1 seqs), K (f16):   48.00 MiB, V (f16):   48.00 MiB
common_speculative_init: adding speculative implementation 'draft-simple'
""", {"KV_F16"}, {"PARTIAL_OFFLOAD", "SPEC_OFF"},
        {"kv_mib": 448.0, "gpu_layers": "49/49", "spec_type": "draft-simple", "n_ctx": 8192},
    ),
    Variant(
        "drafts thrown away", "slot print_timing: id  0 | task 3 |\ndraft acceptance rate = 0.06966 "
        "(   96 accepted /  1378 generated)\n", {"SPEC_LOW_ACCEPTANCE"}, {"SPEC_ACTIVE_GOOD"},
        {"draft_acceptance": 0.06966},
    ),
    Variant(
        "vllm, hybrid block", "(EngineCore_DP0 pid=9) INFO 03-01 10:00:00 [interface.py:300] "
        "Setting attention block size to 528 tokens to ensure that attention page size is >= "
        "mamba page size.\n", {"VLLM_HYBRID_BLOCK_LARGE"},
        figures={"attention_block_size": 528, "engine": "vllm", "generation": "vllm-v1"},
    ),
    Variant(
        "vllm, preempted", "WARNING 01-02 10:00:00 scheduler.py:1500] Sequence group 5 is preempted "
        "by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. "
        "total_num_cumulative_preemption=51\n", {"VLLM_PREEMPTION"},
        figures={"vllm.preemptions": 51},
    ),
    Variant(
        "vllm, new words", "(APIServer pid=1) INFO 10-01 10:00:00 [loggers.py:300] Engine 000: Avg "
        "prompt throughput: 900.0 tokens/s, Avg generation throughput: 50.0 tokens/s, Running: 2 "
        "reqs, Waiting: 1 reqs, Preemptions: 3, CUDA KV cache usage: 95.5%, Prefix cache hit rate: "
        "88.0%\n", {"VLLM_KV_PRESSURE", "VLLM_PREEMPTION"}, {"VLLM_PREFIX_HIT_LOW"},
        {"kv_usage": 0.955, "prefix_hit_rate": 0.88, "waiting": 1},
    ),
    Variant(
        "vllm, no room", "ValueError: No available memory for the cache blocks. Try increasing "
        "`gpu_memory_utilization` when initializing the engine.\n", {"VLLM_KV_TOO_SMALL"},
    ),
    Variant(
        "device lost", "vk::Queue::submit: ErrorDeviceLost\n", {"CRASH"}, {"OOM_GPU_COMPUTE"},
    ),
    Variant(
        "assertion", "/src/ggml/src/ggml.c:3111: GGML_ASSERT(ggml_can_mul_mat(a, b)) failed\n",
        {"CRASH"}, figures={"crash.file": "ggml.c", "crash.line": 3111},
    ),
    Variant(
        "clustered checkpoints", "\n".join(
            "slot update_slots: id  0 | task 8 | erased invalidated context checkpoint (pos_min = "
            f"{n - 1}, pos_max = {n - 1}, n_tokens = {n}, n_swa = 0, pos_next = 0, size = 9.0 MiB)"
            for n in (90000, 90500, 91000, 91500)
        ), {"CHECKPOINTS_INVALIDATED", "CHECKPOINTS_CLUSTERED_AT_TAIL"},
        figures={"checkpoints.erased_invalidated": 4, "is_hybrid": True},
    ),
    Variant(
        "spread checkpoints", "\n".join(
            "slot update_slots: id  0 | task 8 | erased invalidated context checkpoint (pos_min = "
            f"{n - 512}, pos_max = {n - 1}, n_tokens = {n}, n_swa = 512, pos_next = 0, size = 9 MiB)"
            for n in (8000, 24000, 60000, 91500)
        ), {"CHECKPOINTS_INVALIDATED"}, {"CHECKPOINTS_CLUSTERED_AT_TAIL", "MODEL_IS_HYBRID"},
        {"is_hybrid": False},
    ),
    Variant(
        "a question that only grew", """\
slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, sim_best = 0.300 (> 0.100 thold), f_keep = 1.000
slot launch_slot_: id  0 | task 8 | processing task, is_child = 0
slot update_slots: id  0 | task 8 | new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = 3000
slot update_slots: id  0 | task 8 | n_tokens = 900, memory_seq_rm [900, end)
slot update_slots: id  0 | task 8 | n_tokens = 2948, memory_seq_rm [2948, end)
""", {"PARTIAL_REUSE"}, {"PREFIX_DIVERGES_EARLY", "PREFIX_DIVERGES_LATE", "CACHE_OFF_SERVER"},
        {"cached_tokens": 900},
    ),
    Variant(
        "crowded context", """\
srv    load_model: initializing slots, n_slots = 4
llama_context: n_ctx         = 4096
llama_context: kv_unified    = true
srv  update_slots: purging slot 1 with 2000 tokens
srv    send_error: task id = 3, error: Context size has been exceeded.
""", {"UNIFIED_KV_OVERCOMMIT", "CTX_EXCEEDED"},
    ),
    Variant(
        "experts on the CPU", "tensor blk.3.ffn_up_exps.weight buffer type overriden to CPU\n",
        {"CPU_EXPERTS"}, {"PARTIAL_OFFLOAD"},
    ),
    Variant(
        "ik checkpoints", """\
slot apply_checkp: id  0 | task 4 | forcing full prompt re-processing due to lack of cache data (likely due to SWA, see a pull request)
slot create_check: id  0 | task 4 | created context checkpoint 1 of 32 (pos_min = 511, n_tokens = 512, size = 75.376 MiB, took 3.20 ms)
slot apply_checkp: id  0 | task 9 | restored context checkpoint took  1.10 ms (pos_min = 511, pos_max = 511, n_tokens = 512, n_past = 512, size = 75.376 MiB)
""", {"FULL_REPROCESS_SWA_HYBRID", "CHECKPOINT_RESTORED"},
        figures={"checkpoints.created": 1, "checkpoints.restored": 1},
    ),
    Variant(
        "an end token twice, told over several lines", """\
[4021] old: ... the harbour opens at nine
[4021] and closes at five.<\uff5cend\u2581of\u2581sentence\uff5c> | <\uff5cend\u2581of\u2581sentence\uff5c>
[4021] new: ... the harbour opens at nine
[4021] and closes at five.<\uff5cend\u2581of\u2581sentence\uff5c> | <\uff5cUser\uff5c>
""", {"EOS_DUPLICATED_IN_CACHE"}, {"THINK_STRIPPED", "TOOL_ORDER_CHANGED", "CRASH"},
    ),
    Variant(
        "tools in another order", """\
slot update_slots: id  0 | task 44 | old: ... {"name": " | read_chart", "description
slot update_slots: id  0 | task 44 | new: ... {"name": " | list_ships", "description
""", {"TOOL_ORDER_CHANGED"}, {"THINK_STRIPPED", "EOS_DUPLICATED_IN_CACHE"},
    ),
    Variant(
        "a checkpoint of another size ends the server", """\
W finalize: device checkpoint restore buffer mismatch for 'Vulkan1' (saved tensors=12, current tensors=6)
/src/common/common.cpp:77: checkpoint size mismatch: expected 1200, got 0
""", {"CHECKPOINT_RESTORE_FAILED", "CRASH"}, {"CHECKPOINT_RESTORED"},
        {"crash.file": "common.cpp", "crash.line": 77},
    ),
    Variant(
        "ik finds nothing to go back to",
        "slot apply_checkp: id  0 | task 9 | no checkpoint before divergence point - from scratch\n",
        {"FULL_REPROCESS_SWA_HYBRID", "CHECKPOINT_NONE_USABLE"}, {"CHECKPOINT_RESTORED"},
    ),
    Variant(
        "DeepSeek's full heads", """\
llm_load_print_meta: arch             = deepseek2
llama_new_context_with_model: mla_attn   = 0
llama_new_context_with_model: KV self size  =  960.00 MiB, K (f16):  576.00 MiB, V (f16):  384.00 MiB
""", {"KV_NO_MLA", "KV_F16"}, {"OOM_GPU_KV"}, {"kv_mib": 960.0},
    ),
    Variant(
        "an ordinary model of ik without the latent", """\
llama_new_context_with_model: mla_attn   = 0
llama_new_context_with_model: KV self size  =  960.00 MiB, K (f16):  480.00 MiB, V (f16):  480.00 MiB
""", {"KV_F16"}, {"KV_NO_MLA"},
    ),
    Variant(
        "JSON lines around slot lines", """\
{"type":"log","time":1,"level":"info","msg":"slot print_timing: id  0 | task 3 | prompt eval time =      20.00 ms /    40 tokens (    0.50 ms per token,  2000.00 tokens per second)"}
{"type":"log","time":1,"level":"info","msg":"slot print_timing: id  0 | task 3 |        eval time =     300.00 ms /    60 tokens (    5.00 ms per token,   200.00 tokens per second)"}
{"type":"log","time":1,"level":"info","msg":"slot      release: id  0 | task 3 | stop processing: n_tokens = 99, truncated = 0"}
""", traps={"CRASH"}, figures={"generation": "gen3-ts", "cached_tokens": 0, "pp_tps": 2000.0},
    ),
    Variant(
        "four slots of one small context", """\
0.02.000.001 I slot   load_model: id  0 | task -1 | new slot, n_ctx = 2048
0.02.000.002 I slot   load_model: id  3 | task -1 | new slot, n_ctx = 2048
0.09.000.000 E srv    send_error: task id = 5, error: Context size has been exceeded.
""", {"UNIFIED_KV_OVERCOMMIT", "CTX_EXCEEDED"}, figures={"n_slots": 4, "n_ctx_slot": 2048},
    ),
    Variant(
        "V0 preempts", "Sequence group 7 is preempted by PreemptionMode.SWAP mode because there is "
        "not enough KV cache space. total_num_cumulative_preemption=9\n",
        {"VLLM_PREEMPTION"}, {"VLLM_KV_TOO_SMALL"},
        {"generation": "vllm-v0", "vllm.preemptions": 9},
    ),
    Variant(
        "indented lines of 2024", """\
      INFO [   launch_slot_with_task] slot is processing task | tid="1" timestamp=1720000000 id_slot=0 id_task=1
      INFO [            update_slots] kv cache rm [p0, end) | tid="1" timestamp=1720000000 id_slot=0 id_task=1 p0=64
""", figures={"generation": "gen1-2024", "cached_tokens": 64},
    ),
    Variant(
        "a build without accelerators",
        "warning: not compiled with GPU offload support, --gpu-layers option will be ignored\n",
        {"GPU_NOT_USED"}, {"CUDA_INIT_FAILED"},
    ),
    Variant(
        "an old name for drafting",
        'error while handling argument "--spec-type": unknown speculative type: draft\n',
        {"REMOVED_ARGUMENT"}, {"UNKNOWN_ARGUMENT"},
    ),
    Variant(
        "a draft's cache is not the target's", """\
load_tensors: offloaded 29/29 layers to GPU
llama_kv_cache: size =  300.00 MiB (  8192 cells,  28 layers,  1/1 seqs), K (q8_0):  150.00 MiB, V (q8_0):  150.00 MiB
load_tensors: offloaded 25/25 layers to GPU
llama_kv_cache: size =   96.00 MiB (  8192 cells,  24 layers,  1/1 seqs), K (f16):   48.00 MiB, V (f16):   48.00 MiB
""", traps={"KV_F16"}, figures={"kv_mib": 300.0, "kv_type.k": "q8_0"},
    ),
    Variant(
        "a full window beside the whole context", """\
llama_kv_cache_iswa: creating non-SWA KV cache, size = 4096 cells
llama_kv_cache: size =   16.00 MiB (  4096 cells,   4 layers,  1/1 seqs), K (f16):    8.00 MiB, V (f16):    8.00 MiB
llama_kv_cache_iswa: creating     SWA KV cache, size = 4096 cells
llama_kv_cache: size =   64.00 MiB (  4096 cells,  16 layers,  1/1 seqs), K (f16):   32.00 MiB, V (f16):   32.00 MiB
""", figures={"kv_mib": 80.0},
    ),
)  # fmt: skip


# one line, and a figure that it gives
FIGURES: tuple[tuple[str, str, Any], ...] = (
    ("llama_new_context_with_model: kv self size  = 1024.00 MB", "kv_mib", 1024.0),
    ("llama_model_load_internal: offloaded 35/43 layers to GPU", "gpu_layers", "35/43"),
    ("main: build = 1108 (44c117f)", "build", "1108"),
    ("build: 6123 (79c1160b0) with cc (Debian 12) for x86_64-linux-gnu", "build", "6123"),
    (
        "INFO 01-12 10:00:00 spec_decode_worker.py:1071 Speculative metrics: Draft acceptance rate: 0.800, System efficiency: 0.700, Number of speculative tokens: 3, Number of accepted tokens: 240, Number of draft tokens: 300",
        "draft_acceptance",
        0.8,
    ),
    (
        "INFO 09-12 10:00:00 [loggers.py:260] Engine 000: Avg prompt throughput: 1436.3 tokens/s, Avg generation throughput: 93.9 tokens/s, Running: 3 reqs, Waiting: 0 reqs, CUDA KV cache usage: 41.5%, Prefix cache hit rate: 20.5%, External prefix cache hit rate: 99.0%, Preemptions: 2",
        "vllm.prefix_hit_rate",
        0.205,
    ),
    ("/app/ggml/src/ggml-cuda/mmq.cu:120: GGML_ASSERT(ne11 > 0) failed", "crash.line", 120),
)


# what programs around an engine say, and what it says itself on its way out: the findings
# that one line gives, and one that it must not
SENTENCES: tuple[tuple[str, set[str], str], ...] = (
    (
        "box systemd[1]: llama.service: Main process exited, code=dumped, status=11/SEGV",
        {"CRASH"},
        "OOM_HOST",
    ),
    ("llama.service: Main process exited, code=dumped, status=6/ABRT", {"CRASH"}, "OOM_HOST"),
    ("llama-1 exited with code 139", {"CRASH"}, "OOM_HOST"),
    ("llama-1 exited with code 137", {"OOM_HOST"}, "CRASH"),
    ("llama-1 exited with code 0", set(), "CRASH"),
    (
        "./serve.sh: line 3: 42 Illegal instruction     (core dumped) ./llama-server",
        {"CRASH"},
        "OOM_HOST",
    ),
    (
        "libc++abi: terminating due to uncaught exception of type std::runtime_error",
        {"CRASH"},
        "OOM_HOST",
    ),
    (
        "./serve.sh: line 3: 42 Killed                  ./llama-server -m x.gguf",
        {"OOM_HOST"},
        "CRASH",
    ),
    ("Killed", {"OOM_HOST"}, "CRASH"),
    ("the user Killed nothing", set(), "OOM_HOST"),
    (
        "warning: failed to mlock 99-byte buffer (after previously locking 0 bytes): Cannot allocate memory",
        set(),
        "OOM_HOST",
    ),
    (
        "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
        {"OOM_GPU_COMPUTE"},
        "OOM_HOST",
    ),
    ("CUDA error 2 at ggml-cuda.cu:6301: out of memory", {"OOM_GPU_COMPUTE", "CRASH"}, "OOM_HOST"),
    (
        "llama_new_context_with_model: flash_attn requires n_embd_head_k == n_embd_head_v - forcing off",
        {"FA_OFF"},
        "KV_QUANT_NEEDS_FA",
    ),
    ("llama_context: Flash Attention was auto, set to enabled", set(), "FA_OFF"),
    ("RuntimeError: No CUDA GPUs are available", {"CUDA_INIT_FAILED"}, "CRASH"),
    (
        "gguf_init_from_file_impl: invalid magic characters: 'nota', expected 'GGUF'",
        set(),
        "MODEL_FILE_MISSING",
    ),
    (
        "srv    load_model: ctx_shift is not supported by multimodal, it will be disabled",
        set(),
        "CONTEXT_SHIFT",
    ),
)
