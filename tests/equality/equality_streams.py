"""What the equality suite compares, part two: streamed chat completions."""

from __future__ import annotations

import gzip
from dataclasses import replace

from tests.equality.equality_cases import LIMITS, Case, chat_question, each_byte
from tests.equality.recording import Field, Reply

EVENTS: Field = (b"Content-Type", b"text/event-stream; charset=utf-8")
QUESTION = chat_question(b',"stream":true')
DONE = b"data: [DONE]\n\n"
USAGE = b'"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"cost":1e-7}'


def chunk(choices: bytes, more: bytes = b"") -> bytes:
    """Return a chunk's JSON; `choices` is the content of its list."""
    head = b'"id":"chatcmpl-1","object":"chat.completion.chunk","created":1767225600,"model":"m"'
    return b'{%b,"choices":[%b]%b}' % (head, choices, more)


def part(delta: bytes, index: int = 0, finish: bytes = b"null", more: bytes = b"") -> bytes:
    fields = b'"index":%d,"delta":{%b},"logprobs":null,"finish_reason":%b%b'
    return b"{" + fields % (index, delta, finish, more) + b"}"


def event(data: bytes) -> bytes:
    return b"data: %b\n\n" % data


def deltas(*parts: bytes) -> list[bytes]:
    """Return the events of one choice, one for each delta."""
    return [event(chunk(part(delta))) for delta in parts]


def finish(reason: bytes = b'"stop"', index: int = 0, more: bytes = b"") -> bytes:
    return event(chunk(part(b"", index, reason), more))


OPENING = b'"role":"assistant","content":"","refusal":null'
TEXT = deltas(OPENING, b'"content":"Paris"', b'"content":" caf\\u00e9 p=0.92"')
UNICODE = deltas(OPENING, '"content":"größer ✓ 🍋 \\ud83c\\udf4b"'.encode(), b'"content":"\\ud83c"')
PLAIN = [*TEXT, finish(), DONE]
ONE_CHUNK = event(chunk(part(b'"content":"x"', 0, b'"stop"')))


def _calls() -> list[bytes]:
    opening = (
        b'{"index":%d,"id":"call_%d","type":"function","function":{"name":"f","arguments":""}}'
    )
    piece = b'{"index":%d,"function":{"arguments":"%b"}}'
    calls = [opening % (0, 0), piece % (0, b'{\\"a\\"'), opening % (1, 1), piece % (1, b"{}")]
    calls += [piece % (0, b": 1.0}"), b"%b,%b" % (piece % (0, b""), piece % (1, b" "))]
    head = deltas(b'"role":"assistant","content":null')
    return [*head, *deltas(*(b'"tool_calls":[%b]' % call for call in calls))]


def _usage() -> list[bytes]:
    pieces = [event(chunk(part(b'"content":"x"'), b',"usage":null')) for _ in range(2)]
    return [*pieces, finish(more=b',"usage":null'), event(chunk(b"", b"," + USAGE)), DONE]


def _obfuscated() -> list[bytes]:
    text = [event(chunk(part(b'"content":"x"'), b',"obfuscation":"q%d"' % n)) for n in range(3)]
    return [*text, finish(more=b',"obfuscation":"8FkA"'), DONE]


def _logprobs() -> list[bytes]:
    logprobs = (
        b'{"content":[{"token":"\\u00e9","logprob":-1.0e-5,"bytes":[195,169]}],"refusal":null}'
    )
    piece = part(b'"content":"\\u00e9"').replace(b'"logprobs":null', b'"logprobs":' + logprobs)
    return [event(chunk(piece)), event(chunk(piece)), finish(), DONE]


def _three_choices() -> list[bytes]:
    pieces = [part(b'"content":"p=0.%d "' % (n + 1), n) for n in (2, 0, 1)]
    together = event(chunk(b",".join(pieces)))
    ends = [finish(index=1), finish(b'"length"', 2), event(chunk(part(b'"content":"!"'))), finish()]
    return [*map(event, map(chunk, pieces)), together, *ends, DONE]


def _two_finish_together() -> list[bytes]:
    ends = b",".join(part(b"", n, b'"stop"') for n in (0, 1))
    return [event(chunk(part(b'"content":"a"'))), event(chunk(ends)), DONE]


# Each with the number of its finish events.
STREAMS: dict[str, tuple[list[bytes], int]] = {
    "text": (PLAIN, 1),
    "empty-text": ([*deltas(OPENING), finish(), DONE], 1),
    "text-and-finish-in-one": ([ONE_CHUNK, DONE], 1),
    "parallel-tools": ([*_calls(), finish(b'"tool_calls"'), DONE], 1),
    "usage": (_usage(), 1),
    "usage-in-finish": ([*TEXT, finish(more=b"," + USAGE), DONE], 1),
    "obfuscation": (_obfuscated(), 1),
    "logprobs": (_logprobs(), 1),
    "refusal": (
        [*deltas(OPENING, b'"refusal":"I can"', b'"refusal":"not"'), finish(), DONE],
        1,
    ),
    "reasoning": (
        [*deltas(b'"reasoning_content":"2+"', b'"reasoning":"2","content":null'), *PLAIN],
        1,
    ),
    "function-call": (
        [*deltas(b'"function_call":{"name":"f","arguments":"{}"}'), finish(), DONE],
        1,
    ),
    "audio": ([*deltas(b'"audio":{"id":"a","data":"AAAA"}'), finish(), DONE], 1),
    "three-choices": (_three_choices(), 3),
    "two-finish-in-one-chunk": (_two_finish_together(), 1),
    "filter-results-first": ([event(chunk(b"", b',"prompt_filter_results":[]')), *PLAIN], 1),
    "vendor-fields": (
        [
            *TEXT,
            event(b' { "x":1.0, "choices":[%b] ,"t":1E-7, "dup":1,"dup":2 } ' % part(b"")),
            *PLAIN,
        ],
        1,
    ),
    "odd-finish-chunk": (
        [*TEXT, event(chunk(part(b"", 0, b'"stop"'), b', "n" : 1.0,"e":1e5,"u":"\\u00e9" ')), DONE],
        1,
    ),
    "unicode": ([*UNICODE, finish(), DONE], 1),
    "says-pinocchio": ([*deltas(b'"content":",\\"pinocchio\\":{\\"a\\":1}}"'), finish(), DONE], 1),
    "no-done": ([*TEXT, finish()], 1),
    "without-last-blank-line": ([*TEXT, finish(), b"data: [DONE]\n"], 1),
    "done-without-line-end": ([*TEXT, finish(), b"data: [DONE]"], 1),
    "after-done": ([*PLAIN, b": bye\n\n", event(b'{"late":1.0}')], 1),
    "finish-twice": ([*TEXT, finish(), finish(more=b"," + USAGE), DONE], 1),
    "crlf": ([each.replace(b"\n", b"\r\n") for each in PLAIN], 1),
    "cr": ([each.replace(b"\n", b"\r") for each in PLAIN], 1),
    "mixed-line-ends": (
        [PLAIN[0].replace(b"\n\n", b"\r\n\n"), PLAIN[1].replace(b"\n\n", b"\n\r\n"), *PLAIN[2:]],
        1,
    ),
    "byte-order-mark": ([b"\xef\xbb\xbf", *PLAIN], 1),
    "comments": ([b": hello\n\n", PLAIN[0], b":\n\n", b": a\n: b\n", *PLAIN[1:], b": bye\n\n"], 1),
    "comment-in-finish-event": ([*TEXT, b": now\n" + finish(), DONE], 1),
    "other-fields": (
        [b"retry: 3000\n\n", *(b"event: message\nid: 7\n" + each for each in PLAIN), b"foo: 1\n\n"],
        1,
    ),
    "fields-after-data": ([each[:-1] + b"id: 7\nevent: x\n\n" for each in PLAIN], 1),
    "no-space-after-colon": ([each.replace(b"data: ", b"data:") for each in PLAIN], 1),
    "empty-data": ([b"data:\n\n", b"data: \n\n", b"data\n\n", *PLAIN, b"data:\n\n"], 1),
    "blank-lines": ([b"\n\n\n", *(each + b"\n\n" for each in PLAIN)], 1),
    "data-in-two-lines": (
        [*TEXT, finish().replace(b',"choices"', b',\ndata: "choices"'), DONE],
        1,
    ),
    "crlf-data-in-two-lines": (
        [*TEXT, finish().replace(b',"choices"', b',\r\ndata:"choices"'), DONE],
        1,
    ),
    "id-and-data-in-two-lines": (
        [*TEXT, b"id: 7\n" + finish().replace(b',"choices"', b',\ndata: "choices"'), DONE],
        1,
    ),
    "comment-repeats-finish": ([*TEXT, finish()[4:-1] + finish(), DONE], 1),
    "finish-after-byte-order-mark": ([b"\xef\xbb\xbf" + ONE_CHUNK, DONE], 1),
    "no-finish-but-done": ([*TEXT, DONE], 0),
    "one-megabyte": ([*deltas(b'"content":"%b"' % (b"x" * 2**20)), finish(), DONE], 1),
    "many-deltas": ([*deltas(*[b'"content":"%b"' % (b"y" * 500)] * 500), finish(), DONE], 1),
    "invalid-utf-8": ([*deltas(b'"content":"\xff\xfe"'), finish(), DONE], 1),
    "invalid-utf-8-in-finish": ([*TEXT, finish(more=b',"x":"\xff"'), DONE], 1),
    "nul-bytes": ([b": \x00\n\n", *PLAIN], 1),
    "broken-chunk": ([event(b'{"half":'), event(b"not json"), event(b"[1.0]"), *PLAIN], 1),
    "error-event": ([*TEXT, event(b'{"error":{"message":"oops","code":1.0}}')], 0),
    "error-event-first": ([event(b'{"error" : {"message":"oops"}}'), DONE], 0),
    "error-event-after-finish": ([*TEXT, finish(), event(b'{"error":{"message":"late"}}')], 1),
    "nothing-but-done": ([DONE], 0),
    "nothing-but-comments": ([b": a\n\n", b": b\n\n"], 0),
    "nothing-at-all": ([], 0),
}


def streamed(events: list[bytes], *headers: Field) -> Reply:
    return Reply(tuple(events), headers=(EVENTS, *LIMITS, *headers), framing="chunked")


def _framed() -> list[Case]:
    """Return cases of the same events that arrive in different ways."""
    short = (
        '{"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"größer ✓ 🍋 \\ud83c"},'
        '"finish_reason":"stop"}]}'
    )
    whole = event(short.encode()) + DONE
    reply = streamed([whole])
    drip = replace(reply, pause_s=2e-4, writes=each_byte(whole))
    replies = {
        "stream-at-once": reply,
        "stream-of-each-byte": drip,
        "stream-of-each-byte-until-close": replace(drip, framing="close"),
        "stream-of-each-byte-by-length": replace(drip, framing="length"),
        "stream-of-each-byte-crlf": replace(drip, writes=each_byte(whole.replace(b"\n", b"\r\n"))),
        "stream-until-close": replace(streamed(PLAIN), framing="close"),
        "stream-by-length": replace(streamed(PLAIN), framing="length"),
    }
    return [Case(name, QUESTION, reply, 1) for name, reply in replies.items()]


def _headed() -> list[Case]:
    types = {
        "plain": b"text/event-stream",
        "charset": b"text/event-stream;charset=UTF-8",
        "upper-case": b"Text/Event-Stream; Charset=utf-8",
    }
    cases = [
        Case(
            f"stream-type-{n}", QUESTION, replace(streamed(PLAIN), headers=((EVENTS[0], value),)), 1
        )
        for n, value in types.items()
    ]
    fields = (b"Cache-Control", b"no-cache"), (b"X-Accel-Buffering", b"no"), (b"x-a", b"caf\xe9")
    cases.append(Case("stream-headers", QUESTION, streamed(PLAIN, *fields), 1))
    old = replace(QUESTION, version="HTTP/1.0")
    return [*cases, Case("stream-http-1.0", old, replace(streamed(PLAIN), framing="close"), 1)]


def _unlike() -> list[Case]:
    """Return cases of streams without a request for one, and of replies that are no stream."""
    body = b"".join(PLAIN)
    packed = streamed([gzip.compress(body)], (b"Content-Encoding", b"gzip"))
    html = Reply((b"<p>sorry</p>",), headers=((b"Content-Type", b"text/html"),))
    picky = replace(QUESTION, headers=(*QUESTION.headers, (b"Accept-Encoding", b"gzip, br")))
    return [
        Case("stream-with-encodings-welcome", picky, streamed(PLAIN), 1),
        Case("stream-not-asked-for", chat_question(), streamed(PLAIN), 1),
        Case("stream-gzip", QUESTION, packed, 1, may_lack=True, plain=body),
        Case("stream-html", QUESTION, html),
        Case(
            "stream-of-error", QUESTION, replace(streamed([b'data: {"error":1.0}\n\n']), status=429)
        ),
    ]


STREAMED = [
    *(
        Case(f"stream-{name}", QUESTION, streamed(events), n)
        for name, (events, n) in STREAMS.items()
    ),
    *_framed(),
    *_headed(),
    *_unlike(),
]
