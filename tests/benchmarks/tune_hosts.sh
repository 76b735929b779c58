#!/bin/sh
# One study on two hosts against one: bar 0.65 where the engine only sleeps; the real engine, one
# core a host, is told (aim 0.85). Both hosts are this machine, which must be calm.
set -eu
cd "$(dirname "$0")/../.."
FLEET_TUNE_BAR=0.65 exec python3 -m pytest -q -s -k "less_time or second_host_saves" \
    tests/journeys/test_tune_stand_in.py tests/benchmarks/tune_second_host.py
