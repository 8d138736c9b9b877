"""What the equality suite compares, part three: errors, and everything that is not chat."""

from __future__ import annotations

import gzip
from dataclasses import replace

from tests.equality.equality_cases import (
    AUTHORIZATION,
    JSON,
    LIMITS,
    QUESTION,
    TEXT,
    Case,
    chat_question,
    post,
    replied,
)
from tests.equality.equality_streams import DONE, streamed
from tests.equality.recording import Field, Reply, Sent

HTML: Field = (b"Content-Type", b"text/html")
ERROR = (
    b'{\n "error": {"message":"no \\u00e9", "type":"t","param":null,"code":"c","vendor":1.0},\n'
    b' "request_id" : "r"\n}\n'
)
ERRORS = {
    "json": (JSON, ERROR),
    "html": (HTML, b"<html><h1>sorry</h1>\r\n"),
    "empty": (None, b""),
}
STATUSES = (400, 401, 402, 403, 404, 405, 408, 409, 410, 413, 415, 418, 422, 424, 429, 451)
FAILURES = (500, 501, 502, 503, 504, 520, 529)
RETRY: tuple[Field, ...] = (
    (b"Retry-After", b"7"),
    (b"retry-after-ms", b"6500"),
    (b"x-should-retry", b"true"),
    (b"x-ratelimit-reset-tokens", b"1m2s"),
    (b"WWW-Authenticate", b'Bearer realm="x", Basic realm="y"'),
)


def _errors() -> list[Case]:
    cases = []
    for status in (*STATUSES, *FAILURES):
        for kind, (content_type, body) in ERRORS.items():
            headers = (*LIMITS, *RETRY, *([content_type] if content_type else []))
            reply = Reply((body,), status, headers)
            cases.append(Case(f"error-{status}-{kind}", QUESTION, reply))
    stream = chat_question(b',"stream":true')
    for status in (400, 429, 500):
        reply = Reply((ERROR,), status, (JSON, *LIMITS, *RETRY))
        cases.append(Case(f"error-{status}-for-a-stream", stream, reply))
        cases.append(Case(f"error-{status}-chunked", QUESTION, replace(reply, framing="chunked")))
        cases.append(Case(f"error-{status}-until-close", QUESTION, replace(reply, framing="close")))
    packed = Reply(
        (gzip.compress(ERROR),), 400, (JSON, (b"Content-Encoding", b"gzip"), (b"ETag", b'"x"'))
    )
    return [*cases, Case("error-400-gzip", QUESTION, packed)]


def _other_statuses() -> list[Case]:
    """Return cases of redirects, which are relayed, not followed, and of replies without body."""
    place = (b"Location", b"/v1/elsewhere?x=%2F")
    cases = [
        Case(f"redirect-{status}", QUESTION, Reply((b"moved",), status, (place, HTML)))
        for status in (301, 302, 303, 307, 308)
    ]
    for status in (201, 202, 203, 206, 207, 226, 299):
        cases.append(Case(f"status-{status}", QUESTION, Reply((TEXT,), status, (JSON, *LIMITS))))
    cases.append(Case("status-204", QUESTION, Reply((), 204, LIMITS, framing="none")))
    got = Sent("GET", "/v1/files/f", (AUTHORIZATION, (b"If-None-Match", b'"e"')))
    tag = (b"ETag", b'"e"')
    length = (b"Content-Length", b"7")
    return [
        *cases,
        Case("status-304", got, Reply((), 304, (tag,), framing="none")),
        Case("status-304-with-length", got, Reply((), 304, (tag, length), framing="none")),
        Case(
            "status-204-with-length",
            Sent("DELETE", "/v1/files/f", (AUTHORIZATION,)),
            Reply((), 204, ((b"Content-Length", b"0"),), framing="none"),
        ),
    ]


# Surfaces that are relayed as they are


def _sent(method: str, target: str, body: bytes = b"", *headers: Field) -> Sent:
    return Sent(method, f"/v1{target}", (AUTHORIZATION, *headers), body)


def _methods() -> list[Case]:
    body = b'{"metadata": {"a":1.0} }'
    sent = {
        "list-chats": _sent("GET", "/chat/completions?limit=2&after=x%20y"),
        "get-chat": _sent("GET", "/chat/completions/chatcmpl-1"),
        "update-chat": _sent("POST", "/chat/completions/chatcmpl-1", body, JSON),
        "delete-chat": _sent("DELETE", "/chat/completions/chatcmpl-1"),
        "messages-of-chat": _sent("GET", "/chat/completions/chatcmpl-1/messages"),
        "put-on-chat": _sent("PUT", "/chat/completions", body, JSON),
        "models": _sent("GET", "/models"),
        "model": _sent("GET", "/models/org%2Fm:free"),
        "delete-model": _sent("DELETE", "/models/ft:m:org"),
        "delete-with-body": _sent("DELETE", "/vector_stores/v/files", body, JSON),
        "get-with-body": _sent("GET", "/files", body, JSON),
        "put": _sent("PUT", "/uploads/u", b"\x00\xff", (b"Content-Type", b"application/x")),
        "patch": _sent("PATCH", "/things/1", body, (b"Content-Type", b"application/merge+json")),
        "options": _sent("OPTIONS", "/files", b"", (b"Accept", b"*/*")),
        "unknown-method": _sent("PROPFIND", "/files"),
        "embeddings": _sent("POST", "/embeddings", b'{"model":"m","input":[1.0]}', JSON),
        "post-without-body": _sent("POST", "/batches/b/cancel"),
        "post-without-length": replace(_sent("POST", "/batches/b/cancel"), framing="none"),
        "unknown-endpoint": _sent("POST", "/no/such/thing", b"<xml/>", (b"Content-Type", b"x/y")),
        "moderation-chunked": replace(_sent("POST", "/moderations", body, JSON), framing="chunked"),
        "broken-json-asked": _sent("POST", "/moderations", b'{"model": ', JSON),
        "expect": _sent("POST", "/files", body, JSON, (b"Expect", b"100-continue")),
    }
    reply = replied(b'{"object":"list","data":[{"id":"ok","price":1.0}],"vendor":1e5}\n')
    return [Case(name, request, reply) for name, request in sent.items()]


def _heads() -> list[Case]:
    long = Reply((), headers=(JSON, (b"Content-Length", b"12345")), framing="none")
    unknown = Reply((), headers=(JSON, *LIMITS), framing="none")
    return [
        Case("head-with-length", _sent("HEAD", "/files/f/content"), long),
        Case("head-without-length", _sent("HEAD", "/files/f"), unknown),
        Case("head-of-chat", _sent("HEAD", "/chat/completions/chatcmpl-1"), long),
        Case("head-of-error", _sent("HEAD", "/files/f"), replace(long, status=404)),
        Case("head-of-models", _sent("HEAD", "/models"), long),
    ]


TARGETS = {
    "encoded-slash": "/files/a%2Fb%2fc/content",
    "encoded-space": "/files/a%20b+c",
    "encoded-utf-8": "/files/%C3%A9%f0%9f%8d%8b",
    "double-slash": "/files//f",
    "trailing-slash": "/files/",
    "reserved-signs": "/files/a:b@c;d=e,f!$&'()*+~_-.",
    "encoded-percent": "/files/100%25",
    "encoded-question-mark": "/files/a%3Fb?c=d?e",
    "broken-percent": "/files/100%zz%",
    "query-of-signs": "/files?a=%2F&a=b+c%20d&&=&e&f=%E4;g[h]=i&j={k}|l",
    "empty-query": "/files?",
    "encoded-fragment": "/files/a%23b?c=%23",
    "dots-in-names": "/files/..a/b../...",
    "nothing-behind-v1": "/",
}


def _chunked() -> list[Case]:
    """Return cases of chunked replies that contain more than chunks."""
    headers: tuple[Field, ...] = (JSON, (b"Transfer-Encoding", b"chunked"))
    bodies = {
        "trailers": b"2\r\n{}\r\n0\r\nx-sum: 1\r\nx-pinocchio-action: deliver\r\n\r\n",
        "chunk-extensions": b'1;a=b\r\n{\r\n1;c="d;"\r\n}\r\n0;e\r\n\r\n',
        "chunk-sizes-of-any-form": b"0002\r\n{}\r\n0A\r\n          \r\n00\r\n\r\n",
    }
    return [
        Case(name, _sent("GET", "/files"), Reply((raw,), headers=headers, framing="none"))
        for name, raw in bodies.items()
    ]


def _targets() -> list[Case]:
    return [Case(f"path-{n}", _sent("GET", t), replied(b"{}")) for n, t in TARGETS.items()]


def _binaries() -> list[Case]:
    """Return cases of bodies that are neither text nor small."""
    every = bytes(range(256))
    audio = (b"Content-Type", b"audio/mpeg")
    form = (b"Content-Type", b'multipart/form-data; boundary="x y"')
    fields = (
        b'--x y\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n--x y\r\n'
        b'Content-Disposition: form-data; name="file"; filename="caf\xc3\xa9.wav"\r\n'
        b"Content-Type: audio/wav\r\n\r\n%b\r\n--x y--\r\n"
    )
    speak = _sent("POST", "/audio/speech", b'{"model":"tts","input":"x"}', JSON)
    range_fields = ((b"Content-Range", b"bytes 0-255/9999"), (b"Accept-Ranges", b"bytes"))
    part = _sent("GET", "/files/f/content", b"", (b"Range", b"bytes=0-255"))
    packed = ((b"Content-Encoding", b"br"), audio)
    return [
        Case("upload", _sent("POST", "/files", fields % every, form), replied(b"{}")),
        Case(
            "upload-of-3-mb",
            _sent("POST", "/files", fields % (every * 12_288), form),
            replied(b"{}"),
        ),
        Case(
            "upload-chunked",
            replace(_sent("POST", "/files", fields % every, form), framing="chunked"),
            replied(b"{}"),
        ),
        Case("speech", speak, Reply((every, every * 99), headers=(audio,), framing="chunked")),
        Case("speech-until-close", speak, Reply((every * 9,), headers=(audio,), framing="close")),
        Case("speech-encoded", speak, Reply((every,), headers=packed)),
        Case("reply-of-3-mb", speak, Reply((every * 12_288,), headers=(audio,))),
        Case("range", part, Reply((every,), 206, (audio, *range_fields))),
        Case("no-body-at-all", speak, Reply((), headers=(audio,))),
        Case(
            "surface-http-1.0",
            replace(speak, version="HTTP/1.0"),
            Reply((every,), headers=(audio,), framing="close"),
        ),
    ]


# Surfaces that will be scored: their member may still be missing


def named(name: bytes, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, data)


OUTPUT = (
    b'{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":'
    b'[{"type":"output_text","text":"caf\\u00e9 p=0.9","annotations":[],"logprobs":[]}]}'
)
RESPONSE = (
    b'{"id":"resp_1","object":"response","created_at":1.0,"status":"%b","model":"m",'
    b'"output":[%b],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3},"x":1e5}'
)
RESPONSE_EVENTS = (
    named(
        b"response.created",
        b'{"type":"response.created","sequence_number":0,"response":%b}'
        % (RESPONSE % (b"in_progress", b"")),
    ),
    named(
        b"response.output_text.delta",
        b'{"type":"response.output_text.delta","sequence_number":1,"item_id":"msg_1","output_index"'
        b':0,"content_index":0,"delta":"caf\\u00e9 p=0.9","logprobs":[],"obfuscation":"a"}',
    ),
    named(
        b"response.output_item.done",
        b'{"type":"response.output_item.done","sequence_number":2,"output_index":0,"item":%b}'
        % OUTPUT,
    ),
    named(
        b"response.completed",
        b'{"type":"response.completed","sequence_number":3,"response":%b,"x":1.0}'
        % (RESPONSE % (b"completed", OUTPUT)),
    ),
)
FINISHED = (
    b'{"id":"cmpl-1","object":"text_completion","created":1.0,"model":"m","choices":[{"text":'
    b'" Paris","index":0,"logprobs":null,"finish_reason":%b,"x":1e5}]%b}'
)
FINISHED_EVENTS = (
    b"data: " + FINISHED % (b"null", b"") + b"\n\n",
    b"data: " + FINISHED % (b'"stop"', b',"x":1.0') + b"\n\n",
    DONE,
)
MESSAGE = (
    b'{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[%b],'
    b'"stop_reason":%b,"stop_sequence":null,"usage":{"input_tokens":25,"output_tokens":1}}'
)
SAID = b'{"type":"text","text":"caf\\u00e9"}'
MESSAGE_EVENTS = (
    named(b"message_start", b'{"type":"message_start","message":%b}' % (MESSAGE % (b"", b"null"))),
    named(
        b"content_block_start",
        b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
    ),
    named(b"ping", b'{"type": "ping"}'),
    named(
        b"content_block_delta",
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"caf\\u00e9"}}',
    ),
    named(b"content_block_stop", b'{"type":"content_block_stop","index":0}'),
    named(
        b"message_delta",
        b'{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},'
        b'"usage":{"output_tokens":15},"x":1e5}',
    ),
    named(b"message_stop", b'{"type":"message_stop"}'),
)


def _scored_later() -> list[Case]:
    headers: tuple[Field, ...] = (
        (b"anthropic-version", b"2023-06-01"),
        (b"anthropic-beta", b"tools-2024"),
        (b"x-api-key", b"sk-ant-client"),
    )
    question = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"?"}]%b }'
    surfaces = {
        "/responses": (b'{"model":"m","input":"?","temperature":1.0%b }', ()),
        "/completions": (b'{"model":"m","prompt":"?","echo":false%b }', ()),
        "/messages": (question, headers),
    }
    answers = {
        "/responses": (RESPONSE % (b"completed", OUTPUT), RESPONSE_EVENTS),
        "/completions": (FINISHED % (b'"stop"', b',"usage":null'), FINISHED_EVENTS),
        "/messages": (MESSAGE % (SAID, b'"end_turn"'), MESSAGE_EVENTS),
    }
    cases = []
    for target, (body, fields) in surfaces.items():
        name, (whole, events) = target.strip("/"), answers[target]
        ask = post(body % b"", *fields, target=f"/v1{target}?beta=true")
        live = replace(ask, body=body % b',"stream":true')
        packed = replied(gzip.compress(whole), (b"Content-Encoding", b"gzip"))
        failed = Reply((ERROR,), 429, (JSON, *LIMITS, *RETRY))
        joined = b"".join(events)
        drip = replace(
            streamed(list(events)),
            writes=tuple(joined[i : i + 7] for i in range(0, len(joined), 7)),
        )
        crlf = streamed([joined.replace(b"\n", b"\r\n")])
        cases += [
            Case(f"{name}-json", ask, replied(whole), 1, may_lack=True),
            Case(f"{name}-gzip", ask, packed, 1, may_lack=True, plain=whole),
            Case(f"{name}-stream", live, streamed(list(events)), 1, may_lack=True),
            Case(f"{name}-stream-in-pieces", live, drip, 1, may_lack=True),
            Case(f"{name}-stream-crlf", live, crlf, 1, may_lack=True),
            Case(f"{name}-error", ask, failed),
            Case(f"{name}-not-understood", ask, replied(b'{"what":1.0}')),
        ]
    return cases


SURFACES = [
    *_errors(),
    *_other_statuses(),
    *_methods(),
    *_heads(),
    *_chunked(),
    *_targets(),
    *_binaries(),
    *_scored_later(),
]
