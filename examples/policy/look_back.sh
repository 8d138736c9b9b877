#!/usr/bin/env bash
# What the record of a running proxy answers. Options go to each command, such as --config FILE;
# without any, run it where the proxy was started.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
pinocchio=${PINOCCHIO:-$here/../../.venv/bin/pinocchio}
url=${PINOCCHIO_URL:-http://127.0.0.1:8000/v1}

id=$(curl --silent --show-error --output /dev/null --dump-header - "$url/chat/completions" \
    -H 'content-type: application/json' \
    --data '{"model": "demo", "messages": [{"role": "user", "content": "Is 91 a prime number?"}]}' |
    tr -d '\r' | sed -n 's/^x-pinocchio-request-id: //p')
sleep 1 # the record is written in batches

echo "== explain: which rule decided, and would it today?"
$pinocchio explain "$id" "$@"

echo "== verdict: the reply was wrong, 91 is 7 times 13"
$pinocchio label "$id" wrong "$@"

echo "== replay: what another policy would have done in the last hour"
$pinocchio replay --policies healthcare --since 1h "$@"
