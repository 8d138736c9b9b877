"""`/v1/messages` for an upstream that speaks chat completions, by litellm's adapter.

The request is converted to one for a chat completion, which `LiteLLMUpstream` carries out; its
reply, whole or streamed, is converted to a message. Statuses are kept, errors get Anthropic's
envelope.
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
from proxy.formats.messages.messages import error_type
from proxy.formats.messages.messages_stream import named_event
from proxy.http.wire.headers import header, without
from proxy.http.wire.json_splice import dumps, json_object, parse_json_object
from proxy.http.wire.sse import EventReader
from proxy.http.wire.upstream import UpstreamReply, UpstreamRequest

Json = dict[str, Any]

MESSAGES = "/messages"
_ADAPTER = "litellm.llms.anthropic.pass_through.adapters"
_BROKEN = 502  # used for an error in the middle of an answer, which has no status
_LIMIT = 64 * 2**20  # bytes of a reply that is read whole
# Fields that litellm's adapter translates to OpenAI's format.
_TRANSLATED = {
    *("max_tokens", "messages", "metadata", "model", "output_config", "output_format"),
    *("stop_sequences", "stream", "system", "temperature", "thinking", "tool_choice", "tools"),
    *("top_k", "top_p"),
}
# Fields for Anthropic's own bookkeeping, which change no answer.
_LEFT_OUT = {"cache_control", "context_management", "diagnostics", "service_tier"}
# The fields of a completion, and of the messages in it, that are translated.
_REPLY_FIELDS = ("id", "created", "model", "usage")
_MESSAGE_FIELDS = {
    *("role", "content", "refusal", "reasoning", "reasoning_content", "thinking_blocks"),
    *("tool_calls", "function_call", "provider_specific_fields"),
}
_NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0}  # used because a message needs a usage
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, IndexError)
_CLIENTS_OWN = (b"x-api-key", b"anthropic-version", b"anthropic-beta", b"accept-encoding")


class ChatUpstream(Protocol):
    """An upstream that carries out translated requests, once `load` has loaded litellm."""

    async def load(self) -> None: ...

    async def translate(self, request: UpstreamRequest) -> UpstreamReply: ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class MessagesUpstream:
    """An upstream for `/messages` only, which sends requests as chat completions to `chat`."""

    chat: ChatUpstream

    async def send(self, request: UpstreamRequest) -> UpstreamReply:
        """Send a request for a message as one for a chat completion, and convert the reply.

        Raises UpstreamError where there is no answer, and BadRequestError for a request that cannot
        be translated.
        """
        await self.chat.load()
        body = parse_json_object(request.body)
        fields, tool_names = _to_chat(body)
        chat_request = replace(
            request,
            path="/chat/completions",
            headers=_headers(request),
            body=dumps(fields),
            query="",
        )
        reply = await self.chat.translate(chat_request)
        if reply.status != 200:
            return await _error_reply(reply)
        if body.get("stream"):
            return await _stream_reply(reply, tool_names)
        return await _json_reply(reply, tool_names)

    async def aclose(self) -> None:
        await self.chat.aclose()


@cache
def _adapter() -> Any:
    """Return litellm's adapter of Anthropic's format, which is imported once and makes no calls."""
    return importlib.import_module(f"{_ADAPTER}.transformation").AnthropicAdapter()


def _headers(request: UpstreamRequest) -> list[tuple[bytes, bytes]]:
    """Return the client's headers without Anthropic's own, its key moved to `authorization`."""
    key = header(request.headers, b"x-api-key")
    headers = without(request.headers, *_CLIENTS_OWN)
    if key and header(headers, b"authorization") is None:
        headers.append((b"authorization", f"Bearer {key}".encode("latin-1")))
    return headers


def _to_chat(body: Json) -> tuple[Json, dict[str, str]]:
    """Convert the body of a request to OpenAI's format.

    Returns (fields, the tools' real names by the shorter ones that OpenAI's limit requires). Raises
    BadRequestError for a field without a counterpart, and for what litellm cannot convert.
    """
    members = {key: value for key, value in body.items() if value is not None}
    for name in members:
        if name not in _TRANSLATED | _LEFT_OUT:
            text = f"'{name}' cannot be translated for this upstream"
            raise BadRequestError(text, param=name, code="unsupported_parameter")
    if not isinstance(members.get("model"), str):
        raise BadRequestError("the body names no model", param="model")
    _check_messages(members.get("messages"))
    translated = {key: value for key, value in members.items() if key in _TRANSLATED}
    try:
        fields, names = _adapter().translate_completion_input_params_with_tool_mapping(translated)
    except _UNREADABLE as error:
        text = f"the request cannot be translated for this upstream ({type(error).__name__})"
        raise BadRequestError(text, code="translation_failed") from error
    if isinstance(effort := fields.get("reasoning_effort"), dict):
        fields["reasoning_effort"] = effort.get("effort")
    if fields.get("stream"):  # streams in Anthropic's format always include the usage
        fields["stream_options"] = {"include_usage": True}
    return dict(fields), names


def _check_messages(messages: Any) -> None:
    """Refuse messages of a shape that litellm would drop silently or fail on.

    Raises BadRequestError, so that the client can correct it.
    """
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise BadRequestError("'messages' must be a list of objects", param="messages")
    blocks = (m.get("content") for m in messages)
    for content in blocks:
        if isinstance(content, list) and not all(isinstance(block, dict) for block in content):
            raise BadRequestError("content blocks must be objects", param="messages")


async def _error_reply(reply: UpstreamReply) -> UpstreamReply:
    """Convert a reply with an error in OpenAI's envelope to one with Anthropic's."""
    body = json_object(await _whole(reply)) or {}
    upstream_error = body.get("error")
    error = (
        upstream_error
        if isinstance(upstream_error, dict)
        else {"message": f"upstream answered {reply.status}"}
    )
    return _reply(reply, _error(reply.status, error))


def _error(status: int, error: Json) -> Json:
    """Return Anthropic's error object for a status and an OpenAI error."""
    kind = error_type(status, str(error.get("type") or "invalid_request_error"))
    words = error.get("message") or "upstream failed"
    extra = {key: error[key] for key in ("code", "param") if error.get(key) is not None}
    return {"type": "error", "error": {"type": kind, "message": words, **extra}}


async def _json_reply(reply: UpstreamReply, tool_names: dict[str, str]) -> UpstreamReply:
    """Convert a whole completion to a message; raises UpstreamBrokenError if it is none.

    `tool_names` are the tools' real names.
    """
    completion = json_object(await _whole(reply))
    if completion is None or not completion.get("choices"):
        raise UpstreamBrokenError("upstream's answer is no completion", code="translation_failed")
    try:
        response = importlib.import_module("litellm").ModelResponse(**_readable(completion))
        message = _adapter().translate_completion_output_params(response, tool_names)
    except _UNREADABLE as error:
        raise _translation_error(error) from error
    return _reply(reply, dict(message))


def _readable(completion: Json) -> Json:
    """Return the completion without fields that have no place in Anthropic's messages.

    litellm might fail on them. Without a usage it gets one of 0 tokens.
    """
    choices = [
        {**choice, "message": {k: v for k, v in choice["message"].items() if k in _MESSAGE_FIELDS}}
        for choice in completion["choices"]
    ]
    fields = {name: completion[name] for name in _REPLY_FIELDS if completion.get(name) is not None}
    return {"usage": _NO_USAGE, **fields, "choices": choices}


def _translation_error(error: Exception) -> UpstreamBrokenError:
    """Return the error for an answer that litellm cannot convert."""
    text = f"upstream's answer cannot be translated ({type(error).__name__})"
    return UpstreamBrokenError(text, code="translation_failed")


def _reply(reply: UpstreamReply, body: Json) -> UpstreamReply:
    """Return a reply like another, with this JSON as its body."""

    async def chunks() -> AsyncIterator[bytes]:
        yield dumps(body)

    return UpstreamReply(reply.status, without(reply.headers, b"content-length"), chunks())


async def _whole(reply: UpstreamReply) -> bytes:
    """Read a whole reply, up to `_LIMIT` bytes, and close it."""
    try:
        return await reply.read(_LIMIT)
    finally:
        await reply.aclose()


# Streams


async def _stream_reply(reply: UpstreamReply, tool_names: dict[str, str]) -> UpstreamReply:
    """Convert a streamed completion to the events of a message.

    Waits for the first chunk, so that an error before it is raised here.
    """
    chunks = _chat_chunks(reply.chunks)
    try:
        first = await anext(chunks, None)
    except BaseException:
        await reply.aclose()
        raise
    events = _events(chunks, first, tool_names)
    return UpstreamReply(200, without(reply.headers, b"content-length"), events, reply.aclose)


async def _chat_chunks(parts: AsyncIterator[bytes]) -> AsyncGenerator[Json, None]:
    """Yield the chunks of a chat stream in a form that litellm's adapter can follow."""
    reader, calls = EventReader(), _CallsInOrder()
    async for part in parts:
        for found in reader.feed(part):
            chunk = json_object(found.data) if found.data else None
            for piece in calls.take(chunk) if chunk else ():
                yield piece


class _CallsInOrder:
    """Rearranges chunks so that each has at most one tool call, and calls follow each other.

    litellm's adapter reads only the first call of a chunk, and adds a delta to the block that it
    opened last. Calls after the first are held until the finish, before which no client runs them.
    """

    def __init__(self) -> None:
        self._first: int | None = None
        self._waiting: dict[int, list[Json]] = {}

    def take(self, chunk: Json) -> list[Json]:
        """Return the chunks to send for a chunk of the stream, in order, perhaps none."""
        choice = (chunk.get("choices") or [{}])[0]
        delta, reason = choice.get("delta") or {}, choice.get("finish_reason")
        calls = [call for call in delta.get("tool_calls") or () if isinstance(call, dict)]
        if not calls:
            return [*self._flush(), chunk] if reason else [chunk]
        rest = {key: value for key, value in delta.items() if key != "tool_calls"}
        pieces = [_piece(chunk, rest)] if rest.get("content") else []
        for call in calls:
            index = index_of(call, 0)
            self._first = index if self._first is None else self._first
            waiting = pieces if index == self._first else self._waiting.setdefault(index, [])
            waiting.append(_piece(chunk, {"tool_calls": [call]}))
        ending = {**chunk, "choices": [{**choice, "delta": {}}]}
        return [*pieces, *self._flush(), ending] if reason else pieces

    def _flush(self) -> list[Json]:
        """Return and forget the chunks of the calls that were held."""
        pieces = [piece for index in sorted(self._waiting) for piece in self._waiting[index]]
        self._waiting.clear()
        return pieces


def _piece(chunk: Json, delta: Json) -> Json:
    """Return a chunk with this delta alone, without usage and finish."""
    left_out = {key: value for key, value in chunk.items() if key != "usage"}
    return {**left_out, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


async def _events(
    chunks: AsyncGenerator[Json, None], first: Json | None, tool_names: dict[str, str]
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a message as bytes; raises UpstreamError where the chunks break off.

    An error that upstream sends becomes an `error` event. `first` is the chunk read before.
    """
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
        except _SentError as told:
            yield named_event("error", dumps(_error(_BROKEN, told.error)))
        except _UNREADABLE as error:
            raise _translation_error(error) from error


class _SentError(Exception):
    """An error that upstream sent in the middle of its answer."""

    def __init__(self, error: Json) -> None:
        super().__init__()
        self.error = error


async def _responses(
    chunks: AsyncGenerator[Json, None], first: Json | None
) -> AsyncGenerator[Any, None]:
    """Yield the chunks, `first` and then the others, as litellm's objects.

    Raises _SentError at an error that upstream sent, and UpstreamBrokenError where the finish is
    missing.
    """
    make = importlib.import_module("litellm.types.utils").ModelResponseStream
    is_finished = False
    chunk = first
    while chunk is not None:
        if error := chunk.get("error"):
            raise _SentError(error if isinstance(error, dict) else {"message": error})
        choices = chunk.get("choices") or []
        is_finished = is_finished or any(c.get("finish_reason") for c in choices)
        yield make(**chunk)
        chunk = await anext(chunks, None)
    if not is_finished:
        raise UpstreamBrokenError("upstream's stream ended before its finish chunk")


def _plain(data: Any) -> Any:
    """Convert litellm's objects in an event to JSON values."""
    return json.loads(json.dumps(data, default=lambda value: value.model_dump(exclude_none=True)))
