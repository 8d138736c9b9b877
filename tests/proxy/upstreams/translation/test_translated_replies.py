"""litellm's objects become OpenAI's JSON; what upstream sent in that format is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

import pytest

from proxy.errors import UpstreamError
from proxy.upstreams.translation.litellm_upstream import LiteLLMUpstream
from tests.running.translation import Json, Listener, answer, listening, opened, request
from tests.servers.faulty_upstream import FaultyUpstream

EVENTS = {"content-type": "text/event-stream"}


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async with listening() as listener:
        yield listener


def translating(provider: str, listener: Listener) -> LiteLLMUpstream:
    return LiteLLMUpstream(provider, listener.base_url, "configured", via="litellm")


def event(data: Json | str) -> bytes:
    return b"data: %b\n\n" % (data if isinstance(data, str) else json.dumps(data)).encode()


async def chunks_of(upstream: LiteLLMUpstream, **fields: Any) -> list[Json]:
    reply = await upstream.send(request(stream=True, **fields))
    chunks = [part.removeprefix(b"data: ") for part in (await reply.read()).split(b"\n\n")]
    return [json.loads(data) for data in chunks if data and data != b"[DONE]"]


# From upstreams that speak OpenAI's format

ODD = b'{"id":"1","choices":[{"index":7,"message":{"role":"assistant","refusal":"no"}}],"x":1.50}'
ODD_STREAM = event('{"choices":[{"index":7,"delta":{"refusal":"no"}}],"x":1.50}') + b": end\n\n"


@pytest.mark.parametrize("provider", ["openai", "azure", "groq", "deepseek", "fireworks_ai"])
@pytest.mark.parametrize("is_stream", [False, True])
async def test_openais_kin_is_not_translated_back(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, provider: str, is_stream: bool
) -> None:
    """A reply in OpenAI's format is kept as upstream sent it, also where litellm cannot read it."""
    monkeypatch.setenv("AZURE_API_VERSION", "2024-10-21")
    options: Json = {"stream_options": {"include_usage": True}} if is_stream else {}
    if is_stream:
        listener.headers |= EVENTS
    listener.body = ODD_STREAM if is_stream else ODD
    async with opened(translating(provider, listener)) as upstream:
        reply = await upstream.send(request(stream=is_stream, **options))
        assert (reply.status, await reply.read()) == (200, listener.body)
    assert len(listener.requests) == 1


async def test_only_upstream_request_id_is_sent(listener: Listener) -> None:
    """A reply has the header fields of upstream's that clients read, each under one name."""
    listener.body = ODD
    async with opened(translating("openai", listener)) as upstream:
        reply = await upstream.send(request())
    names = [name for name, _ in reply.headers]
    assert names == [b"content-type", b"x-request-id"]


async def test_litellm_requested_usage_is_omitted(listener: Listener) -> None:
    """Usage of a stream that litellm requested by itself is not sent to the client."""
    choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    chunks = [head | {"choices": [choice]}, head | {"choices": [], "usage": usage}]
    listener.headers |= EVENTS
    listener.body = b"".join(event(chunk) for chunk in chunks) + event("[DONE]")
    async with opened(translating("fireworks_ai", listener)) as upstream:
        got = await chunks_of(upstream)
    assert json.loads(listener.requests[0][2])["stream_options"]["include_usage"] is True
    assert all(chunk["choices"] and "usage" not in chunk for chunk in got)


async def test_a_tool_of_litellms_stays_here(listener: Listener) -> None:
    """Where litellm uses a tool for `response_format`, the client gets its text."""
    wanted = {"name": "s", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}
    name = import_module("litellm.constants").RESPONSE_FORMAT_TOOL_NAME
    call = {"id": "1", "type": "function", "function": {"name": name, "arguments": '{"a":"b"}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    listener.body = json.dumps({"id": "1", "service_tier": "auto", "choices": [choice]}).encode()
    async with opened(translating("groq", listener)) as upstream:
        sent = request(response_format={"type": "json_schema", "json_schema": wanted})
        [got] = (await answer(await upstream.send(sent)))["choices"]
    assert name.encode() in listener.requests[0][2]
    assert json.loads(got["message"]["content"]) == {"a": "b"}
    assert "tool_calls" not in got["message"]


async def test_closing_a_stream_closes_upstreams() -> None:
    """When a client leaves within a stream that is kept as sent, upstream's stream is closed."""
    with FaultyUpstream() as faulty:
        upstream = LiteLLMUpstream("openai", faulty.base_url, "key", via="litellm")
        async with opened(upstream):
            reply = await upstream.send(request(model="gated", stream=True))
            await anext(reply.chunks)
            await reply.aclose()
            assert await asyncio.to_thread(faulty.last.is_cut_off, within_s=2)


async def test_usage_is_not_requested_from_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenAI is asked for a stream's usage only where the client asks for it."""
    bodies: list[Json] = []

    async def acompletion(**arguments: Any) -> None:
        bodies.append(arguments)
        raise TimeoutError

    own = {"stream_options": {"include_obfuscation": False}}
    async with opened(LiteLLMUpstream("openai", None, "key", via="litellm")) as upstream:
        await upstream.load()
        monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
        monkeypatch.delenv("OPENAI_API_BASE", raising=False)
        monkeypatch.setattr(upstream._litellm, "acompletion", acompletion)
        for fields in ({}, {"stream": True}, {"stream": True} | own):
            with pytest.raises(UpstreamError, match="could not connect"):
                await upstream.send(request(**fields))
    assert [body.get("stream_options") for body in bodies] == [
        None,
        {"include_usage": False},
        own["stream_options"],
    ]


async def test_no_answer_is_made_of_an_error(listener: Listener) -> None:
    """An error of OpenAI's, which litellm would make an empty completion, stays an error."""
    marker = import_module("litellm.llms.openai.common_utils")._OUTPUT_TOKEN_LIMIT_ERROR_MARKER
    listener.status = 400
    listener.body = json.dumps({"error": {"message": marker, "code": "x"}}).encode()
    async with opened(translating("openai", listener)) as upstream:
        body = await answer(await upstream.send(request()), 400)
        streamed = await answer(await upstream.send(request(stream=True)), 400)
    assert body == streamed
    assert (body["error"]["message"], body["error"]["code"]) == (marker, "x")


# From all others: what litellm's objects lack


async def test_a_missing_reason_becomes_a_stop(listener: Listener) -> None:
    """A limit: where upstream gives no finish reason, litellm says `stop`."""
    part = {"content": {"parts": [{"text": "Hi"}], "role": "model"}}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 2, "totalTokenCount": 3}
    listener.body = json.dumps({"candidates": [part], "usageMetadata": usage}).encode()
    async with opened(translating("gemini", listener)) as upstream:
        [choice] = (await answer(await upstream.send(request())))["choices"]
    assert choice["finish_reason"] == "stop"


async def test_missing_usage_is_estimated(listener: Listener) -> None:
    """A limit: litellm counts the tokens of a stream itself where upstream gives no usage."""
    part = {"content": {"parts": [{"text": "Hi"}], "role": "model"}, "finishReason": "STOP"}
    listener.headers |= EVENTS
    listener.body = event({"candidates": [part]})
    async with opened(translating("gemini", listener)) as upstream:
        chunks = await chunks_of(upstream, stream_options={"include_usage": True})
    assert chunks[-1]["usage"]["prompt_tokens"] > 0


async def test_stream_has_one_finish_reason(listener: Listener) -> None:
    """A limit: litellm ends a stream of several choices with one reason, as the first choice's."""
    reasons = ["MAX_TOKENS", "STOP"]
    candidates = [
        {
            "index": index,
            "content": {"parts": [{"text": "Hi"}], "role": "model"},
            "finishReason": reason,
        }
        for index, reason in enumerate(reasons)
    ]
    listener.headers |= EVENTS
    listener.body = b"".join(event({"candidates": [candidate]}) for candidate in candidates)
    async with opened(translating("gemini", listener)) as upstream:
        chunks = await chunks_of(upstream, n=2)
    ends = [c for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
    assert [end["index"] for end in ends] == [0]
