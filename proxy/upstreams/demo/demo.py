"""The demo upstream: canned answers, right and wrong ones, without network or key.

It behaves like OpenAI's chat completions: streams, tools, n, structured output, truncated replies
and errors.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from itertools import zip_longest
from uuid import uuid4

from proxy.errors import BadRequestError, NotFoundError, ProxyError
from proxy.formats import CHAT, FORMATS, Format
from proxy.http.wire.headers import Headers, encode_fields
from proxy.http.wire.json_splice import json_object
from proxy.http.wire.sse import DONE, event_bytes
from proxy.http.wire.upstream import UpstreamReply, UpstreamRequest
from proxy.upstreams.demo.answers import (
    EMBEDDED_AUROC,
    JUDGE,
    DemoRow,
    Json,
    dump_json,
    find_answers,
    first_question,
    format_answer,
    judged_choice,
    questions,
    rows,
    text_message,
)

__all__ = ["EMBEDDED_AUROC", "DemoRow", "DemoUpstream", "first_question", "questions", "rows"]

_MODEL: Json = {"id": "demo", "object": "model", "created": 1767225600, "owned_by": "pinocchio"}
_MOST = {"n": 128, "max_tokens": sys.maxsize, "max_completion_tokens": sys.maxsize}
_TYPES = {
    "model": str,
    "messages": list,
    "tools": list,
    "response_format": dict,
    "stream_options": dict,
}


STRONG = "demo-strong"  # gives right answers first; other models keep the order of the file
_OTHERS: dict[str, Format] = {f.path: f for f in FORMATS if f is not CHAT}


class DemoUpstream:
    """An Upstream that answers from `demo.yaml`; a stream waits `delay_s` after each chunk."""

    def __init__(self, delay_s: float = 0.005) -> None:
        self._delay_s = delay_s

    async def send(self, request: UpstreamRequest) -> UpstreamReply:
        """Answer a request like OpenAI's API, at once; errors are replies too.

        Known are the model list and completions in all formats.
        """
        try:
            match request.method, request.path:
                case "GET", "/models":
                    return _reply(200, {"object": "list", "data": [_MODEL]})
                case "GET", "/models/demo":
                    return _reply(200, _MODEL)
                case "POST", "/chat/completions":
                    return self._chat(_parse_body(request.body))
                case "POST", path if path in _OTHERS:
                    return self._answer_in(_OTHERS[path], request.body)
                case method, path:
                    message = f"Invalid URL ({method} /v1{path})"
                    raise NotFoundError(message, code="unknown_url")
        except ProxyError as error:
            return _reply(error.status, error.envelope())

    async def aclose(self) -> None:
        """Close nothing."""

    def _chat(self, body: Json) -> UpstreamReply:
        """Return the reply to a request for a chat completion, whole or streamed."""
        completion = _completion(body)
        if not body.get("stream"):
            return _reply(200, completion)
        has_usage = (body.get("stream_options") or {}).get("include_usage") is True
        events = self._events(completion, has_usage=has_usage)
        headers = _headers("text/event-stream; charset=utf-8")
        return UpstreamReply(200, headers, events, on_close=events.aclose)

    def _answer_in(self, format: Format, body: bytes) -> UpstreamReply:
        """Answer the user's last message with a text, in another format, whole or streamed.

        Tools and the conversation before are ignored. A body that is no JSON gets a 400.
        """
        request = json_object(body)
        if request is None:
            return _raw_reply(400, format.error_body(BadRequestError("The body is not JSON.")))
        question = format.last_question(request)
        model = str(request.get("model") or "demo")
        chat = _completion({"model": model, "messages": [{"role": "user", "content": question}]})
        text = chat["choices"][0]["message"]["content"]
        id = format.held_prefix.replace("held", "demo") + uuid4().hex
        empty = format.placeholder(text, id=id, created=int(time.time()), model=model)
        completion = format.replace_text(empty, text, "stop")
        if not request.get("stream"):
            return _reply(200, completion)
        events = self._pace_events(format.events(completion, request))
        headers = _headers("text/event-stream; charset=utf-8")
        return UpstreamReply(200, headers, events, on_close=events.aclose)

    async def _pace_events(self, events: list[bytes]) -> AsyncGenerator[bytes, None]:
        """Yield the events, with a pause of `delay_s` after each."""
        for event in events:
            yield event
            await asyncio.sleep(self._delay_s)

    async def _events(self, completion: Json, *, has_usage: bool) -> AsyncGenerator[bytes, None]:
        """Yield the completion as server-sent events: chunks, usage if requested, [DONE]."""
        frame = completion | {"object": "chat.completion.chunk", "usage": None}
        if not has_usage:
            del frame["usage"]
        for choice in _interleave(completion["choices"]):
            yield event_bytes(dump_json(frame | {"choices": [choice]}).encode())
            await asyncio.sleep(self._delay_s)
        if has_usage:
            usage = completion["usage"]
            yield event_bytes(dump_json(frame | {"choices": [], "usage": usage}).encode())
        yield event_bytes(DONE.encode())


def _parse_body(raw: bytes) -> Json:
    """Parse the body of a request for a completion, and check the fields that the demo reads.

    Raises BadRequestError where OpenAI answers 400.
    """
    body = json_object(raw)
    if body is None:
        raise BadRequestError("We could not parse the JSON body of your request.")
    for name in ("model", "messages"):
        if body.get(name) is None:
            text = f"Missing required parameter: '{name}'."
            raise BadRequestError(text, param=name, code="missing_required_parameter")
    for name, kind in _TYPES.items():
        if not isinstance(body.get(name), kind | None):
            text = f"Invalid type for '{name}': expected {kind.__name__}."
            raise BadRequestError(text, param=name, code="invalid_type")
    for name, most in _MOST.items():
        value = body.get(name)
        # isinstance would accept `true`, as bool is a subclass of int
        if value is not None and not (type(value) is int and 1 <= value <= most):
            text = f"Invalid '{name}': expected an integer from 1 to {most}."
            raise BadRequestError(text, param=name, code="invalid_value")
    if not body["messages"]:
        text = "Invalid 'messages': empty array."
        raise BadRequestError(text, param="messages", code="empty_array")
    if not all(isinstance(message, dict) for message in body["messages"]):
        text = "Invalid type for 'messages': expected an array of objects."
        raise BadRequestError(text, param="messages", code="invalid_type")
    return body


def _completion(body: Json) -> Json:
    """Return the chat completion that answers a request's body, with counts of tokens."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or sys.maxsize
    choices = [_choice(body, index, limit) for index in range(body.get("n") or 1)]
    if body["model"] == JUDGE:
        prompt = _text(body["messages"][-1])
        choices = [judged_choice(prompt, has_logprobs=body.get("logprobs") is True)]
    prompt_tokens = sum(len(_tokens(_text(message))) for message in body["messages"])
    completion_tokens = sum(
        len(_tokens(part[key]))
        for choice in choices
        for part, key in _text_places(choice["message"])
    )
    return {
        "id": f"chatcmpl-demo-{uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body["model"],
        "choices": choices,
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
        "system_fingerprint": "fp_demo",
    }


def _choice(body: Json, index: int, limit: int) -> Json:
    """Return the choice `index` of a completion, formatted, and cut after `limit` tokens."""
    message = _answer(body, index)
    if message["content"] is not None:
        message["content"] = format_answer(message["content"], body.get("response_format") or {})
    reason = "tool_calls" if "tool_calls" in message else "stop"
    for part, key in _text_places(message):
        tokens = _tokens(part[key])
        if len(tokens) > limit:
            reason = "length"
        part[key] = "".join(tokens[:limit])
        limit = max(0, limit - len(tokens))
    return {"index": index, "message": message, "logprobs": None, "finish_reason": reason}


def _answer(body: Json, index: int) -> Json:
    """Return the assistant message of choice `index`, neither formatted nor truncated.

    It is a canned answer, or a sentence for an unknown question, after a tool's result, and for a
    call of a tool that the request does not offer.
    """
    last = body["messages"][-1]
    if last.get("role") == "tool":  # repeating the canned call would loop forever
        return text_message(f"The tool answered: {_text(last)}")
    user_texts = [_text(message) for message in body["messages"] if message.get("role") == "user"]
    rows = find_answers(user_texts[-1]) if user_texts else ()
    if not rows:
        return text_message(_default_answer())
    if body["model"] == STRONG:
        rows = tuple(sorted(rows, key=lambda row: not row.correct))
    row = rows[index % len(rows)]
    offered = _offered_functions(body)
    for call in row.calls:
        if call["name"] not in offered:
            return text_message(
                f"My canned answer calls the tool `{call['name']}`, which this request does not "
                "offer or does not allow."
            )
    return row.message()


def _offered_functions(body: Json) -> list[str]:
    """Return the names of the functions that the request offers and lets the model call.

    With a `tool_choice` that names one function it is that one; with "none" there are none.
    """
    choice = body.get("tool_choice")
    names = []
    for tool in [choice] if isinstance(choice, dict) else body.get("tools") or []:
        match tool:
            case {"function": {"name": str(name)}}:
                names.append(name)
    return [] if choice == "none" else names


def _default_answer() -> str:
    """Return the answer to a question that is not a canned one, with questions to try."""
    plain = (text for text, [row, *_] in questions().items() if not row.tools and not row.system)
    shortest = "\n".join(f"- {text}" for text in sorted(plain, key=len)[:5])
    return (
        "This is the demo upstream: there is no model here, only canned answers to "
        f"{len(questions())} questions, some right and some wrong. Yours is not among them. "
        f"Try one of these:\n\n{shortest}"
    )


def _text(message: Json) -> str:
    """Return the text of a message, whose content is a string, a list of parts or null."""
    content = message.get("content")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return " ".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _text_places(message: Json) -> list[tuple[Json, str]]:
    """Return the places of an answer's texts as (mapping, key): content, arguments of calls."""
    calls = [(call["function"], "arguments") for call in message.get("tool_calls", ())]
    return calls if message["content"] is None else [(message, "content"), *calls]


def _tokens(text: str) -> list[str]:
    """Split a text into pieces of about a word, which count as tokens."""
    return re.findall(r"\w+\W*|\W+", text)


def _interleave(choices: list[Json]) -> Iterator[Json]:
    """Yield the chunks of all choices in turns, as OpenAI sends them."""
    for together in zip_longest(*map(_chunks, choices)):
        yield from filter(None, together)


def _chunks(choice: Json) -> Iterator[Json]:
    """Yield a complete choice as the chunks of a stream: role, content, tool calls, finish."""
    message = choice["message"]
    content = message["content"]
    deltas: list[Json] = [text_message(None if content is None else "")]
    deltas += [{"content": token} for token in _tokens(content or "")]
    for index, call in enumerate(message.get("tool_calls", ())):
        opening = call | {"index": index, "function": call["function"] | {"arguments": ""}}
        deltas.append({"tool_calls": [opening]})
        for token in _tokens(call["function"]["arguments"]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": token}}]})
    frame = choice | {"finish_reason": None}
    del frame["message"]
    yield from (frame | {"delta": delta} for delta in deltas)
    yield frame | {"delta": {}, "finish_reason": choice["finish_reason"]}


def _headers(content_type: str) -> Headers:
    """Return the headers of a reply: its content type and a new request id."""
    return encode_fields(
        [("content-type", content_type), ("x-request-id", f"req_demo_{uuid4().hex}")]
    )


def _reply(status: int, body: Json) -> UpstreamReply:
    """Return a reply with a JSON body."""
    return _raw_reply(status, dump_json(body).encode())


def _raw_reply(status: int, body: bytes) -> UpstreamReply:
    """Return a reply with these bytes as its JSON body."""

    async def chunks() -> AsyncIterator[bytes]:
        yield body

    return UpstreamReply(status, _headers("application/json"), chunks())
