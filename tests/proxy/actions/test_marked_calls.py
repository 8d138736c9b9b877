"""Calls that are held because of marks against them: what the client gets and the store keeps."""

from __future__ import annotations

from typing import Any

import pytest

from calibrator import FakeScorer
from pinocchio.calls import SeenCalls
from policies import pack_text
from proxy.store.record.facts import facts_in
from tests.conftest import StartProxy
from tests.proxy.desk.test_waiting_calls import QUESTION
from tests.running.live_proxy import LiveProxy

FIELDS = {"order_id": {"type": "string"}, "amount": {"type": "number"}}
REFUND = {"name": "refund_order", "parameters": {"type": "object", "properties": FIELDS}}
TOOLS = [{"type": "function", "function": REFUND}]
COLUMNS = ("facts",)


@pytest.fixture(scope="module")
def proxy(start_proxy: StartProxy) -> LiveProxy:
    """Start a proxy with the pack `doubtful-calls`
    and a scorer that is always sure, without marks.
    """
    return start_proxy(policy=pack_text("doubtful-calls"), scorer=FakeScorer(0.9))


@pytest.fixture(scope="module")
def observing(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(scorer=FakeScorer(0.9))


def test_a_marked_call_is_held_however_sure_the_number_is(proxy: LiveProxy) -> None:
    """The demo's refund of 69 euros in place of 6.90 is held;
    the record keeps marks and risk, and no value of the call.
    """
    held = proxy.ask(QUESTION, "demo", tools=TOOLS)
    assert held.status_code == 422, held.text
    [[facts]] = proxy.recorded(held.headers["x-pinocchio-request-id"], *COLUMNS)
    assert facts["tool_marks"][0][0] == ["not_in_conversation", "amount"]
    assert facts["tool_risks"] == ["medium"]
    assert "69" not in str(facts["tool_marks"])


def test_the_client_is_told_marks_and_risk_of_each_call(observing: LiveProxy) -> None:
    """Marks and risk come by the call's id, with words; `SeenCalls` reads them from any reply."""
    seen = SeenCalls()
    reply = observing.ask(QUESTION, "demo", tools=TOOLS)
    [choice] = reply.json()["pinocchio"]["choices"]
    [call] = choice["calls"]
    assert call["id"] == reply.json()["choices"][0]["message"]["tool_calls"][0]["id"]
    assert call["risk"] == "medium"
    assert call["marks"][0]["words"] == "not in the conversation, differs from 6.9"
    seen._listen(reply)
    assert seen.get(call["id"]).marks == tuple(
        (mark["mark"], mark.get("argument", "")) for mark in call["marks"]
    )


def test_a_record_without_marks_says_that_it_lacks_them() -> None:
    """An older version's record has no marks; a replay then says what may have been decided."""
    row: dict[str, Any] = dict.fromkeys(
        ("confidence_status", "team", "key", "conversation", "support", "act", "calibrator")
    )
    row |= {"policy": "p/r@1", "confidence": 0.9, "model": "m", "is_stream": 0, "basis": "calls"}
    row |= {"needs_facts": None, "is_familiar": None}
    _, lacks = facts_in(row | {"facts": '[{"tools":["refund"]}]'})
    assert lacks == {"arguments", "marks"}
    kept = '[{"tools":["refund"],"tool_marks":[[["swapped"]]],"tool_risks":["high"]}]'
    [facts], lacks = facts_in(row | {"facts": kept})
    assert lacks == {"arguments"}
    assert (facts.tools[0].marks, facts.tools[0].risk) == ((("swapped", ""),), "high")
