#!/bin/sh
# Servers of `deepseek-epyc` on `local`
set -eu

podman run \
  --detach \
  --name fleet-deepseek-epyc-server \
  --restart on-failure:3 \
  --stop-timeout 10 \
  --user 1000:1000 \
  --cap-drop all \
  --security-opt no-new-privileges \
  --read-only \
  --mount type=tmpfs,destination=/tmp,tmpfs-size=256m \
  --pids-limit 4096 \
  --log-opt max-size=64mb \
  --label fleet.deployment=deepseek-epyc \
  --label fleet.server=server \
  --label fleet.digest=f528061d4dae9eab \
  --label fleet.engine=llama.cpp \
  --label fleet.build=11549 \
  --publish 127.0.0.1:8081:8081 \
  --shm-size 17179869184b \
  --volume /srv/cache/fleet/models:/models:ro,z \
  --health-cmd 'curl -fsS http://127.0.0.1:8081/health' \
  --health-interval 10s \
  --health-timeout 5s \
  --health-start-period 2145s \
  --health-retries 3 \
  --entrypoint llama-server localhost/fleet/llama.cpp:b11549 \
  -m /models/DeepSeek-V3.2-Speciale-Q4_K_M.gguf \
  --host 0.0.0.0 \
  --port 8081 \
  -t 13 \
  -tb 13 \
  -c 16384 \
  -np 1 \
  -no-kvu \
  -b 2048 \
  -ub 512 \
  -fa on \
  --cache-type-k q8_0 \
  --cache-type-v q8_0 \
  -fit off \
  --jinja \
  --reasoning on \
  --metrics \
  -lv 4 \
  --cors-origins localhost \
  --no-cors-credentials
