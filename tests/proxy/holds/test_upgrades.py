"""What binds a held call to its request stays the same over versions of the proxy.

An agent repeats its request after an upgrade and has to find the call that was released before it.
These digests are stored, so they are compared with what an earlier version stored. Whoever changes
one on purpose has to look up the old one as well.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from policies import Decision, parse_policy
from proxy.exchange.request import CompletionRequest
from proxy.formats import CHAT, MESSAGES, Format
from proxy.holds.binding import Approvals, digest_of_calls, digest_of_request
from proxy.store.reviews.held_replies import Store

POLICY = """
version: 1
name: golden
mode: enforce
rules:
  - name: refunds
    when: {tools: [refund]}
    then: {hold: {queue: approvals, reply: error, expires: 2h}}
default: deliver
"""
LOOK = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
REQUEST = {
    "model": "m",
    "temperature": 0.5,
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Refund A-1."},
        {"role": "assistant", "tool_calls": [LOOK]},
        {"role": "tool", "tool_call_id": "c1", "content": "84.20"},
    ],
    "tools": [{"type": "function", "function": {"name": "refund"}}],
}


@pytest.mark.parametrize(
    ("format", "stored"),
    [
        (CHAT, "1ef8479528546ba0a386f4815f7ae876945011593475c3b3cdd8393bdabfc799"),
        (MESSAGES, "b6d8d2a2aff7e9a911fdee95e29c7f34602b5eb1331af9da201b2fceb0d05b23"),
    ],
)
def test_a_request_has_the_digest_that_was_stored(format: Format, stored: str) -> None:
    """The same request finds after an upgrade what was held for it before."""
    body = json.dumps(REQUEST).encode()
    asked = CompletionRequest(format, body, REQUEST, "m", False, None, frozenset())
    assert digest_of_request(asked) == stored


def test_a_rule_has_the_digest_that_was_stored(tmp_path: Path) -> None:
    """A rule's digest, and so its approvals, change only with the rule and not with the version."""
    policy = parse_policy(POLICY, "golden.yaml")
    approvals = Approvals([policy], Store(f"sqlite:///{tmp_path / 'held.db'}"))
    [rule] = policy.rules
    decision = Decision(rule.then, policy.name, policy.digest, rule.name, "rule", policy.mode)
    stored = "2b9d613d7d36a7a0808ae74a4fc8549e694c566d78a96fc81e0766b8afe92fe7"
    assert approvals.rule_digest(decision) == stored


def test_calls_have_the_digest_that_was_stored() -> None:
    """A released reply is delivered only with the calls that were approved."""
    function = {"name": "refund", "arguments": '{"order": "A-1", "amount": 84.20}'}
    message = {"role": "assistant", "tool_calls": [{**LOOK, "function": function}]}
    reply = json.dumps({"choices": [{"index": 0, "message": message}]}).encode()
    [call] = json.loads(digest_of_calls(CHAT, reply))
    assert call["tool"] == "refund"
    assert call["arguments_sha256"] == (
        "4c68bf7e70ad49cb89cecf81f8fe2e9d0611ab21ed1de81b06e8021cdf06db37"
    )
