#!/usr/bin/env bash
# The proxy without any client library. Nothing is held under the default policy; to see it:
#   scripts/serve --policy helpdesk     # in another terminal
#   examples/curl.sh
set -euo pipefail
url=${PINOCCHIO_URL:-http://127.0.0.1:8000/v1}
ask() { curl --silent --show-error "$@" "$url/chat/completions" -H 'content-type: application/json'; }

echo "== models"
curl --silent --show-error "$url/models"

echo; echo "== an answer: the confidence stands in x-pinocchio-confidence and in the member pinocchio"
ask --include --data '{"model": "demo", "messages": [{"role": "user", "content": "Is 91 a prime number?"}]}'

echo; echo "== the end of a stream: the chunk with the finish_reason has the member pinocchio"
ask --no-buffer --data '{"model": "demo", "stream": true, "messages": [
    {"role": "user", "content": "Is 91 a prime number?"}]}' | tail -n 4

echo "== a refund: a tool call that the policy may hold until a person has released it"
refund=$(ask --include --data '{"model": "demo", "messages": [{"role": "user", "content":
    "On order 48213, please give the customer back just the shipping costs of 6.90 euros."}],
  "tools": [{"type": "function", "function": {"name": "refund_order", "parameters": {"type": "object",
    "properties": {"order_id": {"type": "string"}, "amount": {"type": "number"}}}}}]}')
echo "$refund"

id=$(tr -d '\r' <<<"$refund" | sed -n 's/^x-pinocchio-review-id: //p')
if [ -z "$id" ]; then
    echo "== not held: nothing to fetch"
    exit
fi
echo "== held: fetched under its id, a placeholder until someone says: .venv/bin/pinocchio reviews approve $id"
curl --silent --show-error "$url/chat/completions/$id"
echo
