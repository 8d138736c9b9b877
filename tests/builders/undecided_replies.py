"""Replies of an upstream that a policy has to decide on, in every form that a client might read.

Each is an answer that contains SECRET, in its text or in a call, in some disguise: another status,
an encoding, an `error` beside it, an event that is written unusually, a call of a new type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.servers.faulty_upstream import ENCODERS, EVENTS, JSON, Response
from tests.servers.undecided import ANSWERS, SECRET, Json

Case = tuple[str, Response]
STATUSES = (
    200,
    201,
    202,
    203,
    206,
    207,
    208,
    226,
    250,
    299,
    300,
    305,
    400,
    404,
    418,
    422,
    500,
    503,
)
FALSE_ERRORS: tuple[Any, ...] = (None, False, 0, "", {}, [])
TRUE_ERRORS: tuple[Any, ...] = ("x", 1, True, {"message": "x"}, ["x"])
DEEP = b"[" * 3_000 + b"]" * 3_000
LONG = b"1" * 5_000
_ARGUMENTS = json.dumps({"word": SECRET})
_FUNCTION = {"name": "tell", "arguments": _ARGUMENTS}


# Answers that call a tool


def chat_calling(message: Json) -> Json:
    choice = {"index": 0, "message": {"role": "assistant", "content": "hm", **message}}
    return {**ANSWERS["chat"], "choices": [{**choice, "finish_reason": "tool_calls"}]}


def chat_calls() -> Iterator[tuple[str, Json]]:
    """Yield members of a chat message that contain a tool call, each with its name."""
    call: Json = {"id": "c", "type": "function", "function": _FUNCTION}
    custom = {"name": "tell", "input": SECRET}
    yield "function", {"tool_calls": [call]}
    yield "custom", {"tool_calls": [{"id": "c", "type": "custom", "custom": custom}]}
    yield "legacy", {"function_call": _FUNCTION}
    yield "legacy text", {"function_call": _ARGUMENTS}
    yield "two kinds", {"tool_calls": [{**call, "custom": {"name": "harmless", "input": ""}}]}
    for kind in ("mcp", "tool_search", "computer", "", None, 7, {"a": 1}):
        yield f"type {kind!r}", {"tool_calls": [{"id": "c", "type": kind, str(kind): _FUNCTION}]}
    yield "bare", {"tool_calls": [{"id": "c", **_FUNCTION}]}
    yield "text", {"tool_calls": [_ARGUMENTS]}
    yield "list", {"tool_calls": [[call]]}
    yield "object", {"tool_calls": call}
    yield "object of calls", {"tool_calls": {"0": call}}
    yield "one text", {"tool_calls": _ARGUMENTS}
    yield "function of text", {"tool_calls": [{**call, "function": _ARGUMENTS}]}
    yield "function of list", {"tool_calls": [{**call, "function": [_FUNCTION]}]}
    yield (
        "arguments of object",
        {"tool_calls": [{**call, "function": {"name": "tell", "arguments": {"w": SECRET}}}]},
    )
    yield "another case", {"Tool_Calls": [call]}
    yield "camel case", {"toolCalls": [call]}
    yield "singular", {"tool_call": call}
    yield (
        "in the content",
        {"content": [{"type": "tool_use", "name": "tell", "input": {"w": SECRET}}]},
    )
    yield "call in the content", {"content": [{"type": "function_call", **_FUNCTION}]}


def hidden_calls(kind: str) -> Iterator[tuple[str, str]]:
    """Yield choices whose calls some JSON readers find and others do not.

    `kind` is `message` or `delta`. Members occur twice, differ by their case, or are at a place
    where the format has none. Each text is the members of an object that also has `id` and `model`.
    """
    call = json.dumps([{"index": 0, "id": "c", "type": "function", "function": _FUNCTION}])
    calls, plain = f'{{"tool_calls":{call}}}', '{"role":"assistant","content":"hm"}'

    def choices(text: str) -> str:
        return f'[{{"index":0,{text},"finish_reason":"stop"}}]'

    bad, harmless = choices(f'"{kind}":{calls}'), choices(f'"{kind}":{plain}')
    yield "choices twice", f'"choices":{bad},"choices":{harmless}'
    yield "choices twice, the call last", f'"choices":{harmless},"choices":{bad}'
    yield "an escaped name twice", f'"choices":{bad},"choice\\u0073":{harmless}'
    for name in ("Choices", "CHOICES", "choice\u017f"):  # the last letter is read as an s by some
        yield f"{name} behind choices", f'"choices":{harmless},"{name}":{bad}'
        yield f"{name} before choices", f'"{name}":{bad},"choices":{harmless}'
        yield f"{name} beside none", f'"choices":[],"{name}":{bad}'
    for text in (
        f'"{kind}":{calls},"{kind}":{plain}',
        f'"{kind.title()}":{calls},"{kind}":{plain}',
        f'"{kind}":{plain},"tool_calls":{call}',
        f'"{kind}":{{"content":"hm","tool_calls":{call},"tool_calls":null}}',
        f'"{kind}":{{"content":"hm","tool_calls":{call},"tool_calls":[]}}',
        f'"{kind}":{{"content":"hm","Tool_Calls":{call}}}',
    ):
        yield text[:60], f'"choices":{choices(text)}'
    for beside in ("tool_calls", "x"):
        text = call if beside == "tool_calls" else f'{{"y":[{calls}]}}'
        yield f"{beside} beside choices", f'"choices":{harmless},"{beside}":{text}'


def hidden_streams() -> Iterator[Case]:
    """Yield streams of chat whose second event has a call that only some readers find."""
    opening, _ = chat_stream({"role": "assistant", "content": ""})
    head = json.dumps({"id": "c", "object": "chat.completion.chunk", "model": "m"})[:-1]
    for name, members in hidden_calls("delta"):
        yield name, stream(written([(None, opening), (None, f"{head},{members}}}".encode())]))


def hidden_answers() -> Iterator[Case]:
    """Yield whole answers of chat with such calls."""
    head = json.dumps({"id": "c", "object": "chat.completion", "model": "m"})[:-1]
    for name, members in hidden_calls("message"):
        yield name, Response([f"{head},{members}}}".encode()], headers=JSON)


def responses_calls() -> Iterator[tuple[str, Any]]:
    """Yield items of Responses that call something, or may do so since nobody knows their type."""
    for kind in (
        *("function_call", "custom_tool_call", "mcp_call", "computer_call", "shell_call"),
        *("mcp_approval_request", "program", "tool_use", "tool_call_v2", "action", "", None, 7),
    ):
        item = {"id": "i", "call_id": "c", "type": kind, "name": "tell"}
        yield f"type {kind!r}", {**item, "arguments": _ARGUMENTS, "input": SECRET}
    yield "no type", {"id": "i", "name": "tell", "arguments": _ARGUMENTS}
    yield "text", _ARGUMENTS
    yield "list", [{"type": "function_call", **_FUNCTION}]


def messages_calls() -> Iterator[tuple[str, Any]]:
    """Yield blocks of Messages that call something, or may do so since nobody knows their type."""
    for kind in (
        *("tool_use", "server_tool_use", "mcp_tool_use", "tool_use_v2", "function_call"),
        *("computer", "", None, 7),
    ):
        block = {"id": "t", "type": kind, "name": "tell"}
        yield f"type {kind!r}", {**block, "input": {"word": SECRET}}
    yield "no type", {"id": "t", "name": "tell", "input": {"word": SECRET}}
    yield "text", _ARGUMENTS
    yield "list", [{"type": "tool_use", "name": "tell", "input": {"word": SECRET}}]


def calling(surface: str) -> list[tuple[str, Json]]:
    """Return whole answers whose secret is in a call."""
    if surface == "chat":
        return [(name, chat_calling(message)) for name, message in chat_calls()]
    answer = ANSWERS[surface]
    if surface == "responses":
        return [(name, {**answer, "output": [item]}) for name, item in responses_calls()]
    if surface == "messages":
        return [(name, {**answer, "content": [block]}) for name, block in messages_calls()]
    return []


# Whole replies


def whole(surface: str, answer: Json) -> Iterator[Case]:
    """Yield one answer, as JSON, in all variants of status, header fields, errors and body."""
    body = json.dumps(answer).encode()
    for status in STATUSES:
        yield f"status {status}", Response([body], status=status, headers=JSON)
        text = (("Content-Type", "text/plain"),)
        if status >= 300:
            yield f"status {status} as text", Response([body], status=status, headers=text)
    for name, encode in ENCODERS.items():
        encoded = (*JSON, ("Content-Encoding", name))
        yield name, Response([encode(body)], headers=encoded)
        yield f"not {name}", Response([body], headers=encoded)
    for encoding in ("", "IDENTITY", "identity, identity", "gzip, gzip", "compress", "x"):
        yield (
            f"encoding {encoding!r}",
            Response([body], headers=(*JSON, ("Content-Encoding", encoding))),
        )
    for kind in (
        *("application/JSON", "text/json", "application/problem+json", "application/octet-stream"),
        *("text/plain", "text/html", "text/event-stream", "TEXT/EVENT-STREAM; a=b", "", "x"),
        *("application/json; charset=utf-16", "multipart/form-data; boundary=x"),
    ):
        yield f"content type {kind!r}", Response([body], headers=(("Content-Type", kind),))
    yield "no content type", Response([body], headers=())
    for error in (*FALSE_ERRORS, *TRUE_ERRORS):
        for failed in ({**answer, "error": error}, {"error": error, **answer}):
            yield f"error {error!r}", Response([json.dumps(failed).encode()])
    yield from odd_bodies(body)


def odd_bodies(body: bytes) -> Iterator[Case]:
    """Yield the same answer in forms that some parser might refuse, each with its name."""
    for name, odd in {
        "a byte order mark": b"\xef\xbb\xbf" + body,
        "blanks": b"\n \t" + body + b"\r\n ",
        "UTF-16": body.decode().encode("utf-16"),
        "UTF-8 that is none": body[:-1] + b',"x":"\xff"}',
        "NaN": body[:-1] + b',"x":NaN}',
        "deep": body[:-1] + b',"x":%b}' % DEEP,
        "a long number": body[:-1] + b',"x":%b}' % LONG,
        "half a surrogate": body[:-1] + b',"x":"\\ud800"}',
        "a member twice": body[:-1] + b",%b" % body[1:],
        "two objects": body + body,
        "lines": body + b"\n{}",
        "a list": b"[%b]" % body,
        "a comma too many": body[:-1] + b",}",
        "cut": body[:-1],
        "escaped names": body.replace(b'"o', b'"\\u006f').replace(b'"c', b'"\\u0063'),
        "an event": b"data: %b\n\n" % body,
    }.items():
        yield name, Response([odd])


# Streams


def chat_stream(delta: Json, **more: Any) -> list[bytes]:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = [{"index": 0, "delta": delta, "finish_reason": None}]
    finish = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    chunks = [{**head, "choices": choices, **more}, {**head, "choices": finish}]
    return [json.dumps(each).encode() for each in chunks]


def events_of(surface: str, calls: bool) -> list[tuple[str | None, bytes]]:
    """Return the events of an answer, each with its name; the second one contains the secret."""
    if surface == "chat":
        call = {"index": 0, "id": "c", "type": "function", "function": _FUNCTION}
        chunks = chat_stream({"tool_calls": [call]} if calls else {"content": SECRET})
        opening = chat_stream({"role": "assistant", "content": ""})[0]
        return [(None, opening), *((None, each) for each in chunks), (None, b"[DONE]")]
    if surface == "completions":
        choice = {"index": 0, "text": SECRET, "finish_reason": None, "logprobs": None}
        head = {**ANSWERS["completions"], "choices": [{**choice, "text": ""}]}
        parts = [head, {**head, "choices": [choice]}]
        parts.append({**head, "choices": [{**choice, "text": "", "finish_reason": "stop"}]})
        return [*((None, json.dumps(each).encode()) for each in parts), (None, b"[DONE]")]
    events = responses_events(calls) if surface == "responses" else messages_events(calls)
    return [(event["type"], json.dumps(event).encode()) for event in events]


def responses_events(calls: bool) -> list[Json]:
    item: Json = ANSWERS["responses"]["output"][0]
    if calls:
        item = {"id": "i", "call_id": "c", "type": "function_call", **_FUNCTION}
    answer = {**ANSWERS["responses"], "output": [item]}
    begun = {**answer, "status": "in_progress", "output": []}
    events = [
        ("response.created", {"response": begun}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": answer}),
    ]
    return [{"type": kind, "sequence_number": n, **each} for n, (kind, each) in enumerate(events)]


def messages_events(calls: bool) -> list[Json]:
    block: Json = {"type": "text", "text": SECRET}
    if calls:
        block = {"type": "tool_use", "id": "t", "name": "tell", "input": {"word": SECRET}}
    begun = {**ANSWERS["messages"], "content": [], "stop_reason": None}
    return [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 1},
        },
        {"type": "message_stop"},
    ]


def written(events: list[tuple[str | None, bytes]]) -> list[bytes]:
    return [
        (b"event: %b\n" % name.encode() if name else b"") + b"data: %b\n\n" % data
        for name, data in events
    ]


def stream(steps: list[bytes], **more: Any) -> Response:
    return Response(steps, headers=EVENTS, framing="chunked", **more)


def event_forms(raw: bytes, name: str | None, data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the ways to write the event that contains the secret."""
    inner = data[:-1]
    yield "as it is", raw
    for end in (b"\r\n", b"\r"):
        yield f"line ends {end!r}", raw.replace(b"\n", end)
    yield "no blank", raw.replace(b"data: ", b"data:").replace(b"event: ", b"event:")
    yield "a comment", b": ping\n" + raw
    yield "an id", b"id: 1\nretry: 5\n" + raw
    yield "a mark", b"\xef\xbb\xbf" + raw
    yield "two lines", raw.replace(b": {", b": \ndata: {", 1) if name is None else raw
    yield "lines of data", b"data: {\ndata: " + data[1:] + b"\n\n"
    yield "data first", b"data: %b\n%b\n" % (data, b"event: %b\n" % name.encode() if name else b"")
    for other in ("error", "ping", "message", "x", "response.created", "message_start"):
        yield f"named {other}", b"event: %b\ndata: %b\n\n" % (other.encode(), data)
    yield "no name", b"data: %b\n\n" % data
    for extra in (b'"x":%b' % DEEP, b'"x":%b' % LONG, b'"x":NaN', b'"x":"\\ud800"', b'"x":"\xff"'):
        yield f"with {extra[:9]!r}", b"data: %b,%b}\n\n" % (inner, extra)
    for error in (*FALSE_ERRORS, *TRUE_ERRORS):
        member = b'"error":%b' % json.dumps(error).encode()
        yield f"error {error!r}", b"data: %b,%b}\n\n" % (inner, member)
        yield f"error {error!r} first", b"data: {%b,%b\n\n" % (member, data[1:])
    if name is not None:
        kind = json.dumps({"type": name}).encode()[1:-1]
        untyped = data.replace(kind + b", ", b"", 1)
        yield "type in the name alone", b"event: %b\ndata: %b\n\n" % (name.encode(), untyped)
        yield "no type at all", b"data: %b\n\n" % untyped
        letter = b"\\u%04x" % name.encode()[-1]
        escaped = data.replace(name.encode(), name.encode()[:-1] + letter, 1)
        yield "an escaped type", b"data: %b\n\n" % escaped
        for other in ("ping", "response.queued", "x.y", "response.x", "", "message_stop"):
            changed = data.replace(kind, json.dumps({"type": other}).encode()[1:-1], 1)
            yield f"type {other!r}", b"data: %b\n\n" % changed
            yield f"{name} of type {other!r}", b"event: %b\ndata: %b\n\n" % (name.encode(), changed)


def streams(surface: str, calls: bool) -> Iterator[Case]:
    """Yield one answer, streamed, with the event of the secret in all forms and places."""
    events = events_of(surface, calls)
    steps, (name, data) = written(events), events[1]
    before, after = [b"".join(steps[:1])], [b"".join(steps[2:])]
    for form, raw in event_forms(steps[1], name, data):
        yield form, stream([*before, raw, *after])
    for status in (201, 203, 206, 299, 400, 500):
        yield f"status {status}", stream(steps, status=status)
    yield "after the end", stream([*before, *after, steps[1]])
    yield "before the beginning", stream([steps[1], *before, *after])
    yield "twice", stream([*before, steps[1], steps[1], *after])
    yield "nothing else", stream([steps[1]])
    yield "no end", stream([*before, steps[1]])
    yield "open at the end", stream([*before, steps[1][:-1]])
    yield "a line at the end", stream([*before, *after, steps[1][:-2]])
    yield "byte by byte", stream([bytes([byte]) for byte in b"".join(steps)])
    yield "behind blanks", stream([b"\n\n\r\n" * 50, *steps])
    yield (
        "behind an error",
        stream([*before, b'event: error\ndata: {"error":{"message":"x"}}\n\n', steps[1], *after]),
    )


def chat_call_streams() -> Iterator[Case]:
    for name, message in chat_calls():
        steps = written([(None, each) for each in chat_stream(message)])
        yield name, stream([*steps, b"data: [DONE]\n\n"])
    odd: dict[str, Json] = {
        "delta of list": {"delta": [{"tool_calls": [{"function": _FUNCTION}]}]},
        "message in place of delta": {"message": {"tool_calls": [{"function": _FUNCTION}]}},
        "beside the delta": {"delta": {}, "tool_calls": [{"function": _FUNCTION}]},
    }
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    for name, choice in odd.items():
        chunk = json.dumps({**head, "choices": [{"index": 0, **choice}]}).encode()
        yield name, stream([b"data: %b\n\n" % chunk, *written([(None, chat_stream({})[1])])])
    for name, choices in {
        "object": {"0": odd["beside the delta"]},
        "nested": [[odd["beside the delta"]]],
    }.items():
        chunk = json.dumps({**head, "choices": choices}).encode()
        yield (
            f"choices {name}",
            stream([b"data: %b\n\n" % chunk, *written([(None, chat_stream({})[1])])]),
        )


def responses_call_streams() -> Iterator[Case]:
    created, _, completed = responses_events(calls=False)
    harmless = json.loads(json.dumps(completed).replace(SECRET, "hm"))
    for name, item in responses_calls():
        for kind in ("added", "done"):
            event = {"type": f"response.output_item.{kind}", "output_index": 0, "item": item}
            yield f"{name} {kind}, and not in the end", _streamed(created, event, harmless)
            whole = {**harmless, "response": {**harmless["response"], "output": [item]}}
            yield f"{name} {kind}", _streamed(created, event, whole)
        whole = {**harmless, "response": {**harmless["response"], "output": [item]}}
        yield f"{name} at the end alone", _streamed(created, whole)
        begun = {**created, "response": {**created["response"], "output": [item]}}
        yield f"{name} at the beginning", _streamed(begun, harmless)
        yield f"{name} in a failure", _streamed(created, {**whole, "type": "response.failed"})
        yield f"{name} after the end", _streamed(created, harmless, {"type": "x", "item": item})
    done = {
        "type": "response.function_call_arguments.done",
        "output_index": 0,
        "arguments": _ARGUMENTS,
    }
    yield "arguments that nobody else has", _streamed(created, done, harmless)
    call = {"id": "i", "call_id": "c", "type": "function_call", **_FUNCTION}
    other = {**call, "name": "harmless", "arguments": "{}"}
    added = {"type": "response.output_item.done", "output_index": 0, "item": call}
    whole = {**harmless, "response": {**harmless["response"], "output": [other]}}
    yield "another call in the end", _streamed(created, added, whole)


def messages_call_streams() -> Iterator[Case]:
    begun, start, stop, delta, end = messages_events(calls=False)
    hm = json.loads(json.dumps(start).replace(SECRET, "hm"))
    for name, block in messages_calls():
        yield name, _streamed(begun, {**start, "content_block": block}, stop, delta, end)
        opening = {**begun, "message": {**begun["message"], "content": [block]}}
        yield f"{name} at the beginning", _streamed(opening, delta, end)
        yield (
            f"{name} in the end",
            _streamed(begun, hm, stop, {**delta, "delta": {"content": [block]}}, delta, end),
        )
        yield (
            f"{name} written over",
            _streamed(begun, {**start, "content_block": block}, hm, stop, delta, end),
        )
        yield (
            f"{name} over a text",
            _streamed(begun, hm, {**start, "content_block": block}, stop, delta, end),
        )
        later = {**begun, "message": {**begun["message"], "content": [block]}}
        yield f"{name} in a second message", _streamed(begun, hm, stop, later, delta, end)
        part = {"type": "content_block_delta", "index": 0, "delta": block}
        yield f"{name} as a delta", _streamed(begun, hm, part, stop, delta, end)
        if not isinstance(block, str):  # a plain text in an event of an unknown type is no call
            yield (
                f"{name} in an event of its own",
                _streamed(begun, hm, {"type": "x", "block": block}, stop, delta, end),
            )


def _streamed(*events: Json) -> Response:
    return stream(written([(event["type"], json.dumps(event).encode()) for event in events]))


CALL_STREAMS: dict[str, Callable[[], Iterator[Case]]] = {
    "chat": chat_call_streams,
    "responses": responses_call_streams,
    "messages": messages_call_streams,
}
