"""Random bytes that are nearly replies: correct and almost correct lines, fields and bodies."""

from __future__ import annotations

import random

from tests.fuzz.http_requests import CODINGS, Choices, chunked, damaged, length_of, named

ODD = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nsmuggle"
STATUSES = b"201 204 304 404 500 100 101 103 199 99 600 1000 20 2x0 +200 0200 -1 200.0".split()
VERSIONS = (
    b"HTTP/1.0 HTTP/1.0 HTTP/0.9 HTTP/1.2 HTTP/2.0 HTTP/2 http/1.1 ICY HTTP/01.1 RTSP/1.0".split()
)
REASONS = [b"", b" ", b" OK", b" O\tK", b" \x80", b" O\x00K", b" O\rK", b"\tOK", b" OK "]
LINE_ENDS = [b"\n", b"\r", b"\r\r\n", b"\n\r", b" \r\n", b"\x00\r\n"]
FIELDS = [
    *(b"a: b", b"a:", b"a", b": b", b"a : b", b"a: b\x00c", b"a: b\x01", b"a: \x80", b"a\x80: b"),
    *(
        b"a: b\r\n c",
        b" a: b",
        b"a: b\rc: d",
        b"a: b\nc: d",
        b"a_b: c",
        b"a b: c",
        b"a: " + b"b" * 999,
    ),
    *(b"connection: close", b"connection: keep-alive", b"connection: upgrade\r\nupgrade: h2c"),
    *(b"keep-alive: timeout=5", b"trailer: a", b"content_length: 3", b"content-length:"),
]


def one_reply(chance: random.Random) -> tuple[bytes, bool]:
    """Return a reply to GET, and whether the upstream closes the connection after it."""
    choices = Choices(chance)
    body = chance.choice((b"", b"hi", ODD, ODD, b"0\r\n\r\n", b"\r\n", b"{}"))
    fields, sent, has_end = _framed(choices, body)
    while choices.is_odd(2):
        fields.append(chance.choice(FIELDS))
    chance.shuffle(fields)
    line = choices.of(b"HTTP/1.1", VERSIONS, 0.5) + choices.of(b" ", [b"  ", b"\t", b""], 0.2)
    line += choices.of(b"200", STATUSES) + choices.of(b" OK", REASONS, 0.5)
    head = b"".join(each + choices.of(b"\r\n", LINE_ENDS, 0.3) for each in (line, *fields, b""))
    before = choices.of(b"", [b"\r\n", b"\n", b" ", b"HTTP/1.1 100 Continue\r\n\r\n", b"x"], 0.5)
    after = choices.of(b"", [ODD, b"\r\n", b"x", b"0\r\n\r\n"], 2)
    reply = before + head + sent + after
    return (damaged(chance, reply) if choices.is_odd() else reply), not has_end or choices.is_odd(2)


def _framed(choices: Choices, body: bytes) -> tuple[list[bytes], bytes, bool]:
    """Return fields for the body's length, the body as it is sent, and whether its end shows."""
    chance = choices.chance
    length = length_of(choices, body)
    coding = named(choices, b"transfer-encoding", choices.of(b"chunked", CODINGS))
    if choices.is_odd():
        chunks = chunked(choices, body)
        several = (
            [length, length_of(choices, body)],
            [length, coding],
            [coding, named(choices, b"transfer-encoding", choices.of(b"chunked", CODINGS))],
        )
        return chance.choice(several), chance.choice((body, chunks)), True
    kind = chance.random()
    if kind < 0.1:
        return [], body, False
    if kind < 0.5:
        return [length], body, True
    return [coding], chunked(choices, body), True
