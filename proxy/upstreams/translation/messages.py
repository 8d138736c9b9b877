"""`/v1/messages` for an upstream that speaks chat completions: litellm's adapter, there and back.

The request becomes one for a chat completion, which `LiteLLMUpstream` carries out; its reply, whole
or streamed, becomes a message. Statuses stay, errors get Anthropic's envelope.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

from proxy.errors import BadRequestError, UpstreamBrokenError
from proxy.formats.events.merging import index_of
from proxy.formats.messages import error_type
from proxy.formats.messages_stream import named_event
from proxy.upstreams.upstream import UpstreamReply, UpstreamRequest
from proxy.wire.headers import header, without
from proxy.wire.json_splice import dumps, json_object, parse_json_object
from proxy.wire.sse import EventReader

Json = dict[str, Any]

MESSAGES = "/messages"
_ADAPTER = "litellm.llms.anthropic.pass_through.adapters"
_BROKEN = 502  # stands for the status that an error in the middle of an answer has not
_LIMIT = 64 * 2**20  # bytes of a reply that is read whole
# What litellm's adapter writes in OpenAI's words ..
_TRANSLATED = {
    *("max_tokens", "messages", "metadata", "model", "output_config", "output_format"),
    *("stop_sequences", "stream", "system", "temperature", "thinking", "tool_choice", "tools"),
    *("top_k", "top_p"),
}
# .. and what concerns Anthropic's own bookkeeping, which changes no answer.
_LEFT_OUT = {"cache_control", "context_management", "diagnostics", "service_tier"}
# What is translated of a completion, and of the messages in it.
_TOLD = ("id", "created", "model", "usage")
_SAID = {
    *("role", "content", "refusal", "reasoning", "reasoning_content", "thinking_blocks"),
    *("tool_calls", "function_call", "provider_specific_fields"),
}
_NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0}  # a message has to tell some
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, IndexError)
_CLIENTS_OWN = (b"x-api-key", b"anthropic-version", b"anthropic-beta", b"accept-encoding")


class ChatUpstream(Protocol):
    """What carries a translated request out; it has loaded litellm before it answers."""

    async def load(self) -> None: ...

    async def translate(self, request: UpstreamRequest) -> UpstreamReply: ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class MessagesUpstream:
    """An upstream for `/messages` alone."""

    chat: ChatUpstream

    async def send(self, request: UpstreamRequest) -> UpstreamReply:
        """Raises UpstreamError when there is no answer, BadRequestError for what it refuses."""
        await self.chat.load()
        body = parse_json_object(request.body)
        fields, tool_names = _to_chat(body)
        sent = replace(
            request,
            path="/chat/completions",
            headers=_headers(request),
            body=dumps(fields),
            query="",
        )
        reply = await self.chat.translate(sent)
        if reply.status != 200:
            return await _error_reply(reply)
        if body.get("stream"):
            return await _stream_reply(reply, tool_names)
        return await _json_reply(reply, tool_names)

    async def aclose(self) -> None:
        await self.chat.aclose()


@cache
def _adapter() -> Any:
    """litellm's translation, which calls nobody."""
    return importlib.import_module(f"{_ADAPTER}.transformation").AnthropicAdapter()


def _headers(request: UpstreamRequest) -> list[tuple[bytes, bytes]]:
    """The client's, with its key where clients of OpenAI's API put it."""
    key = header(request.headers, b"x-api-key")
    kept = without(request.headers, *_CLIENTS_OWN)
    if key and header(kept, b"authorization") is None:
        kept.append((b"authorization", f"Bearer {key}".encode("latin-1")))
    return kept


def _to_chat(body: Json) -> tuple[Json, dict[str, str]]:
    """The request in OpenAI's words, and the tools' real names where OpenAI's limit cuts them.

    Raises BadRequestError for what has no counterpart there.
    """
    given = {key: value for key, value in body.items() if value is not None}
    for name in given:
        if name not in _TRANSLATED | _LEFT_OUT:
            text = f"'{name}' cannot be translated for this upstream"
            raise BadRequestError(text, param=name, code="unsupported_parameter")
    if not isinstance(given.get("model"), str):
        raise BadRequestError("the body names no model", param="model")
    _check_messages(given.get("messages"))
    wanted = {key: value for key, value in given.items() if key in _TRANSLATED}
    try:
        fields, names = _adapter().translate_completion_input_params_with_tool_mapping(wanted)
    except _UNREADABLE as error:
        text = f"the request cannot be translated for this upstream ({type(error).__name__})"
        raise BadRequestError(text, code="translation_failed") from error
    if isinstance(effort := fields.get("reasoning_effort"), dict):
        fields["reasoning_effort"] = effort.get("effort")
    if fields.get("stream"):  # a stream of Anthropic's always tells its usage
        fields["stream_options"] = {"include_usage": True}
    return dict(fields), names


def _check_messages(messages: Any) -> None:
    """What litellm would leave out in silence, or fail on, is the client's to mend."""
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise BadRequestError("'messages' must be a list of objects", param="messages")
    blocks = (m.get("content") for m in messages)
    for content in blocks:
        if isinstance(content, list) and not all(isinstance(block, dict) for block in content):
            raise BadRequestError("content blocks must be objects", param="messages")


async def _error_reply(reply: UpstreamReply) -> UpstreamReply:
    """An error in OpenAI's envelope moves to Anthropic's."""
    body = json_object(await _whole(reply)) or {}
    told = body.get("error")
    error = told if isinstance(told, dict) else {"message": f"upstream answered {reply.status}"}
    return _reply(reply, _error(reply.status, error))


def _error(status: int, error: Json) -> Json:
    kind = error_type(status, str(error.get("type") or "invalid_request_error"))
    words = error.get("message") or "upstream failed"
    extra = {key: error[key] for key in ("code", "param") if error.get(key) is not None}
    return {"type": "error", "error": {"type": kind, "message": words, **extra}}


async def _json_reply(reply: UpstreamReply, tool_names: dict[str, str]) -> UpstreamReply:
    completion = json_object(await _whole(reply))
    if completion is None or not completion.get("choices"):
        raise UpstreamBrokenError("upstream's answer is no completion", code="translation_failed")
    try:
        response = importlib.import_module("litellm").ModelResponse(**_readable(completion))
        message = _adapter().translate_completion_output_params(response, tool_names)
    except _UNREADABLE as error:
        raise _untranslated(error) from error
    return _reply(reply, dict(message))


def _readable(completion: Json) -> Json:
    """Without what a message of Anthropic's has no place for, and litellm might fail on."""
    choices = [
        {**choice, "message": {k: v for k, v in choice["message"].items() if k in _SAID}}
        for choice in completion["choices"]
    ]
    kept = {name: completion[name] for name in _TOLD if completion.get(name) is not None}
    return {"usage": _NO_USAGE, **kept, "choices": choices}


def _untranslated(error: Exception) -> UpstreamBrokenError:
    text = f"upstream's answer cannot be translated ({type(error).__name__})"
    return UpstreamBrokenError(text, code="translation_failed")


def _reply(reply: UpstreamReply, body: Json) -> UpstreamReply:
    async def chunks() -> AsyncIterator[bytes]:
        yield dumps(body)

    return UpstreamReply(reply.status, without(reply.headers, b"content-length"), chunks())


async def _whole(reply: UpstreamReply) -> bytes:
    try:
        return await reply.read(_LIMIT)
    finally:
        await reply.aclose()


# Streams


async def _stream_reply(reply: UpstreamReply, tool_names: dict[str, str]) -> UpstreamReply:
    chunks = _chat_chunks(reply.chunks)
    try:
        first = await anext(chunks, None)
    except BaseException:
        await reply.aclose()
        raise
    events = _events(chunks, first, tool_names)
    return UpstreamReply(200, without(reply.headers, b"content-length"), events, reply.aclose)


async def _chat_chunks(parts: AsyncIterator[bytes]) -> AsyncGenerator[Json, None]:
    """The chunks of a chat stream, as litellm's adapter can follow them."""
    reader, calls = EventReader(), _CallsInOrder()
    async for part in parts:
        for found in reader.feed(part):
            chunk = json_object(found.data) if found.data else None
            for piece in calls.take(chunk) if chunk else ():
                yield piece


class _CallsInOrder:
    """Chunks with one tool call each, one call after the other.

    litellm's adapter reads the first call of a chunk only, and gives a delta to the block that it
    opened last. The calls after the first wait for the finish; no client runs them before it.
    """

    def __init__(self) -> None:
        self._first: int | None = None
        self._waiting: dict[int, list[Json]] = {}

    def take(self, chunk: Json) -> list[Json]:
        choice = (chunk.get("choices") or [{}])[0]
        delta, reason = choice.get("delta") or {}, choice.get("finish_reason")
        calls = [call for call in delta.get("tool_calls") or () if isinstance(call, dict)]
        if not calls:
            return [*self._flushed(), chunk] if reason else [chunk]
        rest = {key: value for key, value in delta.items() if key != "tool_calls"}
        pieces = [_piece(chunk, rest)] if rest.get("content") else []
        for call in calls:
            index = index_of(call, 0)
            self._first = index if self._first is None else self._first
            waiting = pieces if index == self._first else self._waiting.setdefault(index, [])
            waiting.append(_piece(chunk, {"tool_calls": [call]}))
        ending = {**chunk, "choices": [{**choice, "delta": {}}]}
        return [*pieces, *self._flushed(), ending] if reason else pieces

    def _flushed(self) -> list[Json]:
        pieces = [piece for index in sorted(self._waiting) for piece in self._waiting[index]]
        self._waiting.clear()
        return pieces


def _piece(chunk: Json, delta: Json) -> Json:
    left_out = {key: value for key, value in chunk.items() if key != "usage"}
    return {**left_out, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


async def _events(
    chunks: AsyncGenerator[Json, None], first: Json | None, tool_names: dict[str, str]
) -> AsyncGenerator[bytes, None]:
    """The events of a message; raises UpstreamError where the chunks break off."""
    wrapper = importlib.import_module(f"{_ADAPTER}.streaming_iterator").AnthropicStreamWrapper
    model = (first or {}).get("model") or "unknown"
    responses = _responses(chunks, first)
    async with aclosing(chunks), aclosing(responses):
        try:
            async for data in wrapper(responses, model, tool_name_mapping=tool_names):
                plain = _plain(data)
                if plain["type"] == "message_delta":
                    plain["delta"].setdefault("stop_sequence", None)
                yield named_event(plain["type"], dumps(plain))
        except _ToldError as told:
            yield named_event("error", dumps(_error(_BROKEN, told.error)))
        except _UNREADABLE as error:
            raise _untranslated(error) from error


class _ToldError(Exception):
    """Upstream's own error in the middle of its answer."""

    def __init__(self, error: Json) -> None:
        super().__init__()
        self.error = error


async def _responses(
    chunks: AsyncGenerator[Json, None], first: Json | None
) -> AsyncGenerator[Any, None]:
    """The chunks as litellm's objects.

    Raises _ToldError at upstream's own error, UpstreamBrokenError where the finish is missing.
    """
    make = importlib.import_module("litellm.types.utils").ModelResponseStream
    is_finished = False
    chunk = first
    while chunk is not None:
        if told := chunk.get("error"):
            raise _ToldError(told if isinstance(told, dict) else {"message": told})
        choices = chunk.get("choices") or []
        is_finished = is_finished or any(c.get("finish_reason") for c in choices)
        yield make(**chunk)
        chunk = await anext(chunks, None)
    if not is_finished:
        raise UpstreamBrokenError("upstream's stream ended before its finish chunk")


def _plain(data: Any) -> Any:
    """litellm's objects among the events as JSON."""
    return json.loads(json.dumps(data, default=lambda value: value.model_dump(exclude_none=True)))
