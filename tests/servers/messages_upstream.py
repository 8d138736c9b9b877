"""Anthropic's Messages API on loopback, byte for byte as it writes, and with faults on request.

    with MessagesUpstream() as upstream:
        upstream.last.json(), upstream.last.header("x-api-key")

What it does is chosen by the model's name, with and without `stream: true`:

    ok                the last text of the user is the answer, in several deltas
    say TEXT          the answer is TEXT
    thinks            the same after a thinking block with its signature
    tools             a text and one call of every offered tool with the last text of the user
    large-input       one call whose input has 1 MB
    searches          a search that the API runs itself, its result, and a text with a citation
    refuses, pauses, too-long   a text that ends with another stop reason
    vendor            fields, numbers and escapes that no SDK knows
    gated             the first part of a stream, the rest after `proceed()`
    split, told       one byte at a time; a stream in the parts of `told`
    error-event       an `error` event in the middle of a stream
    cut, no-finish    the connection breaks off; the stream ends before its message_delta
    status-NNN        that status, in the API's envelope

A request without a key or a version is refused, as there. Also served: token counts, batches, the
list of models, HEAD.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tests.servers.faulty_upstream import (
    EVENTS,
    JSON,
    Cut,
    FaultyUpstream,
    Headers,
    Received,
    Response,
    Step,
    Wait,
)

Json = dict[str, Any]

REQUEST_ID = ("request-id", "req_011CSHoEeqs5C35K2UUqR7Fy")
LIMITS = (("anthropic-ratelimit-requests-remaining", "999"), REQUEST_ID)
SIGNATURE = "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pk"
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
STOP_REASONS = {
    "refuses": "refusal",
    "pauses": "pause_turn",
    "too-long": "max_tokens",
    "tools": "tool_use",
    "large-input": "tool_use",
}
CITATION = {
    "type": "web_search_result_location",
    "cited_text": "Paris is ..",
    "encrypted_index": "Eo8BCioI",
    "title": "Paris",
    "url": "https://example.org/paris",
}
VENDOR_BODY = (
    b'{ "model":"vendor","id":"msg_v","type":"message","role":"assistant","dup":1,"dup":2,\n'
    b'  "content":[{"type":"text","text":"caf\\u00e9 p=0.42 \xf0\x9f\x8d\x8b","vendor":1e5}],'
    b'"stop_reason":"end_turn","stop_sequence":null,"container":null,'
    b'"usage":{"input_tokens":1,"output_tokens":2.0,"cost":1E-7},"trailing":[1.0,-0.0]  }\n'
)
VENDOR_EVENTS = (
    b": hello\n\n",
    b'event: message_start\ndata: {"message":{"id":"msg_v","type":"message","role":"assistant",'
    b'"model":"vendor","content":[],"stop_reason":null,"usage":{"input_tokens":1,'
    b'"output_tokens":1,"cost":1E-7}},"type":"message_start"}\n\n',
    b'event: content_block_start\nid: 7\ndata: {"type" : "content_block_start","index":0,'
    b'"content_block":{"text":"","type":"text"}}\n\n',
    b'event: ping\ndata: {"type": "ping"}\n\n',
    b'event: content_block_delta\r\ndata: {"type":"content_block_delta","index":0,"delta":'
    b'{"text":"caf\\u00e9 p=0.42","type":"text_delta"},"x":1e5}\r\n\r\n',
    b'event: content_block_stop\ndata: {"index":0,"type":"content_block_stop" }\n\n',
    b'event: message_delta\ndata: { "delta":{"stop_reason":"end_turn"}, "usage":'
    b'{"output_tokens":2},"type": "message_delta", "dup":1.0,"dup":2 }\n\n',
    b'event: message_stop\ndata: {"type":"message_stop"   }\n\n',
)


class MessagesUpstream(FaultyUpstream):
    """Serves on a thread of its own while its context lasts; remembers the requests."""

    told: Sequence[bytes] = ()  # the parts of a stream for the model `told`

    def respond(self, request: Received) -> Response:
        if request.header("x-api-key") is None and request.header("authorization") is None:
            return _error(401, "x-api-key header is required")
        if request.header("anthropic-version") is None:
            return _error(400, "anthropic-version: header is required")
        if request.behaviour.startswith("status-"):
            status = int(request.behaviour.removeprefix("status-"))
            return _error(status, f"upstream says {status}")
        match request.method, request.path:
            case "POST", "/messages" if request.behaviour == "told":
                return Response(self.told, headers=EVENTS, framing="chunked")
            case "POST", "/messages":
                return _streamed(request) if request.is_stream else _whole(request)
            case "POST", "/messages/count_tokens":
                return _json({"input_tokens": 14})
            case _, "/messages/batches":
                return _json({"data": [], "has_more": False})
            case _, "/models":
                return _json({"data": [{"type": "model", "id": "claude"}], "has_more": False})
        return _error(404, "Not Found")


def _json(value: Json) -> Response:
    return Response([json.dumps(value).encode()], headers=(*JSON, *LIMITS))


def _error(status: int, message: str) -> Response:
    error = {"type": ERROR_TYPES.get(status, "api_error"), "message": message}
    envelope = {"type": "error", "error": error, "request_id": REQUEST_ID[1]}
    headers: Headers = (*JSON, *LIMITS)
    if status in (429, 529):
        headers = (*headers, ("retry-after", "7"))
    return Response([json.dumps(envelope).encode()], status, headers)


# Messages, whole and in events


def message_for(request: Received) -> Json:
    behaviour = request.behaviour
    return {
        "model": f"{request.json().get('model')}-20990101",
        "id": "msg_013Zva2CMHLNnjNjJJKqJ2EF",
        "type": "message",
        "role": "assistant",
        "content": list(_content(request)),
        "stop_reason": STOP_REASONS.get(behaviour, "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": 25, "cache_read_input_tokens": 3, "output_tokens": 15},
    }


def _content(request: Received) -> Iterator[Json]:
    behaviour, text = request.behaviour, request.question()
    match behaviour:
        case "thinks":
            thinking = "Let me think about it. 🤔"
            yield {"type": "thinking", "thinking": thinking, "signature": SIGNATURE}
        case "searches":
            yield _call("server_tool_use", "srvtoolu_1", "web_search", {"query": text})
            result = {"type": "web_search_result", "url": "https://example.org/paris"}
            yield {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": [result],
            }
            yield {"citations": [CITATION], "type": "text", "text": text}
            return
        case "tools":
            yield {"type": "text", "text": "Let me look that up."}
            for number, tool in enumerate(request.json().get("tools") or [{"name": "weather"}]):
                arguments = {"city": text, "nested": {"n": [number, None]}}
                yield _call("tool_use", f"toolu_{number}", tool["name"], arguments)
            return
        case "large-input":
            yield _call("tool_use", "toolu_1", "write", {"file": text, "content": "x" * 2**20})
            return
    words = behaviour.removeprefix("say ")
    yield {"type": "text", "text": words if words != behaviour else text}


def _call(type: str, id: str, name: str, input: Json) -> Json:
    return {"type": type, "id": id, "name": name, "input": input}


def events_for(message: Json) -> list[bytes]:
    """Return the events of a message as the API streams it."""
    opening = {**message, "content": [], "stop_reason": None}
    opening["usage"] = {**message["usage"], "output_tokens": 1}
    events: list[Json] = [{"type": "message_start", "message": opening}]
    for index, block in enumerate(message["content"]):
        start, deltas = _parts(block)
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "ping"}] if index == 0 else []
        events += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {key: message[key] for key in ("stop_reason", "stop_sequence")}
    usage = {"output_tokens": message["usage"]["output_tokens"]}
    events.append({"type": "message_delta", "delta": delta, "usage": usage})
    return [*map(event, events), event({"type": "message_stop"})]


def event(data: Json) -> bytes:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"event: {data['type']}\ndata: {text}\n\n".encode()


def _parts(block: Json) -> tuple[Json, list[Json]]:
    match block["type"]:
        case "tool_use" | "server_tool_use":
            text = json.dumps(block["input"])
            half = len(text) // 2
            pieces = ["", text[:half], text[half:]]
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            return {**block, "input": {}}, deltas
        case "thinking":
            thinking = block["thinking"]
            return {**block, "thinking": "", "signature": ""}, [
                {"type": "thinking_delta", "thinking": thinking[:9]},
                {"type": "thinking_delta", "thinking": thinking[9:]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case "text":
            return _text_parts(block)
    return block, []


def _text_parts(block: Json) -> tuple[Json, list[Json]]:
    citations = block.get("citations", [])
    start = {**block, "text": ""} | ({"citations": []} if citations else {})
    cited = [{"type": "citations_delta", "citation": citation} for citation in citations]
    words = block["text"].split(" ")
    texts = [words[0], *(f" {word}" for word in words[1:])]
    return start, [*cited, *({"type": "text_delta", "text": text} for text in texts)]


# The behaviours


def _whole(request: Received) -> Response:
    if request.behaviour == "vendor":
        return Response([VENDOR_BODY], headers=(*JSON, *LIMITS))
    body = json.dumps(message_for(request), ensure_ascii=False).encode()
    half = len(body) // 2
    if request.behaviour == "cut":
        return Response([body[:half], Cut(), body[half:]])
    if request.behaviour == "split":
        pieces = [body[i : i + 1] for i in range(len(body))]
        return Response(pieces, headers=(*JSON, *LIMITS), framing="chunked")
    return Response([body], headers=(*JSON, *LIMITS))


def _streamed(request: Received) -> Response:
    events = events_for(message_for(request))
    steps: list[Step] = list(events)
    match request.behaviour:
        case "vendor":
            steps = list(VENDOR_EVENTS)
        case "gated":
            steps = [*events[:4], Wait(), *events[4:]]
        case "split":
            joined = b"".join(events)
            steps = [joined[i : i + 1] for i in range(len(joined))]
        case "error-event":
            error = {"type": "overloaded_error", "message": "Overloaded"}
            steps = [*events[:4], event({"type": "error", "error": error})]
        case "cut":
            steps = [*events[:4], events[4][:20], Cut()]
        case "no-finish":
            steps = list(events[:-2])
    return Response(steps, headers=(*EVENTS, *LIMITS), framing="chunked")
