"""Failures on the way through litellm reach the client as OpenAI's API would report them."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator
from importlib import import_module

import httpx
import pytest

from proxy.errors import UpstreamBrokenError, UpstreamError, UpstreamTimeoutError
from proxy.upstreams.translation.errors import error_reply
from proxy.upstreams.translation.litellm_upstream import LiteLLMUpstream
from tests.running.translation import Listener, answer, listening, opened, refused, request
from tests.servers.anthropic_server import KEY, RETRY_AFTER_S, AnthropicServer, serving


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with serving() as server:
        yield server


@pytest.fixture
async def upstream(server: AnthropicServer) -> AsyncIterator[LiteLLMUpstream]:
    async with opened(LiteLLMUpstream("anthropic", server.base_url, KEY)) as upstream:
        yield upstream


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async with listening() as listener:
        yield listener


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (408, "api_error"),
        (413, "request_too_large"),
        (422, "api_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "api_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
async def test_upstreams_errors_keep_their_status(
    upstream: LiteLLMUpstream, server: AnthropicServer, status: int, code: str, is_stream: bool
) -> None:
    """An upstream's error arrives once, with its status, code, message and retry-after."""
    model = f"claude-error-{status}"
    reply = await upstream.send(request(model=model, stream=is_stream))
    error = (await answer(reply, status))["error"]
    assert error == {
        "message": f"{model} was asked for",
        "type": code,
        "param": None,
        "code": code,
    }
    assert reply.header(b"retry-after") == (str(RETRY_AFTER_S) if status == 429 else None)
    assert len(server.requests) == 1


async def test_too_many_tokens_have_openais_code(upstream: LiteLLMUpstream) -> None:
    """Too many tokens have OpenAI's code, by which clients shorten a conversation."""
    error = (await answer(await upstream.send(request(model="claude-too-long")), 400))["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["message"] == "prompt is too long: 210000 tokens > 200000 maximum"


async def test_a_wrong_key_is_upstreams_401(server: AnthropicServer) -> None:
    """A wrong key has upstream's own message, not litellm's."""
    async with opened(LiteLLMUpstream("anthropic", server.base_url, "wrong")) as upstream:
        error = (await answer(await upstream.send(request()), 401))["error"]
    assert error["message"] == "invalid x-api-key"


@pytest.mark.parametrize("is_stream", [False, True])
async def test_hangup_is_not_retried(
    upstream: LiteLLMUpstream, server: AnthropicServer, is_stream: bool
) -> None:
    """An upstream that hangs up before its answer is asked once: a second call costs twice."""
    error = await refused(upstream, request(model="claude-hangs-up", stream=is_stream))
    assert (error["kind"], error["code"]) == (UpstreamBrokenError, "upstream_broke_off")
    assert len(server.requests) == 1


async def test_half_an_answer_is_none(upstream: LiteLLMUpstream) -> None:
    """A body that is shorter than announced is a broken answer."""
    error = await refused(upstream, request(model="claude-cut"))
    assert error["kind"] is UpstreamBrokenError


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_dead_upstream_is_unreachable(is_stream: bool) -> None:
    """Where nothing listens the error says so, and names no address of litellm's."""
    async with opened(LiteLLMUpstream("anthropic", "http://127.0.0.1:9", KEY)) as upstream:
        error = await refused(upstream, request(stream=is_stream))
    assert (error["kind"], error["code"]) == (UpstreamError, "upstream_unreachable")
    assert "litellm" not in error["message"]


async def test_silence_is_a_timeout(server: AnthropicServer) -> None:
    """`timeout_s` bounds the silence before an answer and inside a stream."""
    timeout_s = 0.3
    async with opened(
        LiteLLMUpstream("anthropic", server.base_url, KEY, timeout_s=timeout_s)
    ) as upstream:
        error = await refused(upstream, request(model="claude-slow"))
        assert (error["kind"], error["status"]) == (UpstreamTimeoutError, 504)
        reply = await upstream.send(request(model="claude-slow", stream=True))
        with pytest.raises(UpstreamTimeoutError):
            await reply.read()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("claude-cut", "broke off"),
        ("claude-ends-early", "before it was complete"),
        ("claude-fails-midway", "Overloaded"),
    ],
)
async def test_a_broken_stream_is_not_a_whole_one(
    upstream: LiteLLMUpstream, model: str, words: str
) -> None:
    """A stream that breaks off does so for the client too, where litellm would invent a `stop`."""
    reply = await upstream.send(request(model=model, stream=True))
    received: list[bytes] = []

    async def read() -> None:
        async for chunk in reply.chunks:
            received.append(chunk)

    with pytest.raises(UpstreamBrokenError, match=words):
        await read()
    await reply.aclose()
    (event,) = received
    assert b'"content":"System:"' in event
    assert b'"finish_reason":null' in event


async def test_an_error_before_the_first_chunk_is_a_status(listener: Listener) -> None:
    """An error before the first chunk keeps its status, also where litellm connects only then."""
    error = {"error": {"code": 429, "message": "Quota.", "status": "RESOURCE_EXHAUSTED"}}
    listener.body, listener.status = json.dumps([error]).encode(), 429
    listener.headers["retry-after"] = "9"
    async with opened(LiteLLMUpstream("gemini", listener.base_url, "configured")) as upstream:
        reply = await upstream.send(request(model="gemini-x", stream=True))
        details = (await answer(reply, 429))["error"]
    assert (details["message"], details["code"]) == ("Quota.", "RESOURCE_EXHAUSTED")
    assert reply.header(b"retry-after") == "9"


async def test_an_unreadable_answer_is_an_error(listener: Listener) -> None:
    """An unreadable answer is an error without litellm's words about it."""
    listener.body = b"<html>"
    async with opened(LiteLLMUpstream("anthropic", listener.base_url, KEY)) as upstream:
        error = await refused(upstream, request())
    assert (error["kind"], error["code"]) == (UpstreamBrokenError, "translation_failed")
    assert error["message"] == "upstream's answer is no completion"


VERDICTS: dict[str, int | type[UpstreamError]] = {
    "APIConnectionError": UpstreamError,
    "APIError": 418,
    "APIResponseValidationError": 500,
    "AuthenticationError": 401,
    "BadGatewayError": 502,
    "BadRequestError": 400,
    "BlockedPiiEntityError": 400,
    "BudgetExceededError": 422,
    "ContentPolicyViolationError": 400,
    "ContextWindowExceededError": 400,
    "GuardrailRaisedException": 400,
    "ImageFetchError": 400,
    "InternalServerError": 500,
    "InvalidRequestError": 400,
    "JSONSchemaValidationError": 500,
    "LiteLLMUnknownProvider": 400,
    "MidStreamFallbackError": 503,
    "MockException": 418,
    "ModelNotMappedError": UpstreamError,
    "ModifyResponseException": UpstreamError,
    "NotFoundError": 404,
    "OpenAIError": UpstreamError,
    "PaymentRequiredError": 402,
    "PermissionDeniedError": 403,
    "RateLimitError": 429,
    "RejectedRequestError": 400,
    "SensitiveDataRouteException": UpstreamError,
    "ServiceUnavailableError": 503,
    "Timeout": UpstreamTimeoutError,
    "UnprocessableEntityError": 422,
    "UnsupportedParamsError": 400,
    "VectorStoreSearchError": 400,
}


def made(kind: type[Exception], status: int) -> Exception:
    """Return an instance with a value for every argument that is required."""
    values = {
        "status_code": status,
        "current_cost": 1.0,
        "max_budget": 1.0,
        "request_data": {},
        "failures": [],
        "response": httpx.Response(status, request=httpx.Request("POST", "http://localhost")),
    }
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    required = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    return kind(**{name: values.get(name, "something") for name in required})


async def test_every_error_of_litellm_has_its_place() -> None:
    """Each of litellm's exceptions becomes a reply with its status or one of the proxy's errors."""
    module = import_module("litellm.exceptions")
    kinds = {
        name: kind
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Exception) and kind.__module__ == module.__name__
    }
    assert set(kinds) == set(VERDICTS)
    for name, verdict in VERDICTS.items():
        error = made(kinds[name], verdict if isinstance(verdict, int) else 500)
        if isinstance(verdict, int):
            body = await answer(error_reply(error), verdict)
            assert set(body["error"]) == {"message", "type", "param", "code"}, name
            assert not body["error"]["message"].startswith("litellm"), name
        else:
            with pytest.raises(verdict):
                error_reply(error)
