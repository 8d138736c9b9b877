"""`pinocchio.calls`: the confidence of each call, read from replies as a client gets them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from pinocchio.calls import SeenCalls

Json = dict[str, Any]
MEMBER: Json = {"confidence": 0.25, "choices": [{"index": 0, "confidence": 0.25}]}
CHAT_CALL: Json = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ITEM: Json = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "f"}
BLOCK: Json = {"type": "tool_use", "id": "call_1", "name": "f", "input": {"call": 1}}
WHOLE: dict[str, Json] = {
    "chat": {"choices": [{"message": {"tool_calls": [CHAT_CALL]}}], "pinocchio": MEMBER},
    "responses": {"output": [ITEM], "tools": [{"type": "custom"}], "pinocchio": MEMBER},
    "messages": {"id": "msg_1", "content": [BLOCK], "pinocchio": MEMBER},
}
STREAMED: dict[str, list[Json]] = {
    "chat": [
        {"choices": [{"delta": {"tool_calls": [{"index": 0, **CHAT_CALL}]}}]},
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}], "pinocchio": MEMBER},
    ],
    "responses": [
        {"type": "response.output_item.added", "item": ITEM},
        {"type": "response.completed", "response": {"output": [ITEM], "pinocchio": MEMBER}},
    ],
    "messages": [
        {"type": "content_block_start", "content_block": BLOCK},
        {"type": "message_delta", "pinocchio": MEMBER},
    ],
}


def events(parts: list[Json]) -> bytes:
    return b"".join(b"data: %s\n\n" % json.dumps(part).encode() for part in parts) + (
        b"data: [DONE]\n\n"
    )


def calls_seen(body: bytes, kind: str = "application/json", *, is_kept: bool = False) -> SeenCalls:
    """Return the calls seen once a client has read a reply.

    The reply arrives in two pieces, or whole if `is_kept`.
    """
    seen = SeenCalls()
    pieces = [body[:40], body[40:]]

    def answer(_: httpx.Request) -> httpx.Response:
        content = body if is_kept else iter(pieces)
        return httpx.Response(200, headers={"content-type": kind}, content=content)

    transport = httpx.MockTransport(answer)
    with httpx.Client(transport=transport, event_hooks=seen.hooks) as client:
        assert client.get("http://proxy/").content == body
    return seen


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("format", WHOLE)
def test_a_call_has_the_confidence_of_its_reply(format: str, is_kept: bool) -> None:
    """In each format a call gets the confidence of its reply; other ids get none."""
    seen = calls_seen(json.dumps(WHOLE[format]).encode(), is_kept=is_kept)
    assert seen.confidence("call_1") == 0.25
    assert [seen.confidence(other) for other in ("fc_1", "msg_1", "call_2")] == [None] * 3


@pytest.mark.parametrize("format", STREAMED)
def test_so_has_a_streamed_one(format: str) -> None:
    """A streamed call gets the confidence that comes in another event."""
    assert calls_seen(events(STREAMED[format]), "text/event-stream").confidence("call_1") == 0.25


def test_a_client_may_stop_before_the_end_of_a_stream() -> None:
    """A client may close a stream at its last event without reading to the end."""
    seen = SeenCalls()
    stream = events(STREAMED["chat"])

    async def pieces() -> AsyncIterator[bytes]:
        yield stream[:50]
        yield stream[50:]
        raise AssertionError("nobody asks for this")

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=pieces())

    async def read() -> None:
        transport = httpx.MockTransport(answer)
        async with (
            httpx.AsyncClient(transport=transport, event_hooks=seen.async_hooks) as client,
            client.stream("GET", "http://proxy/") as response,
        ):
            async for piece in response.aiter_raw():
                if b"[DONE]" in piece:
                    break

    asyncio.run(read())
    assert seen.confidence("call_1") == 0.25


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices":[{"message":{"tool_calls":[{"id":"call_1","function":{}}]}}]}',  # no member
        b'{"id":"call_1","function":{},"pinocchio":{"confidence":null}}',
        b'{"id":"call_1","function":{},"pinocchio":[0.9]}',
        b'{"id":"call_1","function":{"arguments":{"pinocchio":{"confidence":1}}}}',  # a model's
        b"{not json",
        b"[" * 100_000,
        b"",
    ],
)
def test_without_a_number_a_call_is_unsure(body: bytes) -> None:
    """A call without the proxy's number is unsure; a number that a model writes does not count."""
    seen = calls_seen(body)
    assert seen.confidence("call_1") is None
    assert seen.is_unsure("call_1", 0.0)


def test_what_is_packed_passes_unread() -> None:
    """A compressed reply passes unread: the proxy compresses none that it adds to."""
    packed = SeenCalls()
    response = httpx.Response(200, headers={"content-type": "application/json"})
    response.headers["content-encoding"] = "gzip"
    before = response.stream
    packed.hooks["response"][0](response)
    assert response.stream is before


def test_a_threshold_counts_as_sure_and_zero_is_a_number() -> None:
    """A confidence equal to the threshold is sure, and zero is a valid confidence."""
    seen = SeenCalls()
    seen.note("a", 0.9)
    seen.note("zero", 0.0)
    assert (seen.is_unsure("a", 0.9), seen.is_unsure("a", 0.91)) == (False, True)
    assert (seen.confidence("zero"), seen.is_unsure("zero", 0.0)) == (0.0, False)


def test_the_oldest_calls_are_forgotten() -> None:
    """Only the newest `most` calls are remembered."""
    seen = SeenCalls(most=2)
    for number in range(4):
        seen.note(str(number), 0.5)
    assert [seen.confidence(str(number)) for number in range(4)] == [None, None, 0.5, 0.5]
