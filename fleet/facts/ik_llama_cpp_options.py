"""The options of ik_llama.cpp's server that fleet uses, as its source had them in 2026-08.

Names as in llama_cpp_spellings.py: positive ones, then after `/` the negative ones. It has
no build numbers and reads no `LLAMA_ARG_*` variables.
"""

from __future__ import annotations

IK_DATE = "2026-08-15"

IK_OPTIONS = """
-h,--help,--usage --version -v,--verbose --verbosity -dr,--dry-run -s,--seed
-t,--threads -tb,--threads-batch -td,--threads-draft -tbd,--threads-batch-draft
-tm,--threads-mtmd --threads-http
-lcs,--lookup-cache-static -lcd,--lookup-cache-dynamic
-c,--ctx-size -cd,--ctx-size-draft -b,--batch-size -ub,--ubatch-size -n,--predict --keep
--ctx-checkpoints --ctx-checkpoints-interval --ctx-checkpoints-tolerance
-cram,--cache-ram -crs,--cache-ram-similarity -cram-n-min,--cache-ram-n-min
-fa,--flash-attn -no-fa,--no-flash-attn -mla,--mla-use -amb,--attention-max-batch
-fmoe,--fused-moe -no-fmoe,--no-fused-moe -ger,--grouped-expert-routing
-no-fug,--no-fused-up-gate -no-mmad,--no-fused-mul-multiadd
-gr,--graph-reuse -no-gr,--no-graph-reuse -ser,--smart-expert-reduction
-mqkv,--merge-qkv -muge,--merge-up-gate-experts
-khad,--k-cache-hadamard -vhad,--v-cache-hadamard --swa-compress -thp,--transparent-huge-pages
-rtr,--run-time-repack --context-shift --no-context-shift
-ctk,--cache-type-k -ctv,--cache-type-v -ctkd,--cache-type-k-draft -ctvd,--cache-type-v-draft
-nkvo,--no-kv-offload -dt,--defrag-thold -np,--parallel
-cb,--cont-batching -nocb,--no-cont-batching
--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx
--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast
--mmproj --image-min-tokens --image-max-tokens --rpc -cuda,--cuda-params
--mlock --no-mmap --cpu-moe,-cmoe --n-cpu-moe,-ncmoe --fit --fit-margin --numa
-ngl,--gpu-layers,--n-gpu-layers -ngld,--gpu-layers-draft,--n-gpu-layers-draft
-sm,--split-mode -ts,--tensor-split -dev,--device -devd,--device-draft -mg,--main-gpu
-ot,--override-tensor --check-tensors --override-kv --lora --lora-scaled
-m,--model -md,--model-draft -a,--alias --spec-type
--temp --top-k --top-p --min-p --typical --repeat-last-n --repeat-penalty --presence-penalty
--frequency-penalty --samplers --no-warmup
--jinja --chat-template --chat-template-file --chat-template-kwargs
--reasoning-format -rea,--reasoning --reasoning-budget --no-prefill-assistant
--host --port --path --embedding,--embeddings --webui --ui-mcp-proxy,--webui-mcp-proxy
--pooling --api-key --api-key-file --ssl-key-file --ssl-cert-file --timeout
--metrics --no-slots --slot-save-path -sps,--slot-prompt-similarity --log-format --log-disable
"""
