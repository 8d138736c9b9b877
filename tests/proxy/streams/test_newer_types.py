"""What newer models and servers put beside an answer, as bytes through the proxy.

Lists of MCP tools, commentary, compaction, and a model that steps in for another one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.equality.equality_cases import without_members
from tests.proxy.streams.gateway_events import (
    ITEM,
    MESSAGE,
    MESSAGE_EVENTS,
    RESPONSE,
    STOP,
    TEXT,
    Json,
    asked,
    sse,
)
from tests.running.live_proxy import OBSERVE, LiveProxy
from tests.servers.faulty_upstream import EVENTS, JSON, Response
from tests.servers.undecided import AnyUpstream

RISKY = """
version: 1
name: risky
mode: enforce
rules: [{name: bad if wrong, when: {risk: high}, then: {hold: {queue: q, reply: error}}}]
default: deliver
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[AnyUpstream]:
    with AnyUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def observing(
    upstream: AnyUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveProxy]:
    folder = tmp_path_factory.mktemp("observing")
    proxy = LiveProxy(upstream.base_url, folder, policy=OBSERVE, upstream={"speaks": "both"})
    yield proxy
    proxy.stop()


@pytest.fixture(scope="module")
def risky(upstream: AnyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProxy]:
    """Yield a proxy that holds calls of high risk."""
    folder = tmp_path_factory.mktemp("risky")
    proxy = LiveProxy(upstream.base_url, folder, policy=RISKY, upstream={"speaks": "both"})
    yield proxy
    proxy.stop()


def sent_bytes(answer: Response) -> bytes:
    return b"".join(step for step in answer.steps if isinstance(step, bytes))


def items_sent(items: list[Json], is_stream: bool) -> Response:
    """Return a response with these items, whole or as a stream of events."""
    whole = {**RESPONSE, "status": "completed", "output": items}
    if not is_stream:
        return Response([json.dumps(whole).encode()], headers=JSON)
    events: list[Json | str] = [{"type": "response.created", "response": RESPONSE}]
    for index, item in enumerate(items):
        for end in ("added", "done"):
            kind = f"response.output_item.{end}"
            events.append({"type": kind, "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": whole})
    for number, event in enumerate(events):
        if isinstance(event, dict):
            event["sequence_number"] = number
    return Response([sse(*events, named=True)], headers=EVENTS)


def member_of(body: bytes, is_stream: bool) -> Json:
    """Return the proxy's member of a response."""
    lines = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
    last = json.loads(lines[-1])["response"] if is_stream else json.loads(body)
    member: Json = last["pinocchio"]
    return member


def mcp_items(annotations: Any) -> list[Json]:
    """Return the list of an MCP server's tools, and its request for approval of a call."""
    tool = {"name": "process", "input_schema": {"type": "object"}, "annotations": annotations}
    listed = {"id": "l", "type": "mcp_list_tools", "server_label": "crm", "tools": [tool]}
    asking = {"id": "a", "type": "mcp_approval_request", "server_label": "crm"}
    return [listed, {**asking, "name": "process", "arguments": '{"id": "12"}'}]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("annotations", "risk"),
    [
        ({"readOnlyHint": True}, "low"),
        ({"destructiveHint": True}, "high"),
        ({"read_only": True, "destructive": False}, "low"),
        (None, "medium"),
        ("odd", "medium"),
    ],
)
def test_annotations_that_the_reply_itself_lists_give_the_risk(
    observing: LiveProxy, upstream: AnyUpstream, annotations: Any, risk: str, is_stream: bool
) -> None:
    """A reply's list of MCP tools gives the risk of its call; the bytes are unchanged."""
    answer = upstream.answer = items_sent(mcp_items(annotations), is_stream)
    got = asked(observing, "responses", is_stream=is_stream)
    assert without_members(got.content)[0] == sent_bytes(answer)
    [choice] = member_of(got.content, is_stream)["choices"]
    [call] = choice["calls"]
    assert call["risk"] == risk
    assert "schema" not in [mark["mark"] for mark in call["marks"]]


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_rule_holds_by_annotations_of_the_same_reply(
    risky: LiveProxy, upstream: AnyUpstream, is_stream: bool
) -> None:
    """A destructive call is held by those annotations, and one that only reads is delivered."""
    upstream.answer = items_sent(mcp_items({"destructiveHint": True}), is_stream)
    held = asked(risky, "responses", is_stream=is_stream)
    assert b"held_for_review" in held.content
    assert b'"arguments"' not in held.content
    passing = upstream.answer = items_sent(mcp_items({"readOnlyHint": True}), is_stream)
    passed = asked(risky, "responses", is_stream=is_stream)
    assert without_members(passed.content)[0] == sent_bytes(passing)


def saying(text: str, phase: str) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {**ITEM, "id": phase, "phase": phase, "content": content}


@pytest.mark.parametrize("is_stream", [False, True])
def test_commentary_is_not_scored_as_the_answer(
    observing: LiveProxy, upstream: AnyUpstream, is_stream: bool
) -> None:
    """Commentary is not scored: the confidence is the final answer's."""
    items = [saying("I look first. p=0.2", "commentary"), saying("Paris. p=0.8", "final_answer")]
    answer = upstream.answer = items_sent(items, is_stream)
    got = asked(observing, "responses", is_stream=is_stream)
    assert without_members(got.content)[0] == sent_bytes(answer)
    assert member_of(got.content, is_stream)["confidence"] == 0.8


def test_compaction_costs_no_number(observing: LiveProxy, upstream: AnyUpstream) -> None:
    """Compaction's event and item arrive unchanged, and the answer beside them is scored."""
    compaction = {"id": "c", "type": "compaction", "encrypted_content": "gAAA"}
    stream = sent_bytes(items_sent([compaction, ITEM], is_stream=True))
    event = {"type": "response.compaction.compacting", "item_id": "c", "output_index": 0}
    cut = stream.index(b"event: response.output_item.added")
    stream = stream[:cut] + sse(event, named=True) + stream[cut:]
    upstream.answer = Response([stream], headers=EVENTS)
    got = asked(observing, "responses", is_stream=True)
    assert without_members(got.content) == (stream, 1)
    assert member_of(got.content, is_stream=True)["confidence"] == 0.9


FALLBACK: Json = {
    "type": "fallback",
    "from": {"model": "claude-fable-5"},
    "to": {"model": "claude-opus-5-5"},
    "trigger": {"type": "refusal"},
}
ITERATIONS = [
    {"type": "message", "model": "claude-fable-5", "input_tokens": 3, "output_tokens": 0},
    {"type": "fallback_message", "model": "claude-opus-5-5-20260901", "output_tokens": 2},
]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("has_iterations", [False, True])
def test_the_model_that_answered_is_rated(
    observing: LiveProxy, upstream: AnyUpstream, has_iterations: bool, is_stream: bool
) -> None:
    """The rated model is that of the `fallback` block, or better of `usage.iterations`."""
    usage: Json = {"input_tokens": 1, "output_tokens": 9}
    usage |= {"iterations": ITERATIONS} if has_iterations else {}
    whole = {**MESSAGE, "model": "claude-fable-5", "stop_reason": "end_turn", "usage": usage}
    blocks: list[Json] = [FALLBACK, {"type": "text", "text": TEXT}]
    if is_stream:
        start = {"type": "message_start", "message": {**MESSAGE, "model": "claude-fable-5"}}
        begun = {"type": "content_block_start", "index": 0, "content_block": FALLBACK}
        moved = [{**each, "index": 1} for each in MESSAGE_EVENTS[1:4] if isinstance(each, dict)]
        stopped = {"stop_reason": "end_turn", "stop_sequence": None}
        events: list[Json | str] = [
            start,
            begun,
            {"type": "content_block_stop", "index": 0},
            *moved,
        ]
        events.append({"type": "message_delta", "delta": stopped, "usage": usage})
        answer = Response([sse(*events, STOP, named=True)], headers=EVENTS)
    else:
        answer = Response([json.dumps({**whole, "content": blocks}).encode()], headers=JSON)
    upstream.answer = answer
    got = asked(observing, "messages", is_stream=is_stream)
    assert without_members(got.content)[0] == sent_bytes(answer)
    assert b'"confidence":0.9' in got.content.replace(b" ", b"")
    model = observing.scorer.seen[-1].source_model  # type: ignore[attr-defined]  # a WordScorer
    assert model == ("claude-opus-5-5-20260901" if has_iterations else "claude-opus-5-5")
