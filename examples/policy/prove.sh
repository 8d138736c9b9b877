#!/usr/bin/env bash
# From labelled replies to a policy whose error rate is proved. No proxy, no network, nothing kept.
set -euo pipefail
cd "$(dirname "$0")"
pinocchio=${PINOCCHIO:-$PWD/../../.venv/bin/pinocchio}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp gate.yaml fixtures.yaml "$work"
python3 label.py >"$work/labelled.jsonl"
cd "$work"

echo "== recalibrate: 2,000 labels correct a calibrator that is too sure"
$pinocchio recalibrate labelled.jsonl --scores labelled.jsonl -o platt.json

echo "== certify: above which confidence are at most 10 % of the replies wrong?"
$pinocchio certify labelled.jsonl --max-error 0.1 --confidence 0.9 \
    --policy gate.yaml --rule "surely right" -o gate.certificate.json

echo "== certify: 50 labels are too few, and how many are missing is said"
head -n 50 labelled.jsonl >few.jsonl
$pinocchio certify few.jsonl --max-error 0.1 || [ $? = 3 ]

echo "== test: the policy on fixtures"
$pinocchio test gate.yaml fixtures.yaml

echo "== replay: what it would do to those replies, beside the default policy"
$pinocchio replay --policies gate.yaml --before observe --rows labelled.jsonl
