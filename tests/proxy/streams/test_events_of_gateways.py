"""Events that gateways and servers send beside an answer pass every policy unchanged.

Unknown events, the end signs of other APIs, errors with null members or with status 200, text in
`message`: the official clients read all of these streams, so they are scored and relayed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.equality.equality_cases import without_members
from tests.proxy.streams.gateway_events import (
    BUFFERED,
    CALL_EVENTS,
    CALLS,
    CHAT_EVENTS,
    COMPLETED,
    CREATED,
    DONE_ITEM,
    MESSAGE_EVENTS,
    RESPONSE,
    RESPONSE_EVENTS,
    STOP,
    TEXT,
    Json,
    asked,
    chunk,
    sse,
)
from tests.running.live_proxy import OBSERVE, LiveProxy
from tests.servers.faulty_upstream import EVENTS, JSON, Response
from tests.servers.undecided import AnyUpstream

VERTEX: Json = {"type": "vertex_event", "usage": {"input_tokens": 9, "output_tokens": 1}}
CODEX: list[Json] = [
    {
        "type": "codex.rate_limits",
        "rate_limits": {"primary": {"used_percent": 1}},
        "plan_type": "plus",
    },
    {"type": "codex.response.metadata", "headers": {"x-request-id": "1"}},
    {"type": "responsesapi.websocket_timing", "timing_metrics": {"ms": 3}},
]
SCORED_STREAMS = {
    "vertex event": ("messages", sse(VERTEX, *MESSAGE_EVENTS, VERTEX, STOP, named=True)),
    "unknown event": (
        "messages",
        sse(*MESSAGE_EVENTS, {"type": "rate_limits", "x": 1}, STOP, named=True),
    ),
    "codex events": ("responses", sse(CREATED, *CODEX, DONE_ITEM, COMPLETED, named=True)),
    "[DONE] behind message_stop": (
        "messages",
        sse(*MESSAGE_EVENTS, STOP, named=True) + sse("[DONE]"),
    ),
    "[DONE] for message_stop": ("messages", sse(*MESSAGE_EVENTS, named=True) + sse("[DONE]")),
    "[DONE] with a blank": ("chat", sse(*CHAT_EVENTS, "[DONE] ")),
    "[DONE] with a line end": ("chat", sse(*CHAT_EVENTS, r"[DONE]\n")),
    "[DONE] behind a blank": ("chat", sse(*CHAT_EVENTS, "  [DONE]")),
    "[DONE] with a blank in responses": (
        "responses",
        sse(*RESPONSE_EVENTS, named=True) + sse("[DONE] "),
    ),
    "text in message": (
        "chat",
        sse(chunk(message={"role": "assistant", "content": TEXT}, finish_reason="stop"), "[DONE]"),
    ),
    "a gateway's status": (
        "messages",
        sse(*MESSAGE_EVENTS, {"type": "status", "message": "almost done"}, STOP, named=True),
    ),
    "unknown delta": (
        "messages",
        sse(
            *MESSAGE_EVENTS[:3],
            {"type": "content_block_delta", "index": 0, "delta": {"type": "odd_delta", "x": 1}},
            *MESSAGE_EVENTS[3:],
            STOP,
            named=True,
        ),
    ),
    "text in message beside an empty delta": (
        "chat",
        sse(
            chunk(
                delta={"role": "assistant", "content": ""},
                message={"role": "assistant", "content": TEXT},
                finish_reason="stop",
            ),
            "[DONE]",
        ),
    ),
    "text in the delta of completions": (
        "completions",
        sse(chunk(delta={"content": TEXT}, finish_reason="stop"), "[DONE]"),
    ),
    "text without an item": (
        "responses",
        sse(
            CREATED,
            {"type": "response.output_text.done", "output_index": 0, "text": TEXT},
            {"type": "response.completed", "response": {**RESPONSE, "status": "completed"}},
            named=True,
        ),
    ),
    "deltas without an item": (
        "responses",
        sse(
            CREATED,
            {"type": "response.output_text.delta", "output_index": 0, "delta": TEXT[:9]},
            {"type": "response.output_text.delta", "output_index": 0, "delta": TEXT[9:]},
            {"type": "response.output_text.done", "output_index": 0, "text": TEXT},
            {"type": "response.completed", "response": {**RESPONSE, "status": "completed"}},
            named=True,
        ),
    ),
    "text in message again": (
        "chat",
        sse(
            chunk(delta={"role": "assistant", "content": TEXT}),
            chunk(message={"role": "assistant", "content": TEXT}, finish_reason="stop"),
            "[DONE]",
        ),
    ),
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[AnyUpstream]:
    with AnyUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module", params=["observe", "calls", "buffered"])
def proxy(
    request: pytest.FixtureRequest, upstream: AnyUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveProxy]:
    """Yield a proxy that observes, holds calls, or decides on everything before it is sent."""
    policy = {"observe": OBSERVE, "calls": CALLS, "buffered": BUFFERED}[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    proxy = LiveProxy(upstream.base_url, folder, policy=policy, upstream={"speaks": "both"})
    yield proxy
    proxy.stop()


@pytest.fixture(scope="module")
def observing(
    upstream: AnyUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveProxy]:
    """Yield a proxy whose policy changes nothing."""
    folder = tmp_path_factory.mktemp("observing")
    proxy = LiveProxy(upstream.base_url, folder, policy=OBSERVE, upstream={"speaks": "both"})
    yield proxy
    proxy.stop()


@pytest.fixture(scope="module")
def gating(upstream: AnyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProxy]:
    """Yield a proxy that holds every call."""
    folder = tmp_path_factory.mktemp("gating")
    proxy = LiveProxy(upstream.base_url, folder, policy=CALLS, upstream={"speaks": "both"})
    yield proxy
    proxy.stop()


@pytest.mark.parametrize("name", SCORED_STREAMS)
def test_what_clients_pass_over_costs_no_number(
    proxy: LiveProxy, upstream: AnyUpstream, name: str
) -> None:
    """The stream arrives unchanged except for the member, and its text has its number."""
    surface, stream = SCORED_STREAMS[name]
    upstream.answer = Response([stream], headers=EVENTS)
    got = asked(proxy, surface, is_stream=True)
    assert got.status_code == 200, got.text
    assert without_members(got.content) == (stream, 1)
    assert b'"confidence":0.9' in got.content.replace(b" ", b"")


UNREAD_STREAMS = {
    "a block without a start": (
        "messages",
        sse(MESSAGE_EVENTS[0], *MESSAGE_EVENTS[2:], STOP, named=True),
    ),
    "two objects in one event": (
        "chat",
        sse(json.dumps(CHAT_EVENTS[0]) + json.dumps(CHAT_EVENTS[0]), CHAT_EVENTS[1], "[DONE]"),
    ),
    "text in a list of choices that is none": (
        "chat",
        sse({"choices": {"0": {"delta": {"content": TEXT}}}}, CHAT_EVENTS[1], "[DONE]"),
    ),
}


@pytest.mark.parametrize("name", UNREAD_STREAMS)
def test_text_that_was_not_read_has_no_number(
    observing: LiveProxy, upstream: AnyUpstream, name: str
) -> None:
    """A reply has no number where a part of its text was not read."""
    surface, stream = UNREAD_STREAMS[name]
    upstream.answer = Response([stream], headers=EVENTS)
    got = asked(observing, surface, is_stream=True)
    assert without_members(got.content) == (stream, 1)
    assert b'"confidence":null' in got.content
    assert b'"reason":"unreadable_event"' in got.content


ERROR_EVENT: Json = {
    "type": "error",
    "code": "rate_limit_exceeded",
    "message": "slow",
    "param": None,
    "sequence_number": 1,
}
OVERLOADED: Json = {"type": "overloaded_error", "message": "Overloaded"}
EMPTY = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": "error"}
PROVIDER = {"code": 502, "message": "slow", "metadata": {"raw": "x"}}
CHUNK_ERROR = {"message": "slow", "type": None, "param": None, "code": None}
ERROR_STREAMS = {
    "null in responses": ("responses", sse(CREATED, ERROR_EVENT, named=True)),
    "null in chat": ("chat", sse({"error": CHUNK_ERROR})),
    "null beside it": (
        "messages",
        sse({"type": "error", "error": OVERLOADED, "request_id": None}, named=True),
    ),
    "empty choices beside it": ("chat", sse({"id": "c", "choices": [], "error": CHUNK_ERROR})),
    "a choice that says nothing": ("chat", sse({"id": "c", "choices": [EMPTY], "error": PROVIDER})),
    "numbers and empty lists": (
        "chat",
        sse({"error": {"message": "slow", "retry_after": 1.5, "is_retryable": True, "x": []}}),
    ),
    "numbers at any depth": ("chat", sse({"error": {"message": "slow", "x": {"y": [1, None]}}})),
    "only its name says so": ("chat", b"event: error\n" + sse({"message": "slow", "code": 1})),
    "vllm": ("chat", sse({"object": "error", "message": "slow", "type": "x", "param": None})),
}


@pytest.mark.parametrize("name", ERROR_STREAMS)
def test_error_events_arrive_byte_for_byte(
    proxy: LiveProxy, upstream: AnyUpstream, name: str
) -> None:
    """Members that are null stay null, since clients look at their types."""
    surface, stream = ERROR_STREAMS[name]
    upstream.answer = Response([stream], headers=EVENTS)
    got = asked(proxy, surface, is_stream=True)
    last = stream[stream.rindex(b"data: ") :]
    assert got.content.endswith(last), got.text


ERRORS: dict[str, tuple[str, Json]] = {
    "quota": ("chat", {"error": {"message": "quota", "code": 402}}),
    "choices null": (
        "chat",
        {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": None,
            "error": {"message": "provider", "code": 502},
        },
    ),
    "text": ("chat", {"error": "quota"}),
    "completions": ("completions", {"error": {"message": "quota", "type": None}}),
    "responses": ("responses", {"error": {"message": "quota", "param": None}}),
    "messages": ("messages", {"type": "error", "error": OVERLOADED}),
    "vllm": ("chat", {"object": "error", "message": "quota", "param": None, "code": 400}),
    "success false": ("chat", {"code": 1113, "msg": "quota", "success": False}),
    "base_resp": ("chat", {"choices": None, "base_resp": {"status_code": 1, "status_msg": "no"}}),
    "error_code": ("chat", {"error_code": 17, "error_msg": "quota", "id": "1"}),
    "several": ("chat", {"success": False, "errors": [{"code": 1, "message": "quota"}]}),
    "a list": ("chat", {"error": [{"code": 1, "message": "quota", "param": None}]}),
    "beside an empty choice": (
        "chat",
        {"id": "c", "choices": [{**EMPTY, "message": {"content": ""}}], "error": PROVIDER},
    ),
    "in an empty choice": (
        "chat",
        {"id": "c", "choices": [{**EMPTY, "message": {"content": ""}, "error": PROVIDER}]},
    ),
}


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_with_status_200_keeps_upstreams_words(
    proxy: LiveProxy, upstream: AnyUpstream, name: str, is_stream: bool
) -> None:
    """Whole or in reply to a stream, the client gets upstream's error, and no number."""
    surface, error = ERRORS[name]
    upstream.answer = Response([json.dumps(error).encode()], headers=JSON)
    got = asked(proxy, surface, is_stream=is_stream)
    assert got.status_code == 200, got.text
    assert got.json() == error
    assert "x-pinocchio-confidence" not in got.headers


def test_an_error_with_status_200_brings_no_call_along(
    gating: LiveProxy, upstream: AnyUpstream
) -> None:
    """Where a policy decides, what may be part of an answer is left out of the error."""
    call = {"id": "t", "type": "function", "function": {"name": "send", "arguments": "{}"}}
    error = {"error": {"message": "quota"}, "tool_calls": [call], "output": [call]}
    upstream.answer = Response([json.dumps(error).encode()], headers=JSON)
    assert asked(gating, "chat", is_stream=False).json() == {"error": {"message": "quota"}}


def test_an_error_that_may_hold_text_keeps_its_nulls(
    gating: LiveProxy, upstream: AnyUpstream
) -> None:
    """Where a part of an error is left out, its other members keep their types."""
    error = {**CHUNK_ERROR, "partial_answer": "xylophone"}
    upstream.answer = Response([sse({"error": error, "choices": [1]})], headers=EVENTS)
    got = asked(gating, "chat", is_stream=True).text
    assert json.loads(got.removeprefix("data: ")) == {"error": CHUNK_ERROR}


def test_a_choice_with_text_beside_an_error_is_decided_on(
    gating: LiveProxy, upstream: AnyUpstream
) -> None:
    """A choice with content beside an error is decided on; only an empty one is the error alone."""
    call = {"id": "t", "type": "function", "function": {"name": "send", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "error", "error": PROVIDER}
    body = {"id": "c", "choices": [choice], "error": PROVIDER}
    upstream.answer = Response([json.dumps(body).encode()], headers=JSON)
    assert asked(gating, "chat", is_stream=False).json()["error"]["code"] == "held_for_review"


def test_a_text_in_place_of_a_choices_error_is_no_error(
    observing: LiveProxy, gating: LiveProxy, upstream: AnyUpstream
) -> None:
    """A bare text in place of a choice's error may be the answer, so it is decided on."""
    choice = {"index": 0, "message": {"role": "assistant", "content": None}, "error": "xylophone"}
    body = {"id": "c", "choices": [{**choice, "finish_reason": "stop"}]}
    upstream.answer = Response([json.dumps(body).encode()], headers=JSON)
    for proxy in (observing, gating):
        got = asked(proxy, "chat", is_stream=False)
        assert got.headers["x-pinocchio-confidence-status"] == "scored"


@pytest.mark.parametrize(
    "event",
    [
        {"type": "toolcall.started", "x": 1},
        {"type": "hologram", "delta": {"partial_json": "{}"}},
        {"type": "hologram", "name": "send"},
        {"type": "hologram", "content": [{"type": "text", "text": "x"}]},
        {"type": "hologram", "deep": {"er": [{"name": "send", "arguments": "{}"}]}},
    ],
)
@pytest.mark.parametrize("surface", ["messages", "responses"])
def test_unknown_events_that_could_hold_a_part_count_as_a_call(
    gating: LiveProxy, upstream: AnyUpstream, surface: str, event: Json
) -> None:
    """An event that is named or built like a call, or has a member
    that could grow one, is not delivered by a rule on calls.
    """
    events = MESSAGE_EVENTS if surface == "messages" else [CREATED, DONE_ITEM]
    end = STOP if surface == "messages" else COMPLETED
    upstream.answer = Response(
        [sse(*events[:2], event, *events[2:], end, named=True)], headers=EVENTS
    )
    got = asked(gating, surface, is_stream=True)
    assert json.dumps(event, separators=(",", ":")) not in got.text
    assert "error" in got.text


def test_a_call_behind_the_end_sign_is_seen(gating: LiveProxy, upstream: AnyUpstream) -> None:
    """A call after `[DONE]` is held like any other, since Anthropic's clients read it."""
    stream = [*MESSAGE_EVENTS[:4], "[DONE]", *CALL_EVENTS, MESSAGE_EVENTS[4], STOP]
    upstream.answer = Response([sse(*stream, named=True)], headers=EVENTS)
    got = asked(gating, "messages", is_stream=True)
    assert '"name":"send"' not in got.text
    assert "held_for_review" in got.text
