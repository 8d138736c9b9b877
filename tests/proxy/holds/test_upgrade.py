"""Digests by which a repeated request finds its held reply stay the same over upgrades."""

from __future__ import annotations

import json
from pathlib import Path

from policies import parse_policy
from proxy.formats import CHAT
from proxy.holds.binding import Approvals, digest_of_calls
from proxy.store.reviews.held_replies import Store
from tests.proxy.holds.test_approvals import request_of

POLICY = """
version: 1
name: gate
rules:
  - name: refunds
    when: {tools: [{name: refund_order, arguments: {amount: {above: 10}}}]}
    then: {hold: {queue: oncall, reply: error, expires: 30m}}
default: deliver
"""
BODY = {
    "model": "m",
    "messages": [{"role": "user", "content": "Refund A-1"}],
    "tools": [{"type": "function", "function": {"name": "refund_order"}}],
    "temperature": 0.50,
}
CALL = {"id": "call_1", "type": "function"}
CALL |= {"function": {"name": "refund_order", "arguments": '{"order":"A-1","amount":50}'}}  # type: ignore[dict-item]
REPLY = {"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": [CALL]}}]}


def test_stored_digests_stay_the_same(tmp_path: Path) -> None:
    """Stored digests are computed by the same formula.

    With another one nobody would find what a reviewer released before the
    upgrade. Whoever changes a formula must look rows up by the old one too.
    """
    policy = parse_policy(POLICY, "gate.yaml")
    approvals = Approvals([policy], Store(f"sqlite:///{tmp_path}/held.db"))
    request = request_of(json.dumps(BODY).encode())
    found = {
        "request": approvals.request_digest(request, ""),
        "rule": next(iter(approvals._decisions)),
        "calls": digest_of_calls(CHAT, json.dumps(REPLY).encode()),
    }
    arguments = "9fe1a1c7ea7d35618503ff093788eb89a0fa89f16d26eb4144a1de4d9ae5058e"
    assert found == {
        "request": "495949a183f3019bd2976c9303e9650e8a7b8860254df413359ef587668ef2f3",
        "rule": "6195f5a0dbf11655c39f51cdcb5bd474938e3a7fa6104bde1387b5484f1d0e5c",
        "calls": f'[{{"tool": "refund_order", "arguments_sha256": "{arguments}"}}]',
    }
