#!/bin/sh
# Servers of `spark-pair-v4-flash` on `spark-b`
set -eu

podman run \
  --detach \
  --name fleet-spark-pair-v4-flash-worker \
  --restart on-failure:3 \
  --stop-timeout 10 \
  --user 1000:1000 \
  --cap-drop all \
  --security-opt no-new-privileges \
  --read-only \
  --mount type=tmpfs,destination=/tmp,tmpfs-size=256m \
  --log-driver k8s-file \
  --log-opt max-size=64mb \
  --pids-limit 4096 \
  --label fleet.deployment=spark-pair-v4-flash \
  --label fleet.server=worker \
  --label fleet.digest=33bc0f96de988abf \
  --label fleet.engine=vllm \
  --label fleet.build=0.33.0 \
  --network host \
  --shm-size 17179869184b \
  --ulimit memlock=-1:-1 \
  --device nvidia.com/gpu=all \
  --device /dev/infiniband \
  --group-add keep-groups \
  --volume /srv/fleet/models/deepseek-v4-flash-vllm:/models:ro,z \
  --env GLOO_SOCKET_IFNAME=enp1s0f0np0 \
  --env NCCL_SOCKET_IFNAME=enp1s0f0np0 \
  --env TP_SOCKET_IFNAME=enp1s0f0np0 \
  --entrypoint vllm localhost/fleet/vllm:0.33.0 serve /models \
  --served-model-name deepseek-v4-flash-vllm \
  --max-model-len 32768 \
  --tensor-parallel-size 2 \
  --gpu-memory-utilization 0.85 \
  --max-num-seqs 4 \
  --enable-prefix-caching \
  --enable-prompt-tokens-details \
  --default-chat-template-kwargs '{"thinking": false, "enable_thinking": false}' \
  --prefix-cache-retention-interval 1024 \
  --distributed-executor-backend mp \
  --nnodes 2 \
  --node-rank 1 \
  --master-addr 192.168.100.1 \
  --master-port 29501 \
  --headless
