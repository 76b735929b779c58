#!/bin/sh
# A study killed twenty times: no trial lost but the running ones, the same result at the end.
set -eu
cd "$(dirname "$0")/../.."
FLEET_TUNE_KILLS=20 exec python3 -m pytest -q tests/journeys/test_tune_stand_in.py -k "killed"
