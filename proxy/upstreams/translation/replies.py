"""Conversion of litellm's answers to replies of OpenAI's API.

If upstream speaks OpenAI's format, litellm only wrote the request, and the bytes of the answer are
passed on. litellm's own reading of them would renumber choices, end a stream with the first of its
choices, drop refusals and invent usage and reasons. The answer of any other upstream exists only as
litellm's objects, which are converted to JSON here.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx

from proxy.errors import UpstreamBrokenError, UpstreamError
from proxy.http.wire.headers import Headers
from proxy.http.wire.json_splice import json_object
from proxy.http.wire.sse import DONE, EventReader, event_bytes
from proxy.http.wire.upstream import UpstreamReply
from proxy.upstreams.translation.errors import (
    broken_stream_error,
    error_answer,
    json_reply,
    kept_headers,
    no_answer,
)

Json = dict[str, Any]

_EVENT_STREAM = (b"content-type", b"text/event-stream; charset=utf-8")


@dataclass(frozen=True, slots=True)
class Wants:
    """Whether the client wants a stream, and the usage in it."""

    is_stream: bool
    has_usage: bool  # whether a stream includes it


def last_response(responses: list[httpx.Response], wants: Wants) -> httpx.Response | None:
    """Return upstream's last response if it is an error, or answers a request without a stream.

    Else None, also without any response.
    """
    response = responses[-1] if responses else None
    return None if response and wants.is_stream and response.is_success else response


# Answers in upstream's own bytes
def usable_response(responses: list[httpx.Response], wants: Wants) -> httpx.Response | None:
    """Return the last response if its own bytes can be the reply.

    It must answer a chat completion, and litellm may not have consumed its stream. Returns None for
    an error, and for a request that litellm has changed in ways that only it can undo.
    """
    response = responses[-1] if responses else None
    if response is None or not response.url.path.endswith("/chat/completions"):
        return None  # litellm calls some models at other paths, in another format
    if not response.is_success or _is_extended(response.request, wants):
        return None
    is_unread = not response.is_stream_consumed and not response.is_closed
    return response if (is_unread if wants.is_stream else _is_whole(response)) else None


def _is_extended(request: httpx.Request, wants: Wants) -> bool:
    """Return whether litellm has added to a request what only it can remove from the answer.

    That is a tool in place of `response_format`, or a stream's usage that the client did not ask
    for.
    """
    constants = importlib.import_module("litellm.constants")
    if constants.RESPONSE_FORMAT_TOOL_NAME.encode() in request.content:
        return True  # litellm replaced `response_format` by a tool
    if wants.has_usage or not wants.is_stream:
        return False
    options = (json_object(request.content) or {}).get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _is_whole(response: httpx.Response) -> bool:
    """Return whether a response's body has been read."""
    try:
        return response.content is not None
    except httpx.ResponseNotRead:
        return False


async def relayed_reply(response: httpx.Response, wants: Wants) -> UpstreamReply:
    """Return a reply with upstream's own bytes, once its first chunk is there if it is a stream.

    Raises UpstreamError if it is no completion.
    """
    return await _own_stream(response) if wants.is_stream else _own_completion(response)


def _own_completion(response: httpx.Response) -> UpstreamReply:
    """Return a reply with a whole completion's own bytes.

    Raises UpstreamBrokenError if it is none.
    """

    async def chunks() -> AsyncIterator[bytes]:
        yield response.content

    completion = json_object(response.content)
    if completion is None or not isinstance(completion.get("choices"), list):
        raise no_answer(response)
    headers = [(b"content-type", b"application/json"), *kept_headers(response.headers)]
    return UpstreamReply(200, headers, chunks())


async def _own_stream(response: httpx.Response) -> UpstreamReply:
    """Wait for the first chunk of upstream's stream, and return the reply with all its bytes.

    Raises UpstreamBrokenError where the stream has no chunk; it is closed then.
    """
    events = _own_events(response)
    head: list[bytes] = []
    try:
        async for raw, data in events:
            head.append(raw)
            if data == DONE or (data and json_object(data) is not None):
                break
        else:
            raise UpstreamBrokenError("upstream's answer is no stream of chunks")
    except BaseException:
        await response.aclose()
        raise

    async def chunks() -> AsyncIterator[bytes]:
        yield b"".join(head)
        async for raw, _ in events:
            yield raw

    headers = [_EVENT_STREAM, *kept_headers(response.headers)]
    return UpstreamReply(200, headers, chunks(), response.aclose)


async def _own_events(response: httpx.Response) -> AsyncGenerator[tuple[bytes, str | None], None]:
    """Yield (bytes, data) of each event, up to and including an error that upstream sends.

    Data is None for an event without data and for an unfinished rest. Raises UpstreamError where
    the connection breaks.
    """
    reader = EventReader()
    try:
        async for part in response.aiter_bytes():
            for event in reader.feed(part):
                yield event.raw, event.data
                if event.data and _is_error(event.data):
                    return
    except Exception as error:
        raise broken_stream_error(error) from error
    if rest := reader.rest():
        yield rest, None


def _is_error(data: str) -> bool:
    """Return whether an event's data is an object with a non-empty `error`."""
    return '"error"' in data and bool((json_object(data) or {}).get("error"))


# Answers in litellm's objects
async def translated_reply(
    answer: Any, responses: list[httpx.Response], wants: Wants
) -> UpstreamReply:
    """Return a reply with upstream's answer as litellm translated it, or with upstream's error.

    Raises what litellm raises, and UpstreamError.
    """
    if responses and not responses[-1].is_success:
        return error_answer(responses[-1])  # litellm made a completion of it
    if wants.is_stream:
        return await _translated_stream(answer, responses, has_usage=wants.has_usage)
    return json_reply(200, _completion(answer), _headers(answer, responses))


def _headers(answer: Any, responses: list[httpx.Response]) -> Headers:
    """Return the useful header fields of upstream's last response, or those that litellm kept."""
    fields = answer._hidden_params.get("additional_headers") or {}
    return kept_headers(responses[-1].headers if responses else fields)


def _dump_answer(answer: Any) -> Json:
    """Return a completion or a chunk of litellm's as JSON, with OpenAI's nulls.

    Other empty fields are left out.
    """
    dumped: Json = answer.model_dump(exclude_none=True)
    for choice in dumped["choices"]:
        message = choice.get("message", choice.get("delta"))
        for owner in (choice, message):
            extra = owner.pop("provider_specific_fields", None) or {}
            if fields := {name: value for name, value in extra.items() if value is not None}:
                owner["provider_specific_fields"] = fields
        choice.setdefault("logprobs", None)
        choice.setdefault("finish_reason", None)
    return dumped


def _completion(answer: Any) -> Json:
    """Return a completion of litellm's as the JSON of OpenAI's API."""
    completion = _dump_answer(answer)
    for choice in completion["choices"]:
        choice["message"].setdefault("content", None)
        for call in choice["message"].get("tool_calls", ()):
            call.pop("index", None)  # a field of streams, which here counts text blocks too
    return completion


def _chunk(part: Any, *, has_usage: bool) -> Json:
    """Return a chunk of litellm's as the JSON of OpenAI's API, with usage only if `has_usage`.

    A chunk with usage keeps only choices that say something.
    """
    chunk = _dump_answer(part)
    usage = chunk.pop("usage", None)
    if has_usage:
        chunk["usage"] = usage
    if usage:  # OpenAI sends it in a chunk without choices
        chunk["choices"] = [c for c in chunk["choices"] if c["delta"] or c["finish_reason"]]
    return chunk


async def _translated_stream(
    stream: Any, responses: list[httpx.Response], *, has_usage: bool
) -> UpstreamReply:
    """Return a streamed reply, once its first chunk has arrived.

    Some providers are called only then, and their errors are raised here.
    """

    async def close() -> None:
        """Close the connection, because litellm closes only its own iterator, not its source."""
        source: Any = getattr(stream.completion_stream, "streaming_response", None)
        await stream.aclose()
        if hasattr(source, "aclose"):
            await source.aclose()

    try:
        first = await _next(stream)
    except BaseException:
        await close()
        raise
    headers = [_EVENT_STREAM, *_headers(stream, responses)]
    return UpstreamReply(200, headers, _events(stream, first, has_usage=has_usage), close)


async def _events(stream: Any, first: Any, *, has_usage: bool) -> AsyncGenerator[bytes, None]:
    """Yield the chunks as server-sent events, all with the first one's id, and then [DONE].

    Raises UpstreamError where the stream breaks off.
    """
    part, model = first, None
    while part is not None:
        chunk = _chunk(part, has_usage=has_usage)
        model = part._hidden_params.get("provider_response_model") or model or chunk["model"]
        chunk |= {"id": first.id, "model": model}  # litellm's change midway with some providers
        yield event_bytes(json.dumps(chunk, separators=(",", ":")).encode())
        try:
            part = await _next(stream)
        except UpstreamError:
            raise
        except Exception as error:
            raise broken_stream_error(error) from error
    yield event_bytes(DONE.encode())


async def _next(stream: Any) -> Any:
    """Return the next chunk of litellm's stream, None after the last.

    Raises UpstreamBrokenError where litellm invented the finish of an incomplete answer.
    """
    part: Any = await anext(stream, None)
    is_finish = part is not None and any(choice.finish_reason for choice in part.choices)
    if is_finish and not (stream.received_finish_reason or stream.intermittent_finish_reason):
        raise UpstreamBrokenError("upstream ended its answer before it was complete")
    return part
