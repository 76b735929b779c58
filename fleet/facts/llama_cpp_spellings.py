"""The options of llama-server by build: which spellings each known build accepts.

One line an option: the first and the last known build that have it (`-`: the newest too),
its names, after `/` its negative names, its variable (`@` stands for `LLAMA_ARG_`), and
`removed` for a stub that only names its successor. Known builds are those whose options
were read; a change between two of them came somewhere in between, so only what both accept
is safe there.
"""

from __future__ import annotations

KNOWN_BUILDS = (
    "2025-09-29", "2025-11-29", "2026-01-13", "2026-02-27", "b8672", "b9093", "b9246", "b9388",
    "b9538", "b9940", "b10142", "b10229", "b10434", "b10488", "b10566", "b10825", "b10936",
    "b11434", "b11549", "b11669",
)  # fmt: skip

SPELLINGS = """\
2026-02-27 - --adaptive-decay
2026-02-27 - --adaptive-target
b9940 - -ag,--agent/-no-ag,--no-agent @AGENT
2025-09-29 - -a,--alias @ALIAS
2025-09-29 - --api-key LLAMA_API_KEY
2025-09-29 b9388 --api-key-file
b9538 - --api-key-file @API_KEY_FILE
2025-09-29 - --api-prefix @API_PREFIX
2026-01-13 - -bs,--backend-sampling @BACKEND_SAMPLING
2025-09-29 - -b,--batch-size @BATCH
2025-09-29 b10229 -bf,--binary-file
b10488 b11549 -bf,--binary-file
b9093 - --cache-idle-slots/--no-cache-idle-slots @CACHE_IDLE_SLOTS
2025-11-29 - -cl,--cache-list
2026-02-27 - --cache-prompt/--no-cache-prompt @CACHE_PROMPT
2025-11-29 - -cram,--cache-ram @CACHE_RAM
2025-09-29 - --cache-reuse @CACHE_REUSE
2025-09-29 - -ctk,--cache-type-k @CACHE_TYPE_K
2025-09-29 b8672 -ctkd,--cache-type-k-draft @CACHE_TYPE_K_DRAFT
2025-09-29 - -ctv,--cache-type-v @CACHE_TYPE_V
2025-09-29 b8672 -ctvd,--cache-type-v-draft @CACHE_TYPE_V_DRAFT
2025-09-29 - --chat-template @CHAT_TEMPLATE
2025-09-29 - --chat-template-file @CHAT_TEMPLATE_FILE
2025-09-29 b9246 --chat-template-kwargs LLAMA_CHAT_TEMPLATE_KWARGS
b9388 - --chat-template-kwargs @CHAT_TEMPLATE_KWARGS
2025-09-29 - --check-tensors
b8672 b9246 -cpent,--checkpoint-every-n-tokens @CHECKPOINT_EVERY_NT
b9388 - -cms,--checkpoint-min-step @CHECKPOINT_MIN_SPACING_NT
b8672 b8672 --clear-idle/--no-clear-idle @CLEAR_IDLE
2025-09-29 - --completion-bash
2025-09-29 2025-11-29 -cb,--cont-batching @CONT_BATCHING
2026-01-13 - -cb,--cont-batching/-nocb,--no-cont-batching @CONT_BATCHING
2025-09-29 2025-11-29 --context-shift @CONTEXT_SHIFT
2026-01-13 - --context-shift/--no-context-shift @CONTEXT_SHIFT
2025-09-29 - --control-vector
2025-09-29 - --control-vector-layer-range
2025-09-29 - --control-vector-scaled
b10142 - --cors-credentials/--no-cors-credentials @CORS_CREDENTIALS
b10142 - --cors-headers @CORS_HEADERS
b10142 - --cors-methods @CORS_METHODS
b10142 - --cors-origins @CORS_ORIGINS
2025-09-29 - -C,--cpu-mask
2025-09-29 - -Cb,--cpu-mask-batch
2025-09-29 - -cmoe,--cpu-moe @CPU_MOE
2025-09-29 b8672 -cmoed,--cpu-moe-draft @CPU_MOE_DRAFT
2025-09-29 - -Cr,--cpu-range
2025-09-29 - -Crb,--cpu-range-batch
2025-09-29 - --cpu-strict
2025-09-29 - --cpu-strict-batch
2025-11-29 2026-02-27 --ctx-checkpoints,--swa-checkpoints @CTX_CHECKPOINTS
b8672 - -ctxcp,--ctx-checkpoints,--swa-checkpoints @CTX_CHECKPOINTS
2025-09-29 - -c,--ctx-size @CTX_SIZE
2025-09-29 b8672 -cd,--ctx-size-draft @CTX_SIZE_DRAFT
2025-09-29 - -dt,--defrag-thold @DEFRAG_THOLD
2025-09-29 - -dev,--device @DEVICE
2025-09-29 b8672 -devd,--device-draft
2026-01-13 b10825 -dio,--direct-io/-ndio,--no-direct-io @DIO
2025-09-29 - -dr,--docker-repo @DOCKER_REPO
2025-09-29 b8672 --draft,--draft-n,--draft-max @DRAFT_MAX
b9093 - --draft,--draft-n,--draft-max @DRAFT_MAX removed
2025-09-29 b8672 --draft-min,--draft-n-min @DRAFT_MIN
b9093 - --draft-min,--draft-n-min @DRAFT_MIN removed
2025-09-29 b8672 --draft-p-min @DRAFT_P_MIN
2025-09-29 - --dry-allowed-length
2025-09-29 - --dry-base
2025-09-29 - --dry-multiplier
2025-09-29 - --dry-penalty-last-n
2025-09-29 - --dry-sequence-breaker
2025-09-29 - --dynatemp-exp
2025-09-29 - --dynatemp-range
2025-09-29 2025-09-29 --embd-bge-small-en-default
2025-09-29 2025-09-29 --embd-e5-small-en-default
2025-11-29 - --embd-gemma-default
2025-09-29 2025-09-29 --embd-gte-small-default
b9246 - --embd-normalize
2025-09-29 - --embedding,--embeddings @EMBEDDINGS
2025-09-29 2025-11-29 -e,--escape
2026-01-13 - -e,--escape/--no-escape
2025-09-29 b10229 -f,--file
b10488 b11549 -f,--file
2025-09-29 - --fim-qwen-1.5b-default
2025-09-29 - --fim-qwen-14b-spec
2025-09-29 - --fim-qwen-30b-default
2025-09-29 - --fim-qwen-3b-default
2025-09-29 - --fim-qwen-7b-default
2025-09-29 - --fim-qwen-7b-spec
2026-01-13 - -fit,--fit @FIT
2026-01-13 - -fitc,--fit-ctx @FIT_CTX
2026-01-13 - -fitt,--fit-target @FIT_TARGET
2025-09-29 - -fa,--flash-attn @FLASH_ATTN
2025-09-29 b10936 --frequency-penalty
b11434 - --frequency-penalty @FREQUENCY_PENALTY
2025-11-29 - --gpt-oss-120b-default
2025-11-29 - --gpt-oss-20b-default
2025-09-29 - -ngl,--gpu-layers,--n-gpu-layers @N_GPU_LAYERS
2025-09-29 b8672 -ngld,--gpu-layers-draft,--n-gpu-layers-draft @N_GPU_LAYERS_DRAFT
2025-09-29 - --grammar
2025-09-29 - --grammar-file
2025-09-29 - -h,--help,--usage
2025-09-29 - -hff,--hf-file @HF_FILE
2025-09-29 b10229 -hffv,--hf-file-v @HF_FILE_V
2025-09-29 - -hf,-hfr,--hf-repo @HF_REPO
2025-09-29 b8672 -hfd,-hfrd,--hf-repo-draft @HFD_REPO
2025-09-29 b10229 -hfv,-hfrv,--hf-repo-v @HF_REPO_V
2025-09-29 - -hft,--hf-token HF_TOKEN
2025-09-29 - --host @HOST
2025-09-29 - --ignore-eos
2025-11-29 - --image-max-tokens @IMAGE_MAX_TOKENS
2025-11-29 - --image-min-tokens @IMAGE_MIN_TOKENS
2025-09-29 2025-11-29 --jinja @JINJA
2026-01-13 - --jinja/--no-jinja @JINJA
2025-09-29 - -j,--json-schema
2025-09-29 - -jf,--json-schema-file
2025-09-29 - --keep
2026-01-13 - -kvo,--kv-offload/-nkvo,--no-kv-offload @KV_OFFLOAD
2025-09-29 2025-11-29 --kv-unified,-kvu @KV_SPLIT
2026-01-13 2026-01-13 -kvu,--kv-unified @KV_UNIFIED
2026-02-27 - -kvu,--kv-unified/-no-kvu,--no-kv-unified @KV_UNIFIED
b10825 - --kv-unified-per-slot @KV_UNIFIED_PER_SLOT
b10825 - -lzm,--lazy-mode @LAZY_MODE
2026-01-13 b9388 --license
2025-09-29 - --list-devices
b10142 - -lm,--load-mode @LOAD_MODE
2025-09-29 b9246 --log-colors LLAMA_LOG_COLORS
b9388 - --log-colors @LOG_COLORS
2025-09-29 - --log-disable
2025-09-29 2025-11-29 --log-file
2026-01-13 b9246 --log-file LLAMA_LOG_FILE
b9388 - --log-file @LOG_FILE
b10825 - --log-jsonl/--no-log-jsonl @LOG_JSONL
2025-09-29 b9093 --log-prefix LLAMA_LOG_PREFIX
b9246 - --log-prefix/--no-log-prefix @LOG_PREFIX
b9940 - --log-prompts-dir
2025-09-29 b9093 --log-timestamps LLAMA_LOG_TIMESTAMPS
b9246 - --log-timestamps/--no-log-timestamps @LOG_TIMESTAMPS
2025-09-29 - -l,--logit-bias
2026-02-27 - -lcd,--lookup-cache-dynamic
2026-02-27 - -lcs,--lookup-cache-static
2025-09-29 - --lora
2025-09-29 - --lora-init-without-apply
2025-09-29 - --lora-scaled
2025-09-29 - -mg,--main-gpu @MAIN_GPU
b10142 - --mcp-servers-config @MCP_SERVERS_CONFIG
b10142 - --mcp-servers-json @MCP_SERVERS_JSON
2026-01-13 - --media-path
2025-09-29 - --metrics @ENDPOINT_METRICS
2025-09-29 b10936 --min-p
b11434 - --min-p @MIN_P
2025-09-29 - --mirostat
2025-09-29 - --mirostat-ent
2025-09-29 - --mirostat-lr
2025-09-29 b10825 --mlock @MLOCK
2026-01-13 b10825 --mmap/--no-mmap @MMAP
2025-09-29 2025-11-29 --mmproj @MMPROJ
2026-01-13 - -mm,--mmproj @MMPROJ
2026-01-13 - --mmproj-auto/--no-mmproj,--no-mmproj-auto @MMPROJ_AUTO
b11669 - -mmdev,--mmproj-device MTMD_BACKEND_DEVICE
2026-01-13 - --mmproj-offload/--no-mmproj-offload @MMPROJ_OFFLOAD
2025-09-29 2025-11-29 --mmproj-url @MMPROJ_URL
2026-01-13 - -mmu,--mmproj-url @MMPROJ_URL
2025-09-29 - -m,--model @MODEL
2025-09-29 b8672 -md,--model-draft @MODEL_DRAFT
2025-09-29 - -mu,--model-url @MODEL_URL
2025-09-29 b10229 -mv,--model-vocoder
2026-01-13 - --models-autoload/--no-models-autoload @MODELS_AUTOLOAD
2026-01-13 - --models-dir @MODELS_DIR
2026-01-13 - --models-max @MODELS_MAX
2026-01-13 - --models-preset @MODELS_PRESET
b11549 - --moe-cache-mib @MOE_CACHE_MIB
b9940 - --mtmd-batch-max-tokens @MTMD_BATCH_MAX_TOKENS
b10825 - -ncffn,--n-cpu-ffn @N_CPU_FFN
2025-09-29 - -ncmoe,--n-cpu-moe @N_CPU_MOE
2025-09-29 b8672 -ncmoed,--n-cpu-moe-draft @N_CPU_MOE_DRAFT
2025-09-29 2025-11-29 -nocb,--no-cont-batching @NO_CONT_BATCHING
2025-09-29 2025-11-29 --no-context-shift @NO_CONTEXT_SHIFT
2025-09-29 2025-11-29 --no-escape
2025-11-29 - --no-host @NO_HOST
2025-09-29 2025-11-29 -nkvo,--no-kv-offload @NO_KV_OFFLOAD
2025-09-29 2025-11-29 --no-mmap @NO_MMAP
2025-09-29 2025-11-29 --no-mmproj @NO_MMPROJ
2025-09-29 2025-11-29 --no-mmproj-offload @NO_MMPROJ_OFFLOAD
2025-09-29 2025-11-29 --no-op-offload
2025-09-29 2025-11-29 --no-perf @NO_PERF
2025-09-29 2025-11-29 --no-prefill-assistant @NO_PREFILL_ASSISTANT
2025-09-29 2025-11-29 -nr,--no-repack @NO_REPACK
2025-09-29 2025-11-29 --no-slots @NO_ENDPOINT_SLOTS
2025-09-29 2025-11-29 --no-warmup
2025-09-29 2025-11-29 --no-webui @NO_WEBUI
2025-09-29 - --numa @NUMA
2025-09-29 b9246 --offline LLAMA_OFFLINE
b9388 - --offline @OFFLINE
2026-01-13 - --op-offload/--no-op-offload
2025-09-29 - --override-kv
2025-09-29 2025-11-29 --override-tensor,-ot
2026-01-13 - -ot,--override-tensor @OVERRIDE_TENSOR
2025-09-29 b8672 -otd,--override-tensor-draft
2025-09-29 - -np,--parallel @N_PARALLEL
2025-09-29 - --path @STATIC_PATH
2026-01-13 - --perf/--no-perf @PERF
2025-09-29 - --poll
2025-09-29 - --poll-batch
2025-09-29 - --pooling @POOLING
2025-09-29 - --port @PORT
2025-09-29 - -n,--predict,--n-predict @N_PREDICT
2026-01-13 - --prefill-assistant/--no-prefill-assistant @PREFILL_ASSISTANT
2025-09-29 b10936 --presence-penalty
b11434 - --presence-penalty @PRESENCE_PENALTY
2025-09-29 - --prio
2025-09-29 - --prio-batch
2025-09-29 b10229 -p,--prompt
b10488 b11549 -p,--prompt
2025-09-29 - --props @ENDPOINT_PROPS
b8672 - -rea,--reasoning @REASONING
2025-09-29 - --reasoning-budget @THINK_BUDGET
b8672 - --reasoning-budget-message @THINK_BUDGET_MESSAGE
b10434 - --reasoning-effort @REASONING_EFFORT
2025-09-29 - --reasoning-format @THINK
b9940 - --reasoning-preserve/--no-reasoning-preserve @REASONING_PRESERVE
2026-01-13 - --repack/-nr,--no-repack @REPACK
2025-09-29 - --repeat-last-n
2025-09-29 b10936 --repeat-penalty
b11434 - --repeat-penalty @REPEAT_PENALTY
2025-09-29 - --rerank,--reranking @RERANKING
b8672 - --reuse-port @REUSE_PORT
2025-09-29 - -r,--reverse-prompt
2025-09-29 - --rope-freq-base @ROPE_FREQ_BASE
2025-09-29 - --rope-freq-scale @ROPE_FREQ_SCALE
2025-09-29 - --rope-scale @ROPE_SCALE
2025-09-29 - --rope-scaling @ROPE_SCALING_TYPE
2025-09-29 - --rpc @RPC
2025-09-29 - --sampler-seq,--sampling-seq
2025-09-29 - --samplers
2025-09-29 - -s,--seed
b8672 - --skip-chat-parsing/--no-skip-chat-parsing @SKIP_CHAT_PARSING
2026-01-13 - --sleep-idle-seconds
2025-09-29 - -sps,--slot-prompt-similarity
2025-09-29 b11434 --slot-save-path
b11549 - --slot-save-path @SLOT_SAVE_PATH
2025-09-29 2025-11-29 --slots @ENDPOINT_SLOTS
2026-01-13 - --slots/--no-slots @ENDPOINT_SLOTS
b9093 - --spec-default
b9388 - --spec-draft-backend-sampling/--no-spec-draft-backend-sampling @SPEC_DRAFT_BACKEND_SAMPLING
b9093 - --spec-draft-cpu-mask,-Cd,--cpu-mask-draft
b9093 - --spec-draft-cpu-mask-batch,-Cbd,--cpu-mask-batch-draft
b9093 - --spec-draft-cpu-moe,-cmoed,--cpu-moe-draft @SPEC_DRAFT_CPU_MOE
b9093 - --spec-draft-cpu-range,-Crd,--cpu-range-draft
b9093 - --spec-draft-cpu-strict,--cpu-strict-draft
b9093 - --spec-draft-cpu-strict-batch,--cpu-strict-batch-draft
b9093 b9093 --spec-draft-ctx-size,-cd,--ctx-size-draft @SPEC_DRAFT_CTX_SIZE
b9093 - --spec-draft-device,-devd,--device-draft
b9093 - --spec-draft-hf,-hfd,-hfrd,--hf-repo-draft @SPEC_DRAFT_HF_REPO
b9093 - --spec-draft-model,-md,--model-draft @SPEC_DRAFT_MODEL
b9093 - --spec-draft-n-cpu-moe,--spec-draft-ncmoe,-ncmoed,--n-cpu-moe-draft @SPEC_DRAFT_N_CPU_MOE
b9093 - --spec-draft-n-max @SPEC_DRAFT_N_MAX
b9093 - --spec-draft-n-min @SPEC_DRAFT_N_MIN
b11669 - --spec-draft-n-ubatch @SPEC_DRAFT_N_UBATCH
b9093 - --spec-draft-ngl,-ngld,--gpu-layers-draft,--n-gpu-layers-draft @N_GPU_LAYERS_DRAFT
b9093 - --spec-draft-override-tensor,-otd,--override-tensor-draft
b9093 - --spec-draft-p-min,--draft-p-min @SPEC_DRAFT_P_MIN
b9093 - --spec-draft-p-split,--draft-p-split @SPEC_DRAFT_P_SPLIT
b9093 - --spec-draft-poll,--poll-draft
b9093 - --spec-draft-poll-batch,--poll-batch-draft
b9093 - --spec-draft-prio,--prio-draft
b9093 - --spec-draft-prio-batch,--prio-batch-draft
b9093 b9093 --spec-draft-replace,--spec-replace
b11434 - --spec-draft-sampling @SPEC_DRAFT_SAMPLING
b9093 - --spec-draft-threads,-td,--threads-draft
b9093 - --spec-draft-threads-batch,-tbd,--threads-batch-draft
b9093 - --spec-draft-type-k,-ctkd,--cache-type-k-draft @SPEC_DRAFT_CACHE_TYPE_K
b9093 - --spec-draft-type-v,-ctvd,--cache-type-v-draft @SPEC_DRAFT_CACHE_TYPE_V
b9093 - --spec-ngram-map-k-min-hits
b9093 - --spec-ngram-map-k-size-m
b9093 - --spec-ngram-map-k-size-n
b9093 - --spec-ngram-map-k4v-min-hits
b9093 - --spec-ngram-map-k4v-size-m
b9093 - --spec-ngram-map-k4v-size-n
2026-02-27 b8672 --spec-ngram-min-hits
b9093 - --spec-ngram-min-hits removed
b9093 - --spec-ngram-mod-n-match
b9093 - --spec-ngram-mod-n-max
b9093 - --spec-ngram-mod-n-min
b9093 - --spec-ngram-simple-min-hits
b9093 - --spec-ngram-simple-size-m
b9093 - --spec-ngram-simple-size-n
2026-02-27 b8672 --spec-ngram-size-m
b9093 - --spec-ngram-size-m removed
2026-02-27 b8672 --spec-ngram-size-n
b9093 - --spec-ngram-size-n removed
2025-09-29 b8672 --spec-replace
b10825 - --spec-synth-len @SPEC_SYNTH_LEN
b10825 - --spec-synth-rates @SPEC_SYNTH_RATES
2026-02-27 2026-02-27 --spec-type
b8672 - --spec-type @SPEC_TYPE
2025-09-29 - -sp,--special
2025-09-29 - -sm,--split-mode @SPLIT_MODE
2025-09-29 - --spm-infill
b9538 - --sse-ping-interval @SSE_PING_INTERVAL
2025-09-29 - --ssl-cert-file @SSL_CERT_FILE
2025-09-29 - --ssl-key-file @SSL_KEY_FILE
2025-09-29 2025-09-29 --swa-checkpoints @SWA_CHECKPOINTS
2025-09-29 - --swa-full @SWA_FULL
b8672 - --tags @TAGS
2025-09-29 2026-01-13 --temp
2026-02-27 b10936 --temp,--temperature
b11434 - --temp,--temperature @TEMPERATURE
2025-09-29 - -ts,--tensor-split @TENSOR_SPLIT
2025-09-29 - -t,--threads @THREADS
2025-09-29 - -tb,--threads-batch
2025-09-29 b8672 -tbd,--threads-batch-draft
2025-09-29 b8672 -td,--threads-draft
2025-09-29 - --threads-http @THREADS_HTTP
2025-09-29 - -to,--timeout @TIMEOUT
b8672 - --tools @TOOLS
b10434 - --tools-runtime @TOOLS_RUNTIME
2025-09-29 2025-11-29 --top-k
2026-01-13 - --top-k @TOP_K
2025-09-29 2026-01-13 --top-nsigma
2026-02-27 - --top-nsigma,--top-n-sigma
2025-09-29 b10936 --top-p
b11434 - --top-p @TOP_P
2025-09-29 b10229 --tts-use-guide-tokens
2025-09-29 2026-01-13 --typical
2026-02-27 - --typical,--typical-p
2025-09-29 - -ub,--ubatch-size @UBATCH
b9246 b9538 --ui/--no-ui @UI
b9940 - --ui,--webui/--no-ui,--no-webui @UI
b9246 b9538 --ui-config @UI_CONFIG
b9940 - --ui-config,--webui-config @UI_CONFIG
b9246 b9538 --ui-config-file @UI_CONFIG_FILE
b9940 - --ui-config-file,--webui-config-file @UI_CONFIG_FILE
b9246 b9538 --ui-mcp-proxy/--no-ui-mcp-proxy @UI_MCP_PROXY
b9940 - --ui-mcp-proxy,--webui-mcp-proxy/--no-ui-mcp-proxy,--no-webui-mcp-proxy @UI_MCP_PROXY
2025-09-29 - -v,--verbose,--log-verbose
2025-09-29 2026-02-27 --verbose-prompt
2025-09-29 b9246 -lv,--verbosity,--log-verbosity LLAMA_LOG_VERBOSITY
b9388 - -lv,--verbosity,--log-verbosity @LOG_VERBOSITY
2025-09-29 - --version
b10825 - --video-ffmpeg-dir @VIDEO_FFMPEG_DIR
b10825 - --video-fps @VIDEO_FPS
b10825 - --video-timestamp-interval @VIDEO_TIMESTAMP_INTERVAL
2025-11-29 - --vision-gemma-12b-default
2025-11-29 - --vision-gemma-4b-default
2026-01-13 - --warmup/--no-warmup
2026-01-13 b9538 --webui/--no-webui @WEBUI
2026-01-13 b9538 --webui-config @WEBUI_CONFIG
2026-01-13 b9538 --webui-config-file @WEBUI_CONFIG_FILE
b8672 b9538 --webui-mcp-proxy/--no-webui-mcp-proxy @WEBUI_MCP_PROXY
2025-09-29 - --xtc-probability
2025-09-29 - --xtc-threshold
2025-09-29 - --yarn-attn-factor @YARN_ATTN_FACTOR
2025-09-29 - --yarn-beta-fast @YARN_BETA_FAST
2025-09-29 - --yarn-beta-slow @YARN_BETA_SLOW
2025-09-29 - --yarn-ext-factor @YARN_EXT_FACTOR
2025-09-29 - --yarn-orig-ctx @YARN_ORIG_CTX
"""
