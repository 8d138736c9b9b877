"""Anthropic's Messages API on loopback, strict about requests and faithful in replies.

What it does is chosen by the model's name, as a test cannot look inside a translation:

    claude-echo             says what the system prompt and the last user message were
    claude-thinks           the same after a thinking block
    claude-slow             begins a stream and falls silent; without a stream, is silent at once
    claude-cut              breaks the connection off in the middle of its answer
    claude-ends-early       ends a stream properly, but before the message is complete
    claude-hangs-up         breaks the connection off without any answer
    claude-fails-midway     an `error` event in the middle of a stream
    claude-error-429        any status, with the error type that the API has for it
    claude-too-long         the error for more tokens than the model takes

Any of them calls the offered tools instead, unless it gets their results or a request not to.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Json = dict[str, Any]

KEY = "sk-ant-test"
VERSION = "2023-06-01"
RETRY_AFTER_S = 7
SILENCE_S = 20  # longer than any test waits
SERVED = "-20990101"  # the API answers with the dated name of a model
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
FIELDS = {
    "max_tokens",
    "messages",
    "metadata",
    "model",
    "service_tier",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
}


class RefusedError(Exception):
    """The request gets an error in the API's envelope."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class AnthropicServer:
    """What the server saw; `base_url` is what clients are configured with."""

    base_url: str = ""
    requests: list[Json] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    has_request: asyncio.Event = field(default_factory=asyncio.Event)
    has_lost_client: asyncio.Event = field(default_factory=asyncio.Event)

    async def messages(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/messages`."""
        try:
            self.headers.append({name.lower(): value for name, value in request.headers.items()})
            _check_headers(request)
            body = await request.json()
            self.requests.append(body)
            self.has_request.set()
            _check_body(body)
            return await self._answer(request, body)
        except RefusedError as error:
            return _refusal(error)
        except asyncio.CancelledError:
            self.has_lost_client.set()
            raise

    async def _answer(self, request: web.Request, body: Json) -> web.StreamResponse:
        model = body["model"]
        if model.startswith("claude-error-"):
            raise RefusedError(int(model.removeprefix("claude-error-")), f"{model} was asked for")
        if model == "claude-too-long":
            raise RefusedError(400, "prompt is too long: 210000 tokens > 200000 maximum")
        if model == "claude-hangs-up":
            return _hang_up(request)
        message = _message(body)
        if body.get("stream"):
            return await self._stream(request, message, model)
        if model == "claude-slow":
            await asyncio.sleep(SILENCE_S)
        if model == "claude-cut":
            return await _half(request, message)
        return web.json_response(message, headers=_limits())

    async def _stream(self, request: web.Request, message: Json, model: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream", **_limits()})
        await response.prepare(request)
        for position, event in enumerate(_events(message)):
            if position == 4:  # some text or some arguments are out by then
                if model == "claude-slow":
                    await asyncio.sleep(SILENCE_S)
                if model == "claude-cut":
                    return _hang_up(request)
                if model == "claude-ends-early":
                    return response
                if model == "claude-fails-midway":
                    await response.write(_event_bytes(_error(529, "Overloaded")))
                    return response
            await response.write(_event_bytes(event))
        return response


@asynccontextmanager
async def serving() -> AsyncIterator[AnthropicServer]:
    """Yield a server on a free port of loopback."""
    server = AnthropicServer()
    app = web.Application()
    app.router.add_post("/v1/messages", server.messages)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()


# What the API refuses


def _check_headers(request: web.Request) -> None:
    if request.headers.get("x-api-key") != KEY:
        raise RefusedError(401, "invalid x-api-key")
    if request.headers.get("anthropic-version") != VERSION:
        raise RefusedError(400, "anthropic-version: header is required")
    if request.content_type != "application/json":
        raise RefusedError(400, "content-type: must be application/json")


def _check_body(body: Json) -> None:
    for name in ("model", "messages", "max_tokens"):
        _require(name in body, f"{name}: Field required")
    for name in body:
        _require(name in FIELDS, f"{name}: Extra inputs are not permitted")
    limit = body["max_tokens"]
    _require(type(limit) is int and limit > 0, "max_tokens: Input should be a positive integer")
    _require(0 <= body.get("temperature", 1.0) <= 1, "temperature: range: 0..1")
    system = body.get("system", "")
    _require(isinstance(system, str) or bool(_blocks(system)), "system: Input should be a string")
    for position, tool in enumerate(body.get("tools", ())):
        _check_tool(tool, f"tools.{position}")
    choice = body.get("tool_choice", {"type": "auto"})
    _require(isinstance(choice, dict), "tool_choice: Input should be an object")
    _require(choice.get("type") in ("auto", "any", "tool", "none"), "tool_choice: invalid type")
    _check_messages(body["messages"])


def _check_tool(tool: Json, at: str) -> None:
    for name in ("name", "input_schema"):
        _require(name in tool, f"{at}.custom.{name}: Field required")
    type = tool["input_schema"].get("type")
    _require(type == "object", f"{at}.custom.input_schema.type: Input should be 'object'")


def _check_messages(messages: list[Json]) -> None:
    """Check that the first message is the user's, and that each tool call's result follows it."""
    _require(bool(messages), "messages: at least one message is required")
    _require(messages[0].get("role") == "user", "messages: first message must use the user role")
    open_calls: set[str] = set()
    for position, message in enumerate(messages):
        at = f"messages.{position}"
        role = message.get("role")
        _require(role in ("user", "assistant"), f'{at}: Unexpected role "{role}"')
        blocks = _blocks(message.get("content"))
        _require(bool(blocks), f"{at}: all messages must have non-empty content")
        for block in blocks:
            empty = block.get("type") == "text" and not block.get("text")
            _require(not empty, f"{at}: text content blocks must be non-empty")
        results = {b["tool_use_id"] for b in blocks if b.get("type") == "tool_result"}
        missing = ", ".join(sorted(open_calls - results))
        _require(not missing, f"{at}: tool_use ids without tool_result blocks: {missing}")
        unknown = ", ".join(sorted(results - open_calls))
        _require(not unknown, f"{at}: unexpected tool_use_id in tool_result blocks: {unknown}")
        open_calls = {block["id"] for block in blocks if block.get("type") == "tool_use"}


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise RefusedError(400, message)


def _blocks(content: Any) -> list[Json]:
    """Return content as blocks; a string is one block of text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


# What it answers


def _message(body: Json) -> Json:
    content = list(_content(body))
    is_call = content[-1]["type"] == "tool_use"
    return {
        "id": "msg_013Zva2CMHLNnjNjJJKqJ2EF",
        "type": "message",
        "role": "assistant",
        "model": body["model"] + SERVED,
        "content": content,
        "stop_reason": "tool_use" if is_call else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 25, "output_tokens": 15},
    }


def _content(body: Json) -> Iterator[Json]:
    last = _blocks(body["messages"][-1]["content"])
    has_results = any(block["type"] == "tool_result" for block in last)
    if body["model"] == "claude-thinks":
        yield {"type": "thinking", "thinking": "Let me see.", "signature": "EqQBCgIYAhIM"}
    offered = [] if body.get("tool_choice") == {"type": "none"} else body.get("tools", [])
    if not offered or has_results:
        yield {"type": "text", "text": f"System: {_text(body.get('system'))} User: {_text(last)}"}
        return
    yield {"type": "text", "text": "Let me look that up."}
    for number, tool in enumerate(offered):
        names = tool["input_schema"].get("properties", {})
        arguments = {name: f"{name} of call {number}" for name in names}
        yield {
            "type": "tool_use",
            "id": f"toolu_{number}",
            "name": tool["name"],
            "input": arguments,
        }


def _text(content: Any) -> str:
    """Return the text of blocks and of the tool results among them."""
    return " ".join(
        block["text"] if block["type"] == "text" else _text(block.get("content"))
        for block in _blocks(content)
    )


def _events(message: Json) -> Iterator[Json]:
    """Yield the events of a message as the API streams it."""
    opening = message | {"content": [], "stop_reason": None}
    usage = message["usage"]
    yield {"type": "message_start", "message": opening | {"usage": usage | {"output_tokens": 1}}}
    for index, block in enumerate(message["content"]):
        start, deltas = _parts(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        if index == 0:
            yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {
        "type": "message_delta",
        "delta": stop,
        "usage": {"output_tokens": usage["output_tokens"]},
    }
    yield {"type": "message_stop"}


def _parts(block: Json) -> tuple[Json, list[Json]]:
    """Return how a content block starts, and the deltas that complete it."""
    match block["type"]:
        case "tool_use":
            text = json.dumps(block["input"])
            half = len(text) // 2
            pieces = ["", text[:half], text[half:]]
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            return block | {"input": {}}, deltas
        case "thinking":
            thinking = {"type": "thinking_delta", "thinking": block["thinking"]}
            signature = {"type": "signature_delta", "signature": block["signature"]}
            return block | {"thinking": "", "signature": ""}, [thinking, signature]
        case _:
            pieces = block["text"].split(" ")
            texts = [pieces[0], *(f" {piece}" for piece in pieces[1:])]
            return block | {"text": ""}, [{"type": "text_delta", "text": text} for text in texts]


def _event_bytes(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


# How it fails


def _error(status: int, message: str) -> Json:
    error = {"type": ERROR_TYPES.get(status, "api_error"), "message": message}
    return {"type": "error", "error": error, "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"}


def _refusal(error: RefusedError) -> web.Response:
    headers = _limits()
    if error.status == 429:
        headers["retry-after"] = str(RETRY_AFTER_S)
    return web.json_response(_error(error.status, str(error)), status=error.status, headers=headers)


def _limits() -> dict[str, str]:
    return {
        "request-id": "req_011CSHoEeqs5C35K2UUqR7Fy",
        "anthropic-ratelimit-requests-limit": "1000",
        "anthropic-ratelimit-requests-remaining": "999",
    }


def _hang_up(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _half(request: web.Request, message: Json) -> web.StreamResponse:
    """Send half of a body whose whole length was announced."""
    body = json.dumps(message).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    return _hang_up(request)
