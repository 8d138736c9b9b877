#!/usr/bin/env bash
# The same question on the four surfaces that are scored, with the same headers on each.
set -euo pipefail
url=${PINOCCHIO_URL:-http://127.0.0.1:8000/v1}
question='Is 91 a prime number?'
messages="[{\"role\": \"user\", \"content\": \"$question\"}]"

ask() { # PATH BODY
    echo "== $1"
    curl --silent --show-error --include "$url/$1" -H 'content-type: application/json' --data "$2" |
        tr -d '\r' | grep -E '^x-pinocchio-(confidence|action)|^\{'
}

ask chat/completions "{\"model\": \"demo\", \"messages\": $messages}"
ask completions "{\"model\": \"demo\", \"prompt\": \"$question\"}"
ask responses "{\"model\": \"demo\", \"input\": \"$question\"}"
ask messages "{\"model\": \"demo\", \"max_tokens\": 100, \"messages\": $messages}"
