"""An upstream for `/v1/responses` and `/v1/completions`: a real server on loopback with a memory.

    with ResponsesUpstream() as upstream:
        OpenAI(base_url=upstream.base_url).responses.create(model="ok", input="p=0.9")

The model's name chooses what it does, whole and streamed:

    ok                  the last text of the input is the answer
    say TEXT            the answer is TEXT
    tools               a text, then a call of `get_weather` with that text as its argument
    many                reasoning, a text, a custom call, a shell call and an MCP call
    mcp                 asks to approve a call of `send_email` on an MCP server, then makes it
    refusal             the text as a refusal
    incomplete          the text, cut by `max_output_tokens`
    failed              a failure, after half an answer
    vendor              numbers, escapes and members that no SDK knows
    bare-end            a stream whose last event has no output
    cut, no-end         the connection breaks off in the middle; it ends before its last event
    error-event         an error in the middle of the stream
    split               one byte at a time
    status-NNN          that status

A response can be fetched, streamed again, cancelled and deleted by its id; one made in the
background is there at the second look.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from tests.running.served import ServedUpstream, body_of

Json = dict[str, Any]
Send = Callable[[Json], Any]

VENDOR = (
    b'{ "id":"resp_vendor","object":"response","created_at":1.0,"status":"completed","dup":1,\n'
    b'  "dup":2,"model":"vendor","output":[{"type":"message","id":"m","role":"assistant",'
    b'"status":"completed","content":[{"type":"output_text","annotations":[],'
    b'"text":"caf\\u00e9 p=0.42 \xf0\x9f\x8d\x8b","cost":1e5}]}],"usage":{"cost":1E-7},'
    b'"trailing":[1.0,1e5,10000000000000000000000.0]  }\n'
)


@dataclass
class Received:
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Json:
        value: Json = json.loads(self.body or b"{}")
        return value


@dataclass
class ResponsesUpstream(ServedUpstream):
    """Stays up inside its context; `received` are the requests since `forget()`."""

    received: list[Received] = field(default_factory=list)
    stored: dict[str, Json] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def last(self) -> Received:
        return self.received[-1]

    def forget(self) -> None:
        self.received.clear()

    async def _app(self, scope: Json, receive: Callable[[], Any], send: Send) -> None:
        body = await body_of(receive)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        query = scope["query_string"].decode()
        path = scope["path"].removeprefix("/v1")
        request = Received(scope["method"], path, query, headers, body)
        self.received.append(request)
        if path == "/completions":
            await _send_completion(request, send)
        elif request.method == "POST" and path == "/responses":
            await self._create(request, send)
        else:
            await self._by_id(request, send)

    async def _create(self, request: Received, send: Send) -> None:
        request_body = request.json()
        model = request_body.get("model", "")
        if model.startswith("status-"):
            error = {"message": "no", "type": "t", "param": None, "code": "c", "vendor": 1.0}
            await _send(send, json.dumps({"error": error}).encode(), int(model[7:]))
            return
        response = response_to(request_body, f"resp_{next(self._ids)}")
        if model == "mcp":
            response["output"] = self._on_mcp_server(request_body)
        self.stored[response["id"]] = response
        if request_body.get("stream"):
            await _send_stream(send, model, response)
        elif request_body.get("background"):
            await _send(send, json.dumps(_pending(response, "queued")).encode())
        else:
            body = VENDOR if model == "vendor" else json.dumps(response, indent=1).encode()
            await _send(send, body)

    def _on_mcp_server(self, body: Json) -> list[Json]:
        """Return the output items of an MCP tool: a request for approval, or its outcome."""
        input = body.get("input")
        items = (
            [item for item in input if isinstance(item, dict)] if isinstance(input, list) else []
        )
        answers = [item for item in items if item.get("type") == "mcp_approval_response"]
        if not answers:
            return [LISTED_TOOLS, approval_request(_text_of(input), f"mcpr_{next(self._ids)}")]
        earlier = self.stored.get(body.get("previous_response_id") or "", {}).get("output", [])
        ids = [answer["approval_request_id"] for answer in answers]
        requests = [item for item in (*items, *earlier) if item.get("id") in ids]
        if len(requests) != len(answers) or not all(answer["approve"] for answer in answers):
            return [message("It was not approved. p=0.9")]
        return [*(_run(request) for request in requests), message("It is sent. p=0.9")]

    async def _by_id(self, request: Received, send: Send) -> None:
        id, _, rest = request.path.removeprefix("/responses/").partition("/")
        response = self.stored.get(id)
        if response is None:
            await _send(send, b'{"error":{"message":"not found","code":"gone"}}', 404)
        elif request.method == "DELETE":
            await _send(send, b'{"id":"%b","deleted":true}' % id.encode())
        elif rest == "input_items":
            await _send(send, b'{"object":"list","data":[]}')
        elif rest == "cancel":
            await _send(send, json.dumps(_cancelled(response)).encode())
        elif parse_qs(request.query).get("stream") == ["true"]:
            await _send_stream(send, "ok", response)
        else:
            self.looks[id] = self.looks.get(id, 0) + 1
            is_there = self.looks[id] > 1 or not response["background"]
            visible = response if is_there else _pending(response, "in_progress")
            await _send(send, json.dumps(visible, indent=1).encode())


def _pending(response: Json, status: str) -> Json:
    return {**response, "status": status, "output": [], "usage": None}


def _cancelled(response: Json) -> Json:
    return response if response["model"] == "ok-2099" else {**response, "status": "cancelled"}


def response_to(request: Json, id: str) -> Json:
    model = request.get("model", "")
    response: Json = {
        "id": id,
        "object": "response",
        "created_at": 1_767_225_600,
        "status": "completed",
        "background": bool(request.get("background")),
        "error": None,
        "incomplete_details": None,
        "instructions": request.get("instructions"),
        "metadata": {},
        "model": f"{model}-2099",
        "output": output_of(model, _text_of(request.get("input"))),
        "parallel_tool_calls": True,
        "previous_response_id": request.get("previous_response_id"),
        "temperature": 1.0,
        "text": request.get("text") or {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": request.get("tools") or [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": 3,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 4,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 7,
        },
    }
    if model == "incomplete":
        details = {"reason": "max_output_tokens"}
        response |= {"status": "incomplete", "incomplete_details": details}
    if model == "failed":
        response |= {"status": "failed", "error": {"code": "server_error", "message": "oops"}}
    return response


def _text_of(input: Any) -> str:
    """Return the last text in the input."""
    last = input[-1] if isinstance(input, list) and input else input
    if isinstance(last, dict):
        last = last.get("content", last.get("output"))
    if isinstance(last, list):
        last = next((part["text"] for part in last if "text" in part), "")
    return last if isinstance(last, str) else ""


def message(text: str, key: str = "text") -> Json:
    part: Json = {"type": "refusal", "refusal": text}
    if key == "text":
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }


def function_call(text: str, name: str = "get_weather") -> Json:
    return {
        "id": "fc_1",
        "type": "function_call",
        "status": "completed",
        "call_id": "call_1",
        "name": name,
        "arguments": json.dumps({"city": text}),
    }


LISTED_TOOLS: Json = {
    "id": "mcpl_1",
    "type": "mcp_list_tools",
    "server_label": "mail",
    "tools": [{"name": "send_email", "input_schema": {"type": "object"}, "annotations": None}],
}


def approval_request(text: str, id: str = "mcpr_1") -> Json:
    """Return an approval request, as OpenAI's documentation of remote MCP servers has it."""
    return {
        "id": id,
        "type": "mcp_approval_request",
        "arguments": json.dumps({"to": "ann", "body": text}),
        "name": "send_email",
        "server_label": "mail",
    }


def _run(request: Json) -> Json:
    """Return the call that was approved, as made by the upstream."""
    made = {"type": "mcp_call", "approval_request_id": request["id"], "error": None}
    return {**request, **made, "id": "mcp_1", "output": "sent"}


def output_of(model: str, text: str) -> list[Json]:
    if model.startswith("say "):
        return [message(model.removeprefix("say "))]
    if model == "tools":
        return [message("Let me look. "), function_call(text)]
    if model == "refusal":
        return [message(text, "refusal")]
    if model == "many":
        summary = [{"type": "summary_text", "text": "I think."}]
        action = {"commands": ["ls"]}
        return [
            {"id": "rs_1", "type": "reasoning", "summary": summary},
            message(text),
            _call("custom_tool_call", name="run_sql", input="select 1"),
            _call("shell_call", action=action, status="completed"),
            _call("mcp_call", name="send_email", server_label="mail", arguments='{"to":"a"}'),
        ]
    return [message(text)]


def _call(type: str, **facts: Any) -> Json:
    return {"id": f"{type}_1", "type": type, "call_id": f"call_{type}", **facts}


# Streams


def events_of(response: Json) -> list[bytes]:
    """Return the events of the response as the official API streams it."""
    begun = _pending(response, "in_progress")
    events: list[Json] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(response["output"]):
        events += _item_events(index, item)
    ending = "completed" if response["status"] == "completed" else response["status"]
    events.append({"type": f"response.{ending}", "response": response})
    return [_event({**event, "sequence_number": i}) for i, event in enumerate(events)]


def _event(event: Json) -> bytes:
    data = json.dumps(event, ensure_ascii=False).encode()
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), data)


def _item_events(index: int, item: Json) -> list[Json]:
    at = {"output_index": index, "item_id": item["id"]}
    opened = {**item}
    inner: list[Json] = []
    if item["type"] == "message":
        opened |= {"content": [], "status": "in_progress"}
        for number, part in enumerate(item["content"]):
            inner += _part_events({**at, "content_index": number}, part)
    elif item["type"] == "function_call":
        opened |= {"arguments": "", "status": "in_progress"}
        name = "response.function_call_arguments"
        inner = [{"type": f"{name}.delta", **at, "delta": h} for h in _halves(item["arguments"])]
        inner.append({"type": f"{name}.done", **at, "arguments": item["arguments"]})
    return [
        {"type": "response.output_item.added", "output_index": index, "item": opened},
        *inner,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _part_events(at: Json, part: Json) -> list[Json]:
    key = "text" if part["type"] == "output_text" else "refusal"
    name = "response.output_text" if key == "text" else "response.refusal"
    more = {"logprobs": [], "obfuscation": "x"} if key == "text" else {}
    deltas = [{"type": f"{name}.delta", **at, "delta": h, **more} for h in _halves(part[key])]
    return [
        {"type": "response.content_part.added", **at, "part": {**part, key: ""}},
        *deltas,
        {"type": f"{name}.done", **at, key: part[key]},
        {"type": "response.content_part.done", **at, "part": part},
    ]


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [half for half in (text[:middle], text[middle:]) if half]


async def _send_stream(send: Send, model: str, response: Json) -> None:
    await _send_parts(send, _parts(model, response))


async def _parts(model: str, response: Json) -> AsyncIterator[bytes]:
    events = events_of(response)
    if model == "vendor":
        data = b'{"type" : "response.completed","n":1e5,"response":%b,"x":1.0 }' % VENDOR.strip()
        events[-1] = b"event: response.completed\nid: 7\ndata: %b\n\n" % data.replace(b"\n", b"")
    if model == "bare-end":
        events[-1] = events[-1].replace(
            json.dumps(response["output"], ensure_ascii=False).encode(), b"[]"
        )
    if model == "no-end":
        events = events[:-1]
    if model == "error-event":
        events = [*events[:4], b'data: {"error":{"message":"oops","code":"boom","v":1.0}}\n\n']
    whole = b"".join(events)
    if model == "split":
        for i in range(len(whole)):
            yield whole[i : i + 1]
        return
    if model == "cut":
        yield b"".join(events[:4])
        raise ConnectionResetError
    for event in events:
        yield event


async def _send_parts(send: Send, parts: AsyncIterator[bytes]) -> None:
    fields = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-request-id", b"req_1")]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    async for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _send(send: Send, body: bytes, status: int = 200) -> None:
    fields = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", b"req_1"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


# Legacy completions


def text_completion(request: Json) -> Json:
    prompt = request.get("prompt")
    prompts = [prompt] if isinstance(prompt, str) else prompt or []
    model = str(request.get("model"))
    if model.startswith("say "):
        prompts = [model.removeprefix("say ")]
    texts = [str(text) for text in prompts for _ in range(request.get("n") or 1)]
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1_767_225_600,
        "model": f"{request.get('model')}-2099",
        "choices": [
            {"text": f" {text}", "index": i, "logprobs": None, "finish_reason": "stop"}
            for i, text in enumerate(texts)
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    }


def text_events(request: Json) -> list[bytes]:
    whole = text_completion(request)
    head = {key: whole[key] for key in ("id", "object", "created", "model")}
    chunks: list[Json] = []
    for choice in whole["choices"]:
        for half in _halves(choice["text"]):
            part = {**choice, "text": half, "finish_reason": None}
            chunks.append({**head, "choices": [part]})
        chunks.append({**head, "choices": [{**choice, "text": ""}]})
    if (request.get("stream_options") or {}).get("include_usage"):
        chunks.append({**head, "choices": [], "usage": whole["usage"]})
    written = [json.dumps(chunk, ensure_ascii=False).encode() for chunk in chunks]
    return [b"data: %b\n\n" % data for data in (*written, b"[DONE]")]


async def _send_completion(request: Received, send: Send) -> None:
    body = request.json()
    if not body.get("stream"):
        await _send(send, json.dumps(text_completion(body), indent=1).encode())
        return

    async def parts() -> AsyncIterator[bytes]:
        for event in text_events(body):
            yield event

    await _send_parts(send, parts())
