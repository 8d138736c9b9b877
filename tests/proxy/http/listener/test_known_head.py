"""A request behind a known head is the one that the parser would have read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.http.listener import connections, http_protocol
from proxy.http.listener.http_cycle import KnownHead, known_head
from proxy.http.wire.headers import MOST_DIGITS
from proxy.http.wire.http import CLIENT, KNOWN
from tests.proxy.http.listener.http_recorder import Recorder, connect, serving

MOST_BODY = 10**MOST_DIGITS - 1  # bytes
HEAD = (
    b"POST /v1/chat/completions?a=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sk-1\r\n"
    b"Content-Length: %b\r\nx-note: Content-Length: 7\r\n\r\n"
)


class Parsed:
    """What llhttp reads in some bytes."""

    def __init__(self, data: bytes) -> None:
        self.url, self.body, self.headers = b"", b"", []  # type: ignore[var-annotated]
        self.whole = 0
        parser: Any = httptools.HttpRequestParser(self)
        parser.feed_data(data)
        self.method = parser.get_method()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.whole += 1


def request(body: bytes, length: bytes | None = None) -> bytes:
    return HEAD % (b"%d" % len(body) if length is None else length) + body


def learnt(data: bytes) -> KnownHead | None:
    scope = {"method": "POST", "headers": Parsed(data).headers, CLIENT: None}
    return known_head(data, scope)


EDITS = st.lists(
    st.tuples(st.integers(0, len(HEAD) + 4), st.integers(0, 2), st.binary(max_size=2)), max_size=2
)
FRAMING = st.sampled_from(
    [b"", b"Content-Length: 2\r\n", b"Transfer-Encoding: chunked\r\n", b" folded\r\n", b"\n"]
)


@given(st.binary(max_size=12), EDITS, FRAMING, st.integers(0, len(HEAD)))
def test_what_is_known_is_what_the_parser_reads(
    body: bytes, edits: list[tuple[int, int, bytes]], more: bytes, at: int
) -> None:
    """A request unlike the known one is left to the
    parser, or has the fields and body of llhttp.
    """
    known = learnt(request(b"hello"))
    assert known is not None
    data = request(body)
    data = data[:at] + more + data[at:]
    for position, removed, added in edits:
        data = data[:position] + added + data[position + removed :]
    length = known.head.length_in(data)
    if data == request(body) and len(body) < MOST_BODY:
        assert length == b"%d" % len(body)
    if length is not None:
        parsed = Parsed(data)
        is_whole = len(parsed.body) == int(length)
        assert (parsed.whole, parsed.headers) == (is_whole, known.scope(length)["headers"])
        assert data[known.head.size + len(length) :] == parsed.body
        assert len(parsed.body) <= int(length)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(request(b"hello") + request(b"x"), id="two requests"),
        pytest.param(request(b"hello", b"4"), id="more than its body"),
        pytest.param(request(b"a\r\n\r\nb").replace(b"\r\n\r\n", b"\n\n", 1), id="other line ends"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="no length"),
        pytest.param(request(b"").replace(b"sk-1", b"k" * 10_000), id="a long head"),
    ],
)
def test_an_incomplete_head_is_not_cached(data: bytes) -> None:
    """Only the head of one whole request of moderate size is remembered."""
    scope = {"headers": [(b"content-length", b"5")], CLIENT: None}
    assert known_head(data, scope) is None
    assert known_head(data, scope, has_body=False) is None


def test_a_head_sent_alone_is_cached() -> None:
    """A head that arrives before its body is remembered, as many clients write it so."""
    data = request(b"hello")
    head = data[: -len(b"hello")]
    scope = {"method": "POST", "headers": Parsed(data).headers, CLIENT: None}
    known = known_head(head, scope, has_body=False)
    assert known is not None
    assert [known.head.length_in(each) for each in (head, data, data + b"x")] == [b"5", b"5", None]
    assert known_head(data, scope, has_body=False) is None
    assert known_head(head, scope) is None


def test_what_a_request_changes_stays_its_own() -> None:
    """A request that changes its scope leaves the remembered head unchanged."""
    scope = {"method": "POST", "headers": Parsed(request(b"hello")).headers, CLIENT: None}
    known = known_head(request(b"hello"), scope)
    assert known is not None
    scope["headers"].append((b"via", b"a"))  # type: ignore[union-attr]
    first = known.scope(b"3")
    first["headers"][0] = (b"host", b"other")
    first["headers"].append((b"via", b"b"))
    first["caller"] = "somebody"
    again = known.scope(b"5")
    assert again["headers"] == Parsed(request(b"hello")).headers
    assert again.keys() == {"method", "headers", KNOWN}


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[int, Recorder]]:
    app = Recorder()
    with serving(app) as port:
        yield port, app


def said(sock: Any, data: bytes) -> bytes:
    sock.sendall(data)
    reply = sock.recv(2**16)
    while reply.startswith(b"HTTP/1.1 200") and not reply.endswith(b"ok"):
        reply += sock.recv(2**16)
    return bytes(reply)


OTHER = request(b"x").replace(b"localhost", b"other")
SEQUENCES = [
    pytest.param([request(b"one"), request(b"second"), request(b"")], id="the same head"),
    pytest.param([request(b"a"), OTHER, request(b"b"), OTHER, request(b"c")], id="by turns"),
    pytest.param([request(b"a"), request(b"b", b"1 "), request(b"c")], id="a space"),
    pytest.param([request(b"a"), request(b"b", b"+1"), request(b"c")], id="a sign"),
    pytest.param([request(b"a"), b"\r\n" + request(b"b"), request(b"c")], id="a line end before"),
    pytest.param([request(b"a"), request(b"x" * (MOST_BODY + 1)), request(b"c")], id="much"),
    pytest.param([request(b"a"), request(b"\r\n\r\n"), request(b"c")], id="line ends"),
]


@pytest.mark.parametrize("requests", SEQUENCES)
def test_each_is_answered_as_on_a_connection_of_its_own(
    server: tuple[int, Recorder], requests: list[bytes]
) -> None:
    """Replies, bodies and fields are those of a connection with a single request."""
    port, app = server
    found: list[list[Any]] = [[], []]
    with connect(port) as kept:
        for data in requests:
            found[0] += [said(kept, data), app.seen[-1], app.fields]
            if found[0][-3][:12] != b"HTTP/1.1 200":
                break
    for data in requests[: len(found[0]) // 3]:
        with connect(port) as alone:
            found[1] += [said(alone, data), app.seen[-1], app.fields]
    assert found[0] == found[1]


@pytest.mark.parametrize("cuts", [[0], [0, 1], [1], [1, 2], [3], [4], [-1, 0], [-20, 1]])
def test_a_body_may_come_behind_its_head(server: tuple[int, Recorder], cuts: list[int]) -> None:
    """A body may arrive in pieces after its head, one of which begins another request."""
    port, app = server
    requests = [request(b"body"), request(b"four"), request(b""), request(b"b" * 300)]
    with connect(port) as kept:
        for data in requests:
            head = len(data.partition(b"\r\n\r\n")[0]) + 4
            begins = [0, *(head + cut for cut in cuts), len(data)]
            for begin, end in pairwise(begins):
                kept.sendall(data[begin:end])
                time.sleep(0.02)  # so that they are read apart
            assert kept.recv(2**16).endswith(b"ok")
        together = request(b"last") + request(b"more")
        kept.sendall(together[:-70])
        time.sleep(0.02)
        kept.sendall(together[-70:])
        received = b""
        while received.count(b"ok") < 2:
            received += kept.recv(2**16)
    bodies = [body for _, _, body in app.seen[-6:]]
    assert bodies == [b"body", b"four", b"", b"b" * 300, b"last", b"more"]


def test_a_body_that_never_comes_is_waited_for_no_longer(
    server: tuple[int, Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body that never arrives behind a known head is given up as usual."""
    port, _ = server
    monkeypatch.setattr(http_protocol, "BODY_S", 0.1)
    monkeypatch.setattr(connections, "SWEEP_S", 0.1)
    with connect(port) as kept:
        for _ in range(2):
            said(kept, request(b"hello"))
        kept.sendall(request(b"hello")[:-2])
        assert kept.recv(2**16).startswith(b"HTTP/1.1 408")


def test_two_that_come_together_are_both_answered(server: tuple[int, Recorder]) -> None:
    """A request right behind one with a known head is answered too, also in pieces."""
    port, app = server
    with connect(port) as kept:
        for _ in range(2):
            said(kept, request(b"a"))
        before = len(app.seen)
        kept.sendall(request(b"b") + request(b"c") + request(b"d")[:40])
        received = b""
        while received.count(b"ok") < 2:
            received += kept.recv(2**16)
        assert said(kept, request(b"d")[40:]).endswith(b"ok")
        assert [body for _, _, body in app.seen[before:]] == [b"b", b"c", b"d"]
