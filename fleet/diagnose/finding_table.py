"""One row a finding: its place in the order, what it means, what to do, where that is from.

`settings` are what `--fix-out` writes into an overlay; only changes that are safe to try
as they stand. References name the upstream thread that settled the matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

Scalar = str | int | bool


class Row(NamedTuple):
    """`priority` is a letter with an optional `-level`, or `info`."""

    priority: str
    message: str
    fix: str = ""
    settings: tuple[tuple[str, Scalar], ...] = ()
    reference: str = ""

    @property
    def letter(self) -> str:
        """The letter that orders findings, or `info`."""
        return self.priority.partition("-")[0]

    @property
    def level(self) -> str:
        """`error` for E, the part after the dash, else `high`; verbosity is `low`."""
        letter, _, level = self.priority.partition("-")
        return level or {"E": "error", "V": "low", "info": "info"}.get(letter, "high")


TABLE: Mapping[str, Row] = {
    "CACHE_OFF_SERVER": Row(
        "A", "The server does not reuse prompts at all: similar requests start at token 0",
        "let the server cache prompts: drop `--no-cache-prompt`; vLLM: `--enable-prefix-caching`",
        (("cache_prompt", True),), "llama.cpp `--cache-prompt`, on by default",
    ),
    "CACHE_OFF_REQUEST": Row(
        "A", "The requests ask for no caching, so nothing is kept for the next one",
        "send `cache_prompt: true` with each request; update an ik_llama.cpp of early 2025",
        (), "ik_llama.cpp#455",
    ),
    "FULL_REPROCESS_SWA_HYBRID": Row(
        "A", "A sliding-window or recurrent memory found no checkpoint to go back to, "
        "and the whole prompt was read again",
        "keep the beginning of prompts unchanged and prime the shared part "
        "(`fleet prompts prime`); a pure sliding-window model can keep its full window",
        (), "llama.cpp#13194 #20225",
    ),
    "CHECKPOINT_NONE_USABLE": Row(
        "A", "The prompt agrees with the slot for a long way, but no checkpoint lies at or "
        "before the place where it stops agreeing",
        "prime the shared prefix so that a checkpoint lies at its end, or let the shared part "
        "end where a message begins",
        (), "llama.cpp#22929",
    ),
    "CHECKPOINT_INTERVAL_GT_PREFIX": Row(
        "A", "The prompt is shorter than the spacing of checkpoints, so none can lie inside "
        "the part in common",
        "prime the shared prefix; on ik_llama.cpp and vLLM set the interval to half of the "
        "common prefix or less",
        (("checkpoint_interval", 512),), "llama.cpp#28302",
    ),
    "CHECKPOINTS_INVALIDATED": Row(
        "A", "Checkpoints were thrown away because the prompt changed before them",
        "find what changed near the beginning: `fleet prompts analyze`", (), "llama.cpp#22929",
    ),
    "CHECKPOINTS_CLUSTERED_AT_TAIL": Row(
        "A", "All checkpoints lay in the last few percent of the prompt, where an earlier "
        "change cannot use them",
        "spread them: larger spacing, or more of them",
        (("swa_checkpoints", 64), ("checkpoint_interval", 8192)), "llama.cpp#22929 #21099",
    ),
    "CHECKPOINT_RING_FULL": Row(
        "A-info", "The last free checkpoint was taken; each new one evicts the oldest",
        "allow more checkpoints if memory permits", (("swa_checkpoints", 64),), "llama.cpp#21099",
    ),
    "CHECKPOINT_RESTORED": Row("info", "A checkpoint was restored, as intended"),
    "CHECKPOINT_RESTORE_FAILED": Row(
        "E", "A checkpoint could not be restored",
        "update the engine; without checkpoints (`swa_checkpoints: 0`) it goes on meanwhile",
        (("swa_checkpoints", 0),),
    ),
    "PREFIX_DIVERGES_EARLY": Row(
        "A", "Prompts stop agreeing with what the slot holds before their half",
        "put what never changes first (rules, tools, tables), what changes last (time, user, "
        "retrieved text), and think tags for all requests or for none",
        (), "llama.cpp#20623, opencode-agent-memory#24",
    ),
    "PREFIX_DIVERGES_LATE": Row(
        "A-low", "Prompts agree for more than half and then differ: an edited last turn, "
        "stripped think text or a retokenized boundary",
        "keep think text in the history (`--reasoning-preserve`, `preserve_thinking`) and let "
        "a checkpoint lie at the last user message",
        (), "llama.cpp#21912 #28987",
    ),
    "PREFIX_STABLE": Row("info", "Requests reuse nine tenths of their prompt or more"),
    "PARTIAL_REUSE": Row(
        "A-low", "Requests reuse between a tenth and nine tenths of their prompt",
        "see what comes before the change: `fleet prompts analyze`",
    ),
    "COLD_START": Row("info", "The first request of a slot had nothing to reuse"),
    "DIFFERENT_CONVERSATION": Row(
        "A-low", "Only the template's header agrees: another conversation or a side request "
        "took this slot",
        "give each conversation a slot, pin it with `id_slot`, or send titles and summaries "
        "to a small model of their own",
        (("parallel", 4),), "llama.cpp#20993, open-webui#638",
    ),
    "SLOT_LRU_MISS": Row(
        "A", "No slot had enough in common, so the least recently used one was emptied",
        "as many slots as conversations, a RAM cache for idle ones, or a fixed `id_slot`",
        (("parallel", 4), ("cache_ram", 8192)), "llama.cpp#20993 #22083",
    ),
    "SLOT_SIM_THRESHOLD_TOO_LOW": Row(
        "A-low", "A slot was taken over because a short prompt resembles its header, and "
        "nearly all it held was lost",
        "ask for more similarity before a slot is taken",
        (("slot_prompt_similarity", 0.5),),  # type: ignore[arg-type]
        "llama.cpp#22083",
    ),
    "PROMPT_CACHE_THRASH": Row(
        "A", "The RAM cache is full of large states and throws out one for each new one",
        "a larger RAM cache, more slots, fewer side requests", (("cache_ram", 16384),),
        "llama.cpp#20509",
    ),
    "PROMPT_CACHE_NO_CHECKPOINTS": Row(
        "A-low", "Prompts are saved without checkpoints; on a model that cannot rewind they "
        "help only if they continue exactly",
        "update the engine", (), "llama.cpp#25913 #24956",
    ),
    "PROMPT_CACHE_UNBOUNDED": Row(
        "A-low", "The RAM cache has no limit",
        "set a bound, above all where the GPU shares the memory", (("cache_ram", 8192),),
        "llama.cpp#22629, ollama#18264",
    ),
    "CACHE_RAM_OVER_LIMIT": Row(
        "A", "One saved prompt is larger than the RAM cache may be",
        "update (the limit became strict), raise the limit, or switch this cache off",
        (("cache_ram", 0),), "llama.cpp#25070",
    ),
    "CACHE_REUSE_DISABLED_MULTIMODAL": Row(
        "A-low", "Chunk reuse is off because a multimodal projector is loaded; the prefix is "
        "reused all the same",
        "serve text without the projector", (), "llama.cpp#19877",
    ),
    "CONTEXT_SHIFT": Row(
        "A", "The context overflowed and was shifted, which breaks the cached prefix",
        "a larger context, no shifting, a bound on the answer, or summaries",
        (("context_shift", False),),
    ),
    "TRUNCATED_CONTEXT_FULL": Row(
        "D", "An answer was cut because the context was full: its times compare with nothing",
        "a larger context or fewer tokens to generate",
    ),
    "TOOL_ORDER_CHANGED": Row(
        "A", "The same tools came in another order", "sort the tools by name", (),
        "hermes-agent#28871, modelcontextprotocol#2516",
    ),
    "THINK_STRIPPED": Row(
        "A", "The history was rendered without the think text that had been generated",
        "keep it: `preserve_thinking`, `--reasoning-preserve`, and let the client send it back",
        (("reasoning_preserve", True),), "llama.cpp#21912, ik_llama.cpp#1762",
    ),
    "EOS_DUPLICATED_IN_CACHE": Row(
        "A-low", "The cached turn ends with one end token more than the turn as rendered again",
        "correct the chat template",
    ),
    "VLLM_PREFIX_HIT_LOW": Row(
        "A", "Fewer than 30% of the prompt tokens are found in the prefix cache",
        "check block size, retention interval and routing; begin prompts with what is shared",
        (), "vllm#43447 #52216",
    ),
    "VLLM_HYBRID_BLOCK_LARGE": Row(
        "A", "The attention block was raised to fit the recurrent page: hits fall only on "
        "multiples of it",
        "a smaller match unit or recurrent block, or a retention interval", (),
        "vllm#40696 #54076",
    ),
    "VLLM_KV_PRESSURE": Row(
        "A-low", "The KV cache is more than nine tenths full",
        "fewer sequences at once, a smaller KV type, or more memory for it",
        (("kv_cache_dtype", "fp8"),),
    ),
    "SPEC_OFF": Row(
        "B", "No speculative decoding is active",
        "try a draft model, the model's own MTP layers, or n-grams, and measure it",
        (("speculation", "ngram-mod"),), "llama.cpp#22673",
    ),
    "SPEC_ACTIVE_GOOD": Row("info", "Drafts are accepted often enough to help"),
    "SPEC_LOW_ACCEPTANCE": Row(
        "B", "Most drafted tokens are thrown away",
        "shorter drafts, a higher least probability, a better draft model, or none",
        (("draft_max", 3), ("draft_p_min", 0.6)),  # type: ignore[arg-type]
        "llama.cpp#25908 #27151",
    ),
    "SPEC_NO_GAIN": Row(
        "B", "Generation with drafts is no faster than without",
        "switch speculation off", (("speculation", "none"),), "llama.cpp#25908",
    ),
    "KV_F16": Row(
        "C", "The KV cache is kept in 16 bits; q8_0 halves it",
        "q8_0 for K and V, with flash attention",
        (("cache_type_k", "q8_0"), ("cache_type_v", "q8_0"), ("flash_attention", "on")),
        "llama.cpp#28455",
    ),
    "KV_QUANT_NEEDS_FA": Row(
        "E", "A quantized V cache cannot work without flash attention",
        "switch flash attention on", (("flash_attention", "on"),), "llama.cpp#28524",
    ),
    "KV_ON_CPU": Row(
        "C", "The whole KV cache lies in host memory although an accelerator is there",
        "let the KV cache be offloaded, with a smaller context if need be",
        (("kv_offload", True),),
    ),
    "KV_NO_MLA": Row(
        "C", "A DeepSeek model keeps full keys and values instead of the latent",
        "a newer GGUF and build; ik_llama.cpp: `-mla 3`",
    ),
    "FA_OFF": Row(
        "C", "Flash attention is off", "switch it on", (("flash_attention", "on"),)
    ),
    "UNEQUAL_CONDITIONS": Row(
        "D", "The requests of this log are too unlike to be compared with one another or "
        "with another run by their rates",
        "compare with the same prompts, output tokens, sampling, stop, stream, thinking, "
        "hardware, threads and KV type",
    ),
    "VERBOSITY_TOO_LOW": Row(
        "V", "At this verbosity the log does not say what was reused, stored or offloaded",
        "log at level 4 (`-lv 4`, LLAMA_ARG_LOG_VERBOSITY=4), or read /slots and /metrics: "
        "`fleet diagnose NAME`",
        (("log_verbosity", 4),), "llama.cpp#23021",
    ),
    "TG_HIT_BY_CONCURRENCY": Row(
        "D", "Generation was measured while another slot worked",
        "compare runs of a single slot",
    ),
    "GPU_NOT_USED": Row(
        "H", "No layer is on the accelerator",
        "offload layers, with a build for this accelerator", (("gpu_layers", "all"),),
        "llama.cpp#12614",
    ),
    "PARTIAL_OFFLOAD": Row(
        "H", "Some layers stayed on the CPU, which sets the pace",
        "a smaller quantization or KV cache; of a MoE model move experts, not layers",
        (), "llama.cpp#8035",
    ),
    "CPU_EXPERTS": Row(
        "H-info", "Experts are computed on the CPU",
        "large batches and no memory mapping help to read prompts",
        (("ubatch_size", 4096), ("batch_size", 4096), ("load_mode", "none")),
        "llama.cpp#20978",
    ),
    "SLOW_PP": Row(
        "H", "Prompts are read slowly for a machine with an accelerator",
        "larger ubatch, flash attention, more offload, other thread counts",
        (("ubatch_size", 2048),),
    ),
    "NUMA_BALANCING_ON": Row(
        "H", "The kernel moves memory pages between NUMA nodes while the model runs",
        "`sysctl kernel.numa_balancing=0`", (), "ik_llama.cpp#419",
    ),
    "PINNED_ALLOC_FAILED": Row(
        "H", "Host memory could not be pinned, so copies to the accelerator are slower",
        "raise `ulimit -l`, or set GGML_CUDA_NO_PINNED to stop trying",
    ),
    "CUDA_INIT_FAILED": Row(
        "H", "The accelerator could not be initialised",
        "check driver, container device and CUDA_VISIBLE_DEVICES; the build must carry this "
        "architecture",
    ),
    "OOM_RETRY_NO_PIPELINE": Row(
        "H", "Compute buffers did not fit at first; it started without pipeline parallelism",
        "a smaller ubatch gives it back", (("ubatch_size", 256),),
    ),
    "UNIFIED_KV_OVERCOMMIT": Row(
        "H", "Several slots share one context that is small for them",
        "fewer slots or a larger context", (("parallel", 1),), "llama.cpp#23652 #16736",
    ),
    "MODEL_IS_HYBRID": Row("info", "The model keeps a recurrent state beside its KV cache"),
    "OOM_GPU_MODEL": Row(
        "E", "The weights do not fit the device",
        "fewer layers or no experts on the device, or a smaller quantization",
    ),
    "OOM_GPU_KV": Row(
        "E", "The KV cache does not fit the device",
        "a smaller context, or a quantized KV cache with flash attention",
        (("cache_type_k", "q8_0"), ("cache_type_v", "q8_0"), ("flash_attention", "on")),
    ),
    "OOM_GPU_COMPUTE": Row(
        "E", "The compute buffers do not fit the device",
        "a smaller ubatch; of several GPUs build with one scheduler copy",
        (("ubatch_size", 256),),
    ),
    "OOM_HOST": Row(
        "E", "The host ran out of memory and the process was ended or refused memory",
        "a smaller RAM cache, fewer checkpoints, a smaller context or model",
        (("cache_ram", 0),), "llama.cpp#20509 #21690",
    ),
    "PORT_IN_USE": Row(
        "E", "The address is taken or cannot be bound", "another port, or end what listens there"
    ),
    "MODEL_FILE_MISSING": Row(
        "E", "The model file cannot be opened",
        "check the path as the server sees it (container mount, absolute path)",
    ),
    "UNKNOWN_ARGUMENT": Row(
        "E", "The engine does not know an argument",
        "let `fleet compile --build` spell it for this build",
    ),
    "REMOVED_ARGUMENT": Row(
        "E", "An argument was removed from this build",
        "let `fleet compile --build` spell it for this build", (), "llama.cpp#28334 #22938",
    ),
    "CRASH": Row(
        "E", "The engine crashed", "update, or go back to the build before; report the assertion"
    ),
    "CTX_EXCEEDED": Row(
        "E", "A request is larger than its slot's context",
        "a larger context, fewer slots, or shorter prompts",
    ),
    "KV_FULL": Row(
        "E", "No free cells were left in the KV cache",
        "a larger context, fewer slots, or one context a slot instead of a shared one",
        (("kv_unified", False),),
    ),
    "VLLM_KV_TOO_SMALL": Row(
        "E", "The memory left for the KV cache is too small for the longest request",
        "a shorter `max_model_len`, or more of the memory for vLLM",
    ),
    "VLLM_PREEMPTION": Row(
        "E", "Running requests were thrown out for lack of KV cache and computed again",
        "fewer sequences at once or a larger KV cache",
    ),
}  # fmt: skip
