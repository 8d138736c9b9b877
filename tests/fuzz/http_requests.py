"""Random bytes that are nearly requests: correct and almost correct lines, fields and bodies."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

Each = TypeVar("Each")

MORE = b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
END = b"GET /end HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
METHODS = b"HEAD get PRI TRACE CONNECT GE/T FLUSH PURGE M-SEARCH PROPFIND".split()
TARGETS = [
    *b"/ /a?b=c /a?/../b //a/b /%2e%2e/a /a%00 /a;b=c /a\\b http://x/a http://y/a http://x".split(),
    *b"https://x/a?b * x:80 a /a#b /a?b#c /\x80 /a\x7f /a|b ?a /a?? /a%zz http:/a HTTP://X/a".split(),
    *(b"", b"/a b", b"/a\tb", b"/a\x00", b"/a\x0b", b"/" + b"a" * 300),
]
VERSIONS = [
    *(b" HTTP/1.0", b" HTTP/0.9", b" HTTP/1.2", b" HTTP/2.0", b" HTTP/3.0", b" HTTP/01.1"),
    *(b" HTTP/1.1 ", b"  HTTP/1.1", b"\tHTTP/1.1", b" http/1.1", b" HTTP/1.1x", b" HTTP/11"),
    *(b" HTTP/1.", b" HTTP /1.1", b"", b" HTTP/1.1\x00", b" HTTP/1.1\x0b", b" HTP/1.1"),
    *([b" HTTP/1.0"] * 12),
]
LINE_ENDS = [b"\n", b"\r", b"\r\r\n", b"\n\r", b"\r\n\n", b" \r\n", b"\x0b\r\n", b"\x00\r\n"]
HOSTS = [
    *(b"", b"x:80", b"x:", b"y", b"x/a", b"a@x", b"[::1]", b"[::1", b"x y", b"x,x", b"x\x00"),
    *(b"x:80:80", b"x?a", b"\x80", b"x#", b"x\\y", b"*", b"x%41", b"." * 300),
]
LENGTHS = ["0{n}", "+{n}", "-{n}", "{n},{n}", "{n},0", "0x{n}", "{n}.0", "{n}e0", "{n};", "{n}_0"]
LENGTHS += ["{m}", "{m}", "{k}", "{k}", "0", "0"]
LENGTHS += ["", "{n} {n}", "{n}, {n}", "99999999999999999999", "{n}\x00", "\x0b{n}", "{n} \t"]
CODINGS = [
    *(b"Chunked", b"CHUNKED", b" chunked", b"chunked ", b"\tchunked", b"chunked\t", b"\x0bchunked"),
    *(b"xchunked", b"chunkedx", b"chunked;a=b", b"chunked, identity", b"identity", b"chunked\x0c"),
    *(b"gzip, chunked", b"chunked, chunked", b"chunked,", b",chunked", b'"chunked"', b"chu nked"),
    *(b"", b"chunked\x00", b"gzip", b"deflate", b"cow", b"'chunked'", b"identity, chunked"),
]
NAMES = [
    "{}\t",
    "{}\x00",
    "{}\x0b",
    "\x0b{}",
    "\x00{}",
    "{}:",
    "{} ",
    " {}",
    "\t{}",
    "x {}",
    "{} x",
]
NAMES += ["x-{}", "{}-x", "{}\r", "{}\x80"]
BETWEEN = [b":", b":\t", b":  ", b" : ", b"= ", b":\x0b", b":\r\n ", b":\r\n\t", b"\t:", b":\n "]
CONNECTIONS = b"close keep-alive TE host content-length transfer-encoding close,upgrade".split()
UPGRADES = b"h2c websocket foo TLS/1.0 websocket,h2c HTTP/2.0".split()
OTHERS = [
    *(
        b"a: b",
        b"a:",
        b"a",
        b": b",
        b"",
        b"a : b",
        b"a: b\x00c",
        b"a: b\x01",
        b"a: \x80",
        b"a\x80: b",
    ),
    *(b"a: b\r\n c", b"a: b\r\n\tc", b" a: b", b"a: b\rc: d", b"a: b\nc: d", b"a_b: c", b"a b: c"),
    *(b"expect: 100-continue", b"expect: x", b"te: trailers", b"trailer: a", b"cookie: a=b"),
    *(b"http2-settings: AA", b"x-http-method-override: DELETE", b"a: " + b"b" * 999, b"\x7fa: b"),
    *(b"keep-alive: 1", b"proxy-connection: close", b"a(b): c", b'a"b: c', b"a/b: c", b"a\tb: c"),
    *(b"content_length: 3", b"transfer_encoding: chunked", b"host_: y", b"content-length:"),
]
SIZES = ["{:X}", "0{:x}", "0000000000{:x}", "{:x};a", "{:x};a=b", '{:x};a="b"', "{:x} ", " {:x}"]
SIZES += ["0x{:x}", "+{:x}", "-{:x}", "{:x};", "{:x}\t", "{:x}_0", "{:x};a\n", "{:x} ;a", "f{:x}"]
SIZES += ["{:x}\x00", "ffffffffffffffff{:x}", "{:x}.", "{:x};\x00", "{:x};a\r", "", "g", "1{:x}"]
LASTS = [b"00", b"0;a", b"0 ", b"-0", b"", b"0x0", b"0" * 17, b"0;a\n", b"0\x00", b"0;\r", b"1"]
TRAILERS = [
    *(b"a: b\r\n", b"host: y\r\n", b"content-length: 3\r\n", b"transfer-encoding: chunked\r\n"),
    *(b"a\r\n", b" a: b\r\n", b"a: b\n", b"a : b\r\n", b"GET /t HTTP/1.1\r\n", b"a: \x00\r\n"),
]


class Choices:
    """Chooses the usual value, or an odd one, more often the odder the stream is."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self._oddity = chance.choice((0.0, 0.01, 0.03, 0.03, 0.1, 0.3))

    def is_odd(self, times: float = 1) -> bool:
        return self.chance.random() < self._oddity * times

    def of(self, usual: Each, odd: Sequence[Each], times: float = 1) -> Each:
        return self.chance.choice(odd) if self.is_odd(times) else usual


def one_stream(chance: random.Random) -> bytes:
    """Return one to three requests and a last one; many have something odd."""
    choices = Choices(chance)
    requests = [_request(choices) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
    stream = b"".join(requests) + END
    return damaged(chance, stream) if choices.is_odd() else stream


def pieces(chance: random.Random, stream: bytes) -> list[bytes]:
    """Return the stream as it may arrive: whole, or cut in a few places."""
    if not stream:
        return []
    cuts = sorted(chance.randrange(len(stream)) for _ in range(chance.choice((0, 0, 1, 2, 5))))
    return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if a < b]


def _request(choices: Choices) -> bytes:
    chance = choices.chance
    body = chance.choice((b"", b"hi", MORE, MORE, b"0\r\n\r\n", b"\r\n", b"a=b"))
    framing, sent = _framed(choices, body)
    host = named(choices, b"host", choices.of(b"x", HOSTS))
    fields = choices.of([host], [[], [host, host], [host, b"host: y"]], 0.5) + framing
    if choices.is_odd(2):
        fields.append(b"connection: " + chance.choice(CONNECTIONS))
    if choices.is_odd(2):
        fields += [b"upgrade: " + chance.choice(UPGRADES), b"connection: upgrade"]
    while choices.is_odd(2):
        fields.append(chance.choice(OTHERS))
    chance.shuffle(fields)
    method = choices.of(chance.choice((b"GET", b"POST", b"POST", b"PUT", b"DELETE")), METHODS)
    line = method + b" " + choices.of(b"/a", TARGETS) + choices.of(b" HTTP/1.1", VERSIONS)
    head = b"".join(each + choices.of(b"\r\n", LINE_ENDS, 0.3) for each in (line, *fields, b""))
    return choices.of(b"", [b"\r\n", b"\n", b" ", b"\r", b"\r\n\r\n"], 0.5) + head + sent


def _framed(choices: Choices, body: bytes) -> tuple[list[bytes], bytes]:
    """Return fields for the body's length, and the body as it is sent."""
    length, other_length = length_of(choices, body), length_of(choices, body)
    coding = named(choices, b"transfer-encoding", choices.of(b"chunked", CODINGS))
    if choices.is_odd():
        other = named(choices, b"transfer-encoding", choices.of(b"chunked", CODINGS))
        chunks = chunked(choices, body)
        return choices.chance.choice(
            (
                ([], body),
                ([length, other_length], body),
                ([coding, other], chunks),
                ([length, coding], body),
                ([length, coding], chunks),
            )
        )
    if not body and choices.chance.random() < 0.5:
        return [], b""
    if choices.chance.random() < 0.5:
        return [length], body
    return [coding], chunked(choices, body)


def named(choices: Choices, name: bytes, value: bytes) -> bytes:
    spelling = name.decode().title() if choices.chance.random() < 0.3 else name.decode()
    written = choices.of("{}", NAMES, 0.5).format(spelling).encode("latin-1")
    return written + choices.of(b": ", BETWEEN, 0.5) + value


def length_of(choices: Choices, body: bytes) -> bytes:
    n = len(body)
    text = choices.of("{n}", LENGTHS).format(n=n, m=n + 1, k=max(0, n - 1))
    return named(choices, b"content-length", text.encode("latin-1"))


def chunked(choices: Choices, body: bytes) -> bytes:
    ends = [b"\n", b"\r", b"", b"\r\n\r\n", b"  \r\n", b"\r\r\n", b"\n\r"]
    half = choices.chance.randrange(len(body) + 1)
    chunks = b""
    for part in filter(None, (body[:half], body[half:])):
        size = choices.of("{:x}", SIZES).format(len(part)).encode("latin-1")
        chunks += size + choices.of(b"\r\n", ends, 0.5) + part + choices.of(b"\r\n", ends, 0.5)
    chunks += choices.of(b"0", LASTS) + choices.of(b"\r\n", ends, 0.5)
    return chunks + choices.of(b"", TRAILERS, 2) + choices.of(b"\r\n", ends, 0.5)


def damaged(chance: random.Random, stream: bytes) -> bytes:
    at = chance.randrange(len(stream))
    return chance.choice(
        (
            stream[:at] + stream[at + 1 :],
            stream[:at] + bytes([chance.randrange(256)]) + stream[at + 1 :],
            stream[:at] + chance.choice((b"\r", b"\n", b"\x00", b" ", b"\t")) + stream[at:],
            stream[:at] + stream[at : at + 20] + stream[at:],
            stream[:at],
        )
    )
