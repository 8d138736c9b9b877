"""`pinocchio.doubt`: which calls a person must approve, by a threshold or by a policy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from pinocchio.calls import SeenCalls
from pinocchio.doubt import doubt
from policies import Deliver, Facts, ToolCall, decide, load_policy
from tests.test_seen_calls import CHAT_CALL, STREAMED, Json, events

POLICY = """
version: 1
name: refunds
mode: enforce
on_score_error: deliver
rules:
  - name: small
    when: {tools: [{name: refund, arguments: {amount: {below: 10}}}]}
    then: deliver
  - {name: large, when: {tools: [refund], confidence: {below: 0.8}}, then: hold}
default: deliver
"""
PACK = load_policy("agent-tools")
BY_PACK = doubt(None, "agent-tools")


@pytest.fixture
def refunds(tmp_path: Path) -> Path:
    path = tmp_path / "refunds.yaml"
    path.write_text(POLICY)
    return path


@pytest.mark.parametrize("confidence", [None, 0.0, 0.3, 0.5, 0.7, 0.99])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("get_order", {"id": "A-1"}),
        ("update_order", {"id": "A-1"}),
        ("delete_order", {"id": "A-1"}),
        ("refund_order", {"amount": 5000}),
        ("bash", {"command": "rm -rf build"}),
    ],
)
def test_a_policy_decides_as_in_the_proxy(name: str, arguments: Json, confidence: float) -> None:
    """A call is doubted where the pack would not deliver it; arguments may be text or values."""
    call = ToolCall(name, json.dumps(arguments))
    expected = not isinstance(decide(PACK, Facts(confidence, "m", (call,))).applied, Deliver)
    assert BY_PACK(name, arguments, confidence) is expected
    assert BY_PACK(name, json.dumps(arguments), confidence) is expected


def test_name_arguments_and_confidence_count(refunds: Path) -> None:
    """The policy's rules on tool name, arguments and confidence decide."""
    is_unsure = doubt(None, refunds)
    assert is_unsure("refund", {"amount": 50}, 0.7)
    assert not is_unsure("refund", {"amount": 50}, 0.8)
    assert not is_unsure("refund", {"amount": 5}, 0.1)
    assert not is_unsure("lookup", {"amount": 50}, 0.1)


def test_without_a_number_a_call_is_unsure_where_the_policy_asks_for_one(refunds: Path) -> None:
    """Without a confidence or a name a call is unsure; rules on other facts decide as always."""
    is_unsure = doubt(None, refunds)
    assert is_unsure("refund", {"amount": 50}, None)
    assert not is_unsure("refund", {"amount": 5}, None)
    assert is_unsure(None, {"amount": 5}, 0.99)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("mode: enforce", "mode: shadow"), "stops no call"),
        (("tools: [refund],", "team: sales,"), "looks at team"),
    ],
)
def test_what_cannot_be_decided_here_is_refused(
    refunds: Path, change: tuple[str, str], sentence: str
) -> None:
    """A policy that cannot decide here is refused when the predicate is made."""
    refunds.write_text(refunds.read_text().replace(*change))
    with pytest.raises(ValueError, match=sentence):
        doubt(None, refunds)


@pytest.mark.parametrize(
    "arguments",
    [(None, None), (0.9, "agent-tools"), (None, "agent-tools", True), (None, None, "schema")],
)
def test_conflicting_arguments_are_refused(arguments: Any) -> None:
    """A policy excludes a threshold and marks; marks need a threshold and are a list of names."""
    with pytest.raises(ValueError, match="marked=True"):
        doubt(*arguments)


MARKED = (("not_in_conversation", "to"),)


@pytest.mark.parametrize(
    ("marked", "confidence", "marks", "expected"),
    [
        (True, 0.9, (), False),
        (True, 0.9, MARKED, True),
        (True, 0.9, (("not_looked_up", ""),), False),
        (["not_looked_up"], 0.9, (("not_looked_up", ""),), True),
        (["swapped"], 0.9, MARKED, False),
        (True, 0.9, None, True),
        (True, 0.2, (), True),
        (True, None, (), True),
    ],
)
def test_a_marked_call_is_for_a_person(
    marked: Any, confidence: float | None, marks: Any, expected: bool
) -> None:
    """A marked call is unsure, as is one with unknown marks; common marks count by name only."""
    is_unsure = doubt(0.3, None, marked)
    assert is_unsure("send_email", {"to": "a@b.c"}, confidence, marks, "low") is expected


@pytest.mark.parametrize(("marks", "expected"), [((), False), (MARKED, True), (None, True)])
def test_a_pack_decides_on_marks(marks: Any, expected: bool) -> None:
    """A policy decides on the marks that came with the reply."""
    assert doubt(None, "doubtful-calls")("send_email", {}, 0.9, marks, "low") is expected


def test_a_threshold_needs_the_standard_library_alone() -> None:
    """A threshold works with the standard library alone, as after `pip install --no-deps`."""
    code = (
        "import sys, pinocchio.langchain, pinocchio.openai_agents, pinocchio.pydantic_ai as p\n"
        "p.unsure(below=0.9, seen=p.SeenCalls())\n"
        "print({m.partition('.')[0] for m in sys.modules} - sys.stdlib_module_names)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert set(json.loads(done.stdout.replace("'", '"').replace("{", "[").replace("}", "]"))) <= {
        *("pinocchio", "__main__", "__mp_main__"),
    }


# Calls that a judge in this process scores


class Judge:
    """A judge that says 0.75 and records its arguments."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def score(self, response: Any, *, messages: Any, tools: Any) -> float:
        self.asked.append((response, messages, tools))
        if not response["choices"][0]["message"]["tool_calls"]:
            raise ValueError("no calls")
        return 0.75


REQUEST: Json = {"messages": [{"role": "user", "content": "Refund it."}], "tools": [{"type": "x"}]}


def judged(judge: Judge, body: bytes, kind: str = "application/json") -> SeenCalls:
    seen = SeenCalls(judge=judge)

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": kind}, content=iter([body]))

    transport = httpx.MockTransport(answer)
    with httpx.Client(transport=transport, event_hooks=seen.hooks) as client:
        client.post("http://proxy/", json=REQUEST)
    return seen


def test_a_judge_scores_what_has_no_number() -> None:
    """A judge scores a reply without a confidence once, with its conversation and tools."""
    whole: Json = {"choices": [{"message": {"tool_calls": [CHAT_CALL]}}]}
    pieces: list[Json] = [
        {"model": "m", "choices": [{"delta": {"tool_calls": [{"index": 0, **CHAT_CALL}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": " "}}]}}]},
    ]
    for body, kind, arguments in (
        (json.dumps(whole).encode(), "application/json", "{}"),
        (events(pieces), "text/event-stream", "{} "),
    ):
        judge = Judge()
        assert judged(judge, body, kind).confidence("call_1") == 0.75
        [(reply, messages, tools)] = judge.asked
        [call] = reply["choices"][0]["message"]["tool_calls"]
        assert (call["id"], call["function"]["name"]) == ("call_1", "f")
        assert call["function"]["arguments"] == arguments
        assert (messages, tools) == (REQUEST["messages"], REQUEST["tools"])


def test_a_reply_with_a_confidence_is_not_judged() -> None:
    """A reply with the proxy's confidence is not given to the judge."""
    judge = Judge()
    seen = judged(judge, events(STREAMED["chat"]), "text/event-stream")
    assert (seen.confidence("call_1"), judge.asked) == (0.25, [])


def test_a_judge_that_fails_leaves_the_call_unsure() -> None:
    """If the judge raises an error, the call is unsure and the client still reads its reply."""
    item = {"output": [{"type": "function_call", "call_id": "call_1", "name": "f"}]}
    assert judged(Judge(), json.dumps(item).encode()).confidence("call_1") is None
