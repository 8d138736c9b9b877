"""What the equality suite compares, part one: chat completions, as JSON.

A case is one request and one scripted reply, both given byte by byte. Bodies are written by hand,
since a library would change their numbers, escapes and white space.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import brotli
import zstandard

from tests.equality.recording import Field, Reply, Sent

CHAT = "/v1/chat/completions"
AUTHORIZATION: Field = (b"Authorization", b"Bearer sk-client")
JSON: Field = (b"Content-Type", b"application/json")
LIMITS: tuple[Field, ...] = (
    (b"Date", b"Sat, 21 Nov 2026 10:00:00 GMT"),
    (b"Server", b"upstream/1.0"),
    (b"x-request-id", b"req_upstream_1"),
    (b"openai-processing-ms", b"12"),
    (b"openai-version", b"2020-10-01"),
    (b"x-ratelimit-limit-requests", b"100"),
    (b"x-ratelimit-remaining-requests", b"99"),
    (b"x-ratelimit-reset-requests", b"7s"),
    (b"Set-Cookie", b"a=1; Path=/; Expires=Thu, 01 Jan 2099 00:00:00 GMT"),
    (b"CF-Ray", b"8c1-FRA"),
    (b"set-cookie", b"b=2"),
    (b"strict-transport-security", b"max-age=31536000; includeSubDomains; preload"),
)

MEMBER = re.compile(r',?"pinocchio":(?=\{)')

DELIVERS = """
version: 1
name: strict
mode: enforce
on_score_error: deliver
rules:
  - {name: hopeless, when: {confidence: {below: 0.001}}, then: hold}
default: deliver
"""


@dataclass(frozen=True)
class Case:
    """A request and its reply; with the member attached, the body has `members` of ours.

    `may_lack` says that it has none as long as the surface is not scored. `plain` is the body after
    the decoding that a member needs.
    """

    name: str
    sent: Sent
    reply: Reply
    members: int = 0
    may_lack: bool = False
    plain: bytes | None = None

    @property
    def is_stream(self) -> bool:
        return any(
            value.lower().startswith(b"text/event-stream") for _, value in self.reply.headers
        )


def without_members(body: bytes) -> tuple[bytes, int]:
    """Return the body without our members, and how many there were.

    Each must be the last member of its object.
    """
    text, kept, at, count = body.decode("latin-1"), [], 0, 0
    for match in MEMBER.finditer(text):
        member, end = json.JSONDecoder().raw_decode(text, match.end())
        assert "confidence" in member
        assert re.compile(r"\s*\}").match(text, end), "something follows the member"
        kept.append(text[at : match.start()])
        at, count = end, count + 1
    return "".join([*kept, text[at:]]).encode("latin-1"), count


# Requests


def post(body: bytes, *headers: Field, target: str = CHAT) -> Sent:
    return Sent("POST", target, (AUTHORIZATION, JSON, *headers), body)


def chat_question(fields: bytes = b"") -> Sent:
    """Return a question, with more fields appended."""
    return post(
        b'{ "model":"org/m:free",\n "messages":[{"role":"user","content":"p=0.9 caf\\u00e9"}],'
        b'"temperature":1.0,"seed":1e5%b}\n' % fields
    )


QUESTION = chat_question()


# Replies


def completion(
    message: bytes, more: bytes = b"", finish: bytes = b"stop", choice: bytes = b'"logprobs":null'
) -> bytes:
    return (
        b'{"id":"chatcmpl-1","object":"chat.completion","created":1767225600,"model":"m-2099",'
        b'"choices":[{"index":0,"message":%b,%b,"finish_reason":"%b"}],'
        b'"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}%b}'
    ) % (message, choice, finish, more)


def says(content: bytes, *more: bytes) -> bytes:
    fields = b",".join([b'"role":"assistant","content":"%b","refusal":null' % content, *more])
    return completion(b"{%b}" % fields)


def replied(body: bytes, *headers: Field) -> Reply:
    return Reply((body,), headers=(JSON, *LIMITS, *headers))


def each_byte(body: bytes) -> tuple[bytes, ...]:
    return tuple(body[i : i + 1] for i in range(len(body)))


TEXT = says(b"Paris p=0.92")
CALL = b'{"id":"call_%d","type":"function","function":{"name":"f","arguments":"{\\"a\\": %b}"}}'
ODD = (
    b'{ "id":"v-1","object":"chat.completion","created":1.0,"model":"vendor","dup":1,"dup":2,\r\n'
    b'\t"choices" : [ {"index":0,"message":{"role":"assistant","content":"caf\\u00e9 '
    b'\\ud83c\\udf4b \xf0\x9f\x8d\x8b \\/ \\u002f","citations":["a","b"],"cost":1e5},'
    b'"finish_reason":"stop","vendor_score":1.0}],"usage":{"prompt_tokens":1,'
    b'"completion_tokens":2,"total_tokens":3,"cost":1E-7},"x_groq":{"id":"r","t":-0.0},'
    b'"huge":123456789012345678901234567890,"trailing":[1.0,1e5,1E+2,0.10]  }'
)
UNICODE = says("größer ✓ 🍋 日本 \\ud83c\\udf4b \\ud83c p=0.42".encode())
COUNT_LOGPROBS = (
    b'"logprobs":{"content":[{"token":"\\u00e9","logprob":-1.0e-5,"bytes":[195,169],'
    b'"top_logprobs":[{"token":"e","logprob":-9999.0,"bytes":null}]}],"refusal":null}'
)

ANSWERS: dict[str, bytes] = {
    "text": TEXT,
    "empty-text": says(b""),
    "tool": completion(
        b'{"role":"assistant","content":null,"tool_calls":[%b]}' % (CALL % (0, b"1.0")),
        finish=b"tool_calls",
    ),
    "parallel-tools": completion(
        b'{"role":"assistant","content":null,"tool_calls":[%b,%b]}'
        % (CALL % (0, b"1.0"), CALL % (1, b"1e5")),
        finish=b"tool_calls",
    ),
    "function-call": completion(
        b'{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}',
        finish=b"function_call",
    ),
    "refusal": completion(b'{"role":"assistant","content":null,"refusal":"I cannot"}'),
    "reasoning": says(b"4 p=0.3", b'"reasoning_content":"2+2","reasoning":null'),
    "logprobs": completion(b'{"role":"assistant","content":"\\u00e9"}', choice=COUNT_LOGPROBS),
    "annotations": says(b"x", b'"annotations":[{"type":"url_citation"}],"audio":null'),
    "structured": says(b'{\\"answer\\": 1.0, \\"steps\\": [ ]}', b'"parsed":{"answer":1.0}'),
    "three-choices": TEXT.replace(
        b'"choices":[',
        b'"choices":[{"index":2,"message":{"role":"assistant","content":"c"},"finish_reason":"stop"},'
        b'{"index":1,"message":{"role":"assistant","content":"b"},"finish_reason":"length"},',
    ),
    "trailing-vendor-fields": completion(
        b'{"role":"assistant","content":"x"}',
        b',"service_tier":"default","x_vendor":{"z":1.0}',
    ),
    "odd-json": ODD,
    "white-space-around": b" \r\n\t" + ODD + b"\n \n",
    "byte-order-mark": b"\xef\xbb\xbf" + TEXT,
    "unicode": UNICODE,
    "says-pinocchio": says(b'{\\"pinocchio\\":{\\"a\\":1}} ,\\"pinocchio\\":{}'),
    "one-megabyte": says(b"p=0.61 " + b"x" * 2**20),
    "finish-reason-null": TEXT.replace(b'"stop"', b"null"),
}
NO_COMPLETIONS: dict[str, bytes] = {
    "not-json": b"so sorry",
    "half-json": TEXT[:-30],
    "json-array": b'[1.0, {"a": 1e5}]',
    "error-with-200": b'{"error": {"message": "oops", "code": 1.0}}',
    "no-choices": b'{"id":"x","choices":[]}',
    "number-of-5000-digits": completion(b'{"content":"x"}', b',"n":' + b"9" * 5_000),
    "empty": b"",
    "utf-16": TEXT.decode().encode("utf-16"),
    "latin-1": says("café".encode("latin-1")),
    "trailing-garbage": TEXT + b"}\n",
    "deeply-nested": completion(b'{"content":"x"}', b',"n":' + b"[" * 50_000 + b"]" * 50_000),
}


def _encoded() -> list[Case]:
    """Return cases of bodies in every encoding, accepted by the request or not."""
    twice = gzip.compress(TEXT[:50]) + gzip.compress(TEXT[50:])
    raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    encoders: dict[str, tuple[bytes, Callable[[bytes], bytes]]] = {
        "gzip": (b"gzip", gzip.compress),
        "x-gzip": (b"x-gzip", gzip.compress),
        "upper-case-gzip": (b"GZIP", gzip.compress),
        "gzip-of-two-members": (b"gzip", lambda _: twice),
        "deflate": (b"deflate", zlib.compress),
        "deflate-without-zlib-header": (b"deflate", lambda b: raw.compress(b) + raw.flush()),
        "br": (b"br", brotli.compress),
        "zstd": (b"zstd", zstandard.ZstdCompressor().compress),
        "identity": (b"identity", bytes),
    }
    cases = []
    for name, (encoding, encode) in encoders.items():
        reply = replied(
            encode(TEXT), (b"Content-Encoding", encoding), (b"Vary", b"Accept-Encoding")
        )
        sent = replace(
            QUESTION, headers=(*QUESTION.headers, (b"Accept-Encoding", encoding + b";q=1, *;q=0"))
        )
        cases.append(Case(f"{name}-asked-for", sent, reply, 1, plain=TEXT))
        if name in ("gzip", "br"):
            cases.append(Case(f"{name}-not-asked-for", QUESTION, reply, 1, plain=TEXT))
    for name, encoding in {"unknown": b"rot13", "two": b"gzip, br"}.items():
        reply = replied(TEXT, (b"Content-Encoding", encoding))
        cases.append(Case(f"{name}-encodings", QUESTION, reply))
    empty = replied(b"", (b"Content-Encoding", b"gzip"))
    return [*cases, Case("gzip-of-nothing-at-all", QUESTION, empty)]


def _framed() -> list[Case]:
    """Return cases of the same bytes that arrive in different ways."""
    short = '{"choices":[{"message":{"content":"größer ✓ 🍋 \\ud83c"}}]}'.encode()
    drip = replace(replied(b""), writes=each_byte(short), pause_s=2e-4)
    replies = {
        "chunked": replace(replied(TEXT), framing="chunked"),
        "reply-of-http-1.0": replace(replied(TEXT), framing="close", version=b"HTTP/1.0"),
        "until-close": replace(replied(TEXT), framing="close"),
        "each-byte-by-length": drip,
        "each-byte-chunked": replace(drip, framing="chunked"),
        "after-early-hints": replace(
            replied(TEXT), interim=b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
        ),
    }
    return [Case(name, QUESTION, reply, 1) for name, reply in replies.items()]


def _headed() -> list[Case]:
    """Return cases of replies with header fields that are easily lost."""
    types = {
        "charset": (b"application/json; charset=utf-8", 1),
        "charset-upper-case": (b"Application/JSON;Charset=UTF-8", 1),
        "json-suffix": (b"application/vnd.api+json", 1),
        "plain-text": (b"text/plain", 0),
        "html": (b"text/html; charset=utf-8", 0),
    }
    cases = [
        Case(
            f"content-type-{name}", QUESTION, Reply((TEXT,), headers=((b"Content-Type", value),)), n
        )
        for name, (value, n) in types.items()
    ]
    odd = {
        "latin-1-header": (b"x-vendor", b"caf\xe9"),
        "utf-8-header": (b"x-vendor", "Zürich 🍋".encode()),
        "empty-header": (b"x-empty", b""),
        "long-header": (b"x-long", b"a b" * 10_000),
        "tab-in-header": (b"x-tab", b"a\tb  c"),
        "odd-header-name": (b"x_under.score!#$%&'*+-^`|~", b"1"),
    }
    cases += [Case(name, QUESTION, replied(TEXT, header), 1) for name, header in odd.items()]
    cases.append(Case("no-content-type", QUESTION, Reply((TEXT,), headers=())))
    first = ((b"Content-Length", b"%d" % len(TEXT)), JSON, *LIMITS)
    return [*cases, Case("content-length-first", QUESTION, Reply((TEXT,), headers=first), 1)]


# Requests that are easily changed


def _requests() -> list[Case]:
    user = '{"role":"user","content":"%s"}'
    turns = ",".join(user % f"turn {n} größer 🍋" for n in range(200)).encode()
    parts = b'{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"?"},%b]}]}'
    image = b'{"type":"image_url","image_url":{"url":"%b","detail":"low"}}'
    data_url = b"data:image/png;base64," + b"iVBORw0KGgo/+A==" * 19_000
    bodies = {
        "200-messages": b'{"model":"m","messages":[%b]}' % turns,
        "image-of-300-kb": parts % (image % data_url),
        "image-by-url": parts % (image % b"https://example.com/a.png?x=%2F&y=1"),
        "request-of-3-mb": b'{"model":"m","messages":[%b]}' % (user.encode() % (b"x" * 3 * 2**20)),
        "odd-request": b'\xef\xbb\xbf \n{ "model":"first","x":{"caf\\u00e9":"\xf0\x9f\x8d\x8b"},'
        b'"dup":1,"dup":2,"messages":[{"role":"user","content":"\\ud83c \\ud83c\\udf4b"}],"big":'
        b'123456789012345678901234567890,"f":1.0,"model" : "last","e":-0.0E+5}\n \t',
        "tools-asked-for": b'{"model":"m","messages":[],"tools":[{"type":"function","function":'
        b'{"name":"f","strict":true,"parameters":{"type":"object"}}}],"tool_choice":"auto"}',
        "schema-asked-for": b'{"model":"m","messages":[{"role":"user","content":"?"}],"response'
        b'_format":{"type":"json_schema","json_schema":{"name":"s","schema":{}}},"stream":null}',
        "names-api-base": b'{"model":"m","messages":[],"api_base":"http://127.0.0.1:9","api_key":""}',
    }
    return [Case(name, post(body), replied(TEXT), 1) for name, body in bodies.items()]


ODD_FIELDS: tuple[Field, ...] = (
    (b"User-Agent", b"mine/1.0 (x; y)"),
    (b"OpenAI-Beta", b"assistants=v2"),
    (b"X-Twice", b"1"),
    (b"X-Between", b""),
    (b"x-twice", b"2"),
    (b"Cookie", b"a=b; c=d"),
    (b"X-Title", "Zürich 🍋".encode()),
    (b"Accept", b"text/event-stream, */*;q=0.1"),
    (b"Accept-Encoding", b"gzip, deflate, br, zstd"),
    (b"X-Long", b"ab, " * 7_500 + b"c"),
    (b"Idempotency-Key", b"k"),
    (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    (b"X-Forwarded-For", b"10.0.0.1"),
    (b"Forwarded", b"for=10.0.0.1"),
    (b"Via", b"1.1 other"),
    (b"Keep-Alive", b"timeout=5"),
    (b"Connection", b"keep-alive, X-Named"),
    (b"X-Named", b"only for the next hop"),
    (b"X-Pinocchio-Tags", b"a, b"),
)


def _request_heads() -> list[Case]:
    query = "?api-version=2&x=%2F%20a+b&empty=&=&%c3%A4&a;b&q=a?b"
    sent = {
        "odd-request-headers": replace(QUESTION, headers=(*QUESTION.headers, *ODD_FIELDS)),
        "latin-1-request-header": replace(
            QUESTION, headers=(*QUESTION.headers, (b"X-Latin", b"caf\xe9"))
        ),
        "connection-close-asked": replace(
            QUESTION, headers=(*QUESTION.headers, (b"Connection", b"close"))
        ),
        "no-content-type-asked": replace(QUESTION, headers=(AUTHORIZATION,)),
        "no-authorization": replace(QUESTION, headers=(JSON,)),
        "other-authorization": replace(QUESTION, headers=(JSON, (b"api-key", b"azure"))),
        "query": replace(QUESTION, target=CHAT + query),
        "empty-query": replace(QUESTION, target=CHAT + "?"),
        "trailing-slash": replace(QUESTION, target=CHAT + "/"),
        "chunked-request": replace(QUESTION, framing="chunked"),
        "expect-100-continue": replace(
            QUESTION, headers=(*QUESTION.headers, (b"Expect", b"100-continue"))
        ),
    }
    cases = [Case(name, request, replied(TEXT), 1) for name, request in sent.items()]
    old = replace(QUESTION, version="HTTP/1.0")
    return [*cases, Case("http-1.0", old, replace(replied(TEXT), framing="close"), 1)]


COMPLETIONS = [
    *(Case(name, QUESTION, replied(body), 1) for name, body in ANSWERS.items()),
    *(Case(name, QUESTION, replied(body)) for name, body in NO_COMPLETIONS.items()),
    *_encoded(),
    *_framed(),
    *_headed(),
    *_requests(),
    *_request_heads(),
]
