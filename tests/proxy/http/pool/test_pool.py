"""The HTTP client of the hot path, against servers that send exactly what a test says."""

from __future__ import annotations

import asyncio
import gc
import math
import select
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.errors import (
    StartupError,
    UpstreamBrokenError,
    UpstreamError,
    UpstreamTimeoutError,
)
from proxy.http.pool import pool as pool_module
from proxy.http.pool.connection import (
    HEADER_LIMIT,
    HIGH_WATER,
    MAX_FIELDS,
    Connection,
    HttpReply,
)
from proxy.http.pool.forward_proxy import is_excepted
from proxy.http.pool.pool import MAX_IDLE, Pool, origin_of
from proxy.http.wire.headers import Headers
from proxy.http.wire.outlet import Bursts
from proxy.http.wire.upstream import UpstreamRequest
from tests.proxy.http.wire.always_gathered import AlwaysGathered
from tests.servers.raw_server import Peer, RawServer, Script
from tests.sharing.captured_logs import capture_logs

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]

LOOPS = ["asyncio", *(["uvloop"] if find_spec("uvloop") else [])]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
BODY = bytes(range(256)) * 4096  # 1 MB
PATIENCE_S = 10


def new_loop(kind: str) -> asyncio.AbstractEventLoop:
    if kind == "uvloop":
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()


@pytest.fixture(scope="module", autouse=True)
def little_garbage() -> Iterator[None]:
    """Exempt existing objects from garbage collection, which would take long after every test."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(params=[*LOOPS, f"{LOOPS[-1]}, gathered"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run[Any]]:
    """Yield a function that runs a coroutine on each kind of event loop, and with bursts gathered.

    It checks that no task is left over and no loop complains.
    """
    kind, _, is_gathered = request.param.partition(", ")
    if is_gathered:
        monkeypatch.setattr(pool_module, "Bursts", AlwaysGathered)
    complaints: list[dict[str, Any]] = []

    async def bounded(work: Coroutine[Any, Any, T]) -> T:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        async with asyncio.timeout(PATIENCE_S):
            result = await work
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    with asyncio.Runner(loop_factory=lambda: new_loop(kind)) as runner:
        yield lambda work: runner.run(bounded(work))
        gc.collect()
    assert complaints == []


class Got(NamedTuple):
    status: int
    headers: Headers
    body: bytes


class Client:
    """A server that plays a script, and a pool in front of it."""

    def __init__(self, server: RawServer, pool: Pool) -> None:
        self.server = server
        self.pool = pool

    async def ask(self, method: str = "POST", **options: Any) -> Got:
        reply = await self.pool.send(UpstreamRequest(method, "/x", **options))
        try:
            return Got(reply.status, reply.headers, await reply.read(2**30))
        finally:
            await reply.aclose()


@asynccontextmanager
async def asking(
    script: Script, *, api_key: str = "", timeout_s: float = 5
) -> AsyncIterator[Client]:
    with RawServer(script) as server:
        pool = Pool(server.base_url, api_key, timeout_s)
        try:
            yield Client(server, pool)
        finally:
            await pool.aclose()


def answering(*pieces: bytes) -> Script:
    """Answer every request with these bytes, as long as the client stays."""

    def script(peer: Peer) -> None:
        while peer.request():
            peer.send(*pieces)

    return script


def closing(*pieces: bytes) -> Script:
    """Answer one request, and close."""

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(*pieces)

    return script


def ask_once(run: Run[Any], script: Script, method: str = "POST", **options: Any) -> Got:
    async def scenario() -> Got:
        async with asking(script) as client:
            return await client.ask(method, **options)

    got: Got = run(scenario())
    return got


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what a script's thread does."""
    while not condition():  # noqa: ASYNC110 - no event can be set from there on any loop
        await asyncio.sleep(0.005)


def being_left(peer: Peer) -> None:
    assert peer.is_left_within(1)


class Gate:
    """An event that a script can wait for or set from its thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def open(self) -> None:
        self._event.set()

    def wait(self) -> bool:
        return self._event.wait(PATIENCE_S)

    async def opened(self) -> None:
        await until(self._event.is_set)


# Sent requests


def test_a_request_has_given_fields(run: Run[Any]) -> None:
    """A request is its line, host, the given fields in order, content-length and body."""

    async def scenario() -> None:
        async with asking(answering(OK)) as client:
            fields = [
                (b"content-type", b"application/json"),
                (b"x-a", b"1"),
                (b"x-a", b"\xc3\xa9\xe9"),
            ]
            await client.ask(headers=fields, body=b'{"a": 1}', query="b=%20&c")
            port = client.server.port
            seen = client.server.requests[0]
            assert seen.head == (
                b"POST /v1/x?b=%%20&c HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n"
                b"content-type: application/json\r\nx-a: 1\r\nx-a: \xc3\xa9\xe9\r\n"
                b"content-length: 8\r\n\r\n" % port
            )
            assert seen.body == b'{"a": 1}'

    run(scenario())


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [
        ("GET", b"", None),
        ("DELETE", b"", None),
        ("POST", b"", b"0"),
        ("PUT", b"", b"0"),
        ("PATCH", b"", b"0"),
        ("DELETE", b"{}", b"2"),
        ("GET", b"{}", b"2"),
    ],
)
def test_a_length_is_sent_where_one_belongs(
    run: Run[Any], method: str, body: bytes, length: bytes | None
) -> None:
    """RFC 9110, 8.6: a length is sent with every body, else only for methods that expect one."""

    async def scenario() -> None:
        async with asking(answering(OK)) as client:
            await client.ask(method, body=body)
            fields = client.server.requests[0].fields
            sent = [field for field in fields if field.startswith(b"content-length")]
            assert sent == ([] if length is None else [b"content-length: " + length])

    run(scenario())


def test_a_configured_key_replaces_the_clients(run: Run[Any]) -> None:
    """With `api_key`, that key is the only authorization sent upstream."""

    async def scenario() -> None:
        async with asking(answering(OK), api_key="sk-ours") as client:
            await client.ask(headers=[(b"authorization", b"Bearer sk-theirs"), (b"x-a", b"1")])
            seen = [field for field in client.server.requests[0].fields if b"sk-" in field]
            assert seen == [b"authorization: Bearer sk-ours"]

    run(scenario())


def test_framing_is_never_the_clients(run: Run[Any]) -> None:
    """Fields that frame a message are written by the pool alone, even if a caller passes some."""
    given_fields = [
        (b"host", b"elsewhere"),
        (b"content-length", b"3"),
        (b"transfer-encoding", b"chunked"),
        (b"connection", b"close"),
    ]

    async def scenario() -> None:
        async with asking(answering(OK)) as client:
            await client.ask(headers=given_fields, body=b"12345")
            await client.ask()
            first, second = client.server.requests
            assert first.body == b"12345"
            assert len(first.fields) == len(second.fields) == 2
            assert client.server.connections == 1

    run(scenario())


@pytest.mark.parametrize(
    "bad",
    [
        UpstreamRequest("POST", "/x", [(b"a", b"1\r\nb: 2")]),
        UpstreamRequest("POST", "/x", [(b"a", b"1\n")]),
        UpstreamRequest("POST", "/x", [(b"a", b"\r1")]),
        UpstreamRequest("POST", "/x", [(b"a", b"1\x00")]),
        UpstreamRequest("POST", "/x", [(b"a\r\nb", b"1")]),
        UpstreamRequest("POST", "/x HTTP/1.1\r\nb: 2"),
        UpstreamRequest("POST", "/x\x00"),
        UpstreamRequest("POST", "/x y"),
        UpstreamRequest("POST", "/€"),
        UpstreamRequest("POST", "/x", query="a\nb"),
        UpstreamRequest("GET /y HTTP/1.1\r\n\r\nGET", "/x"),
        UpstreamRequest("", "/x"),
    ],
)
def test_nothing_is_smuggled(run: Run[Any], bad: UpstreamRequest) -> None:
    """A line break, space or NUL that would change the message is refused before any byte."""

    async def scenario() -> None:
        async with asking(answering(OK)) as client:
            with pytest.raises(UpstreamError, match="is not sent"):
                await client.pool.send(bad)
            assert client.server.connections == 0

    run(scenario())


@pytest.mark.parametrize(
    ("base_url", "authority", "port", "path"),
    [
        ("https://api.openai.com/v1", "api.openai.com", 443, "/v1"),
        ("https://api.openai.com:443/v1/", "api.openai.com", 443, "/v1"),
        ("http://Example.COM:8080", "example.com:8080", 8080, ""),
        ("https://example.com:80/a/b", "example.com:80", 80, "/a/b"),
        ("http://[::1]:8000/v1", "[::1]:8000", 8000, "/v1"),
        ("http://[2001:db8::1]/v1", "[2001:db8::1]", 80, "/v1"),
        ("http://bücher.example/v1", "xn--bcher-kva.example", 80, "/v1"),
    ],
)
def test_host_is_formed_as_in_a_url(base_url: str, authority: str, port: int, path: str) -> None:
    """Host has no standard port, IPv6 in brackets, and names in ASCII."""
    origin = origin_of(base_url)
    assert (origin.authority, origin.port, origin.path) == (authority, port, path)


@pytest.mark.parametrize(
    "base_url",
    [
        "ftp://example.com",
        "example.com/v1",
        "http:///v1",
        "http://user:secret@example.com/v1",
        "http://secret@example.com/v1",
        "http://example.com:99999/v1",
        "http://example.com:secret/v1",
        "http://exa mple.com/secret",
        "http://example.com/v1?key=secret",
        "http://example.com/v1#secret",
        "http://example.com/se cret",
        "http://[::1/secret",
    ],
)
def test_an_unusable_base_url_is_refused_at_start(base_url: str) -> None:
    """An unusable base URL gives one sentence that does not repeat a possible password."""
    with pytest.raises(StartupError, match="base_url") as caught:
        Pool(base_url)
    assert "secret@" not in str(caught.value)
    assert "=secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["sk\r\nx: 1", "sk\x00", "sk-€"])
def test_an_unusable_key_is_refused_at_start(key: str) -> None:
    """A key that would break the header is refused without being repeated."""
    with pytest.raises(StartupError, match="api_key") as caught:
        Pool("http://127.0.0.1/v1", key)
    assert key not in str(caught.value)


def test_ipv6_and_names_are_reached(run: Run[Any]) -> None:
    """An IPv6 address works, and so does a name of which only one address listens."""
    try:
        server = RawServer(answering(OK), host="::1")
    except OSError:
        pytest.skip("no IPv6 here")

    async def scenario() -> None:
        with server:
            pool = Pool(server.base_url)
            reply = await pool.send(UpstreamRequest("GET", "/x"))
            assert await reply.read(10) == b"ok"
            assert b"host: [::1]:%d" % server.port in server.requests[0].fields
            await pool.aclose()
        async with asking(answering(OK)) as client:
            pool = Pool(f"http://localhost:{client.server.port}")
            reply = await pool.send(UpstreamRequest("GET", "/x"))
            assert await reply.read(10) == b"ok"
            await pool.aclose()

    run(scenario())


def test_large_bodies_go_both_ways(run: Run[Any]) -> None:
    """1 MB up and 1 MB down arrive whole, and the connection is used again."""

    def script(peer: Peer) -> None:
        while seen := peer.request():
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(seen.body), seen.body)

    async def scenario() -> None:
        async with asking(script) as client:
            for _ in range(3):
                assert (await client.ask(body=BODY)).body == BODY
            assert client.server.connections == 1

    run(scenario())


def test_a_slow_upstream_takes_a_large_body_at_its_pace(
    run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload may take longer than `timeout_s`, as long as upstream goes on reading."""
    body = BODY * 4
    new_socket = pool_module._new_socket

    def with_small_buffer(address: tuple[Any, ...]) -> socket.socket:
        sock = new_socket(address)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**18)
        return sock

    monkeypatch.setattr(pool_module, "_new_socket", with_small_buffer)

    def script(peer: Peer) -> None:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**18)
        peer.head()
        size = len(peer._rest)
        while size < len(body):
            size += len(peer.sock.recv(min(2**18, len(body) - size), socket.MSG_WAITALL))
            time.sleep(0.025)
        peer.send(OK)

    async def scenario() -> None:
        async with asking(script, timeout_s=0.3) as client:
            started = time.perf_counter()
            assert (await client.ask(body=body)).body == b"ok"
            assert time.perf_counter() - started > 0.3

    run(scenario())


# Received replies

REPLIES: dict[str, tuple[bytes, Got]] = {
    "length": (OK, Got(200, [(b"content-length", b"2")], b"ok")),
    "chunked": (
        STREAM + b'5\r\nhello\r\n1;name=value\r\n \r\nA;q="x"\r\n0123456789\r\n0\r\n'
        b"x-trailer: 1\r\nx-other: 2\r\n\r\n",
        Got(200, [(b"transfer-encoding", b"chunked")], b"hello 0123456789"),
    ),
    "until close": (
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nall of it",
        Got(200, [(b"connection", b"close")], b"all of it"),
    ),
    "until close, unsaid": (b"HTTP/1.1 200 OK\r\n\r\nall of it", Got(200, [], b"all of it")),
    "HTTP/1.0": (
        b"HTTP/1.0 200 OK\r\nServer: old\r\n\r\nall of it",
        Got(200, [(b"server", b"old")], b"all of it"),
    ),
    "interim": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + OK,
        Got(200, [(b"content-length", b"2")], b"ok"),
    ),
    "204": (
        b"HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n",
        Got(204, [(b"x-a", b"1")], b""),
    ),
    "304": (
        b"HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n",
        Got(304, [(b"content-length", b"7")], b""),
    ),
    "empty": (
        b"HTTP/1.1 429 \r\nContent-Length: 0\r\n\r\n",
        Got(429, [(b"content-length", b"0")], b""),
    ),
    "fields": (
        b"HTTP/1.1 500\r\nSet-Cookie: a=1\r\nX-Empty:\r\nSet-Cookie: b=2\r\nX-L:  caf\xe9\r\n"
        b"x-u: caf\xc3\xa9\r\nContent-Length: 1\r\n\r\n!",
        Got(
            500,
            [
                (b"set-cookie", b"a=1"),
                (b"x-empty", b""),
                (b"set-cookie", b"b=2"),
                (b"x-l", b"caf\xe9"),
                (b"x-u", b"caf\xc3\xa9"),
                (b"content-length", b"1"),
            ],
            b"!",
        ),
    ),
    "without CR": (
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        Got(200, [(b"content-length", b"2")], b"ok"),
    ),
    "not decoded": (
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\n\x1f\x8b\x00",
        Got(200, [(b"content-encoding", b"gzip"), (b"content-length", b"3")], b"\x1f\x8b\x00"),
    ),
}


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_is_what_upstream_sent(run: Run[Any], name: str) -> None:
    """Status, fields and body are framed as in RFC 9112, with values and order unchanged."""
    raw, expected = REPLIES[name]
    assert ask_once(run, closing(raw)) == expected


@pytest.mark.parametrize("name", REPLIES)
def test_chunks_and_read_give_the_same(run: Run[Any], name: str) -> None:
    """Iterating over a reply gives the bytes that `read` gives."""
    raw, expected = REPLIES[name]

    async def scenario() -> None:
        async with asking(closing(raw)) as client:
            reply = await client.pool.send(UpstreamRequest("POST", "/x"))
            assert b"".join([chunk async for chunk in reply.chunks]) == expected.body
            await reply.aclose()

    run(scenario())


def pieces_of(raw: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted({cut % len(raw) for cut in cuts}), len(raw)]
    return [raw[a:b] for a, b in pairwise(places) if a < b]


CUTS = st.lists(st.integers(0, 2**16), max_size=40)


@pytest.mark.parametrize("kind", LOOPS)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(name=st.sampled_from(sorted(REPLIES)), cuts=CUTS)
def test_it_does_not_matter_how_a_reply_is_split(kind: str, name: str, cuts: list[int]) -> None:
    """Any split into TCP writes gives the same status, fields and body."""
    raw, expected = REPLIES[name]

    async def scenario() -> None:
        async with asking(closing(*pieces_of(raw, cuts))) as client:
            assert await client.ask() == expected

    with asyncio.Runner(loop_factory=lambda: new_loop(kind)) as runner:
        runner.run(scenario())


class Recorded(asyncio.Transport):
    """A transport that only records that it was closed; a test chooses the bytes of every read."""

    def __init__(self) -> None:
        super().__init__({"socket": socket.socket()})
        self.is_aborted = False

    def write(self, data: object) -> None:
        pass

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted


def parsed(pieces: list[bytes]) -> tuple[Got, bool]:
    """Return what a connection reads from these reads and an end, and whether it is reusable."""
    loop = asyncio.new_event_loop()
    free: list[Connection] = []
    connection = Connection(loop, "http://x", 1, free.append, lambda _: None, Bursts())
    transport = Recorded()
    connection.connection_made(transport)
    exchange = HttpReply(loop, "POST")
    connection.start(exchange, b"", b"")
    for piece in pieces:
        if not transport.is_aborted:
            connection.data_received(piece)
    is_kept = bool(free) and not transport.is_aborted
    connection.eof_received()
    loop.close()
    transport.get_extra_info("socket").close()
    assert exchange.is_complete
    return Got(exchange.status, exchange.headers, b"".join(exchange.parts)), is_kept


@given(name=st.sampled_from(sorted(REPLIES)), cuts=CUTS)
def test_it_does_not_matter_where_a_read_ends(name: str, cuts: list[int]) -> None:
    """Any split into exact reads gives the same reply, and keeps the connection or not alike."""
    raw, expected = REPLIES[name]
    assert parsed(pieces_of(raw, cuts)) == (expected, parsed([raw])[1])


def test_a_head_reply_has_no_body(run: Run[Any]) -> None:
    """A reply to HEAD may have a length, and nothing is waited for; the next request works."""

    async def scenario() -> None:
        async with asking(answering(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n")) as client:
            for _ in range(2):
                assert await client.ask("HEAD") == Got(200, [(b"content-length", b"99")], b"")

    run(scenario())


def test_a_reply_begins_with_its_head(run: Run[Any]) -> None:
    """`send` returns before the body, and each part of it is returned when it arrives."""
    gates = [Gate(), Gate()]

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(STREAM)
        for gate in gates:
            gate.wait()
            peer.send(b"3\r\nabc\r\n")
        peer.send(b"0\r\n\r\n")

    async def scenario() -> None:
        async with asking(script) as client:
            reply = await client.pool.send(UpstreamRequest("POST", "/x"))
            assert reply.header(b"transfer-encoding") == "chunked"
            for gate in gates:
                gate.open()
                assert await anext(reply.chunks) == b"abc"
            with pytest.raises(StopAsyncIteration):
                await anext(reply.chunks)
            await reply.aclose()

    run(scenario())


def test_what_has_arrived_comes_in_one_piece(run: Run[Any]) -> None:
    """A reader that was away gets everything that arrived meanwhile at once."""
    gate = Gate()

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(STREAM, *[b"1\r\n%d\r\n" % i for i in range(10)], pause_s=0.001)
        gate.open()
        peer.is_left_within(PATIENCE_S)

    async def scenario() -> None:
        async with asking(script) as client:
            reply = await client.pool.send(UpstreamRequest("POST", "/x"))
            await gate.opened()
            await asyncio.sleep(0.05)
            assert await anext(reply.chunks) == b"0123456789"
            await reply.aclose()

    run(scenario())


def test_a_body_beyond_the_limit_is_not_awaited(run: Run[Any]) -> None:
    """`read` gives up as soon as there is too much, and closes the connection."""
    gate = Gate()

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        assert peer.send_for_ever(b"x" * 65536) < 2**26
        gate.open()

    async def scenario() -> None:
        async with asking(script) as client:
            reply = await client.pool.send(UpstreamRequest("POST", "/x"))
            with pytest.raises(UpstreamBrokenError, match="larger than 1000000 bytes"):
                await reply.read(1_000_000)
            await gate.opened()
            await reply.aclose()

    run(scenario())


def test_a_small_body_beyond_the_limit_is_refused(run: Run[Any]) -> None:
    """The limit also holds for a body that has arrived; one of exactly that size is returned."""

    async def scenario() -> None:
        async with asking(answering(OK)) as client:
            reply = await client.pool.send(UpstreamRequest("POST", "/x"))
            with pytest.raises(UpstreamBrokenError):
                await reply.read(1)
            reply = await client.pool.send(UpstreamRequest("POST", "/x"))
            assert await reply.read(2) == b"ok"

    run(scenario())


# Replies that break off, and invalid ones

CUT = {
    "length": b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
    "chunk": STREAM + b"9\r\nhalf",
    "last chunk": STREAM + b"4\r\nhalf\r\n",
    "trailers": STREAM + b"4\r\nhalf\r\n0\r\nx-a: 1\r\n",
    "bad chunk": STREAM + b"4\r\nhalf\r\nwhat?\r\n",
}


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("is_reset", [False, True])
def test_a_broken_body_is_returned_then_raises(run: Run[Any], name: str, is_reset: bool) -> None:
    """What came before a break is returned, and the break raises an error."""
    gate = Gate()

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(CUT[name])
        if is_reset:
            gate.wait()
            peer.reset()

    async def scenario() -> None:
        async with asking(script) as client:
            reply = await client.pool.send(UpstreamRequest("POST", "/x"))
            assert await anext(reply.chunks) == b"half"
            gate.open()
            with pytest.raises(UpstreamBrokenError):
                await anext(reply.chunks)
            with pytest.raises(UpstreamBrokenError):
                await client.ask()

    run(scenario())


def test_a_reset_is_no_end(run: Run[Any]) -> None:
    """A body without a length ends with a close; a reset is an error."""
    gate = Gate()

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        gate.wait()
        peer.reset()

    async def scenario() -> None:
        async with asking(script) as client:
            reply = await client.pool.send(UpstreamRequest("POST", "/x"))
            gate.open()
            with pytest.raises(UpstreamBrokenError):
                await reply.read(2**20)

    run(scenario())


NOT_HTTP = {
    "nothing": b"",
    "garbage": b"what?\r\n\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x50",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "interim with a length": b"HTTP/1.1 103 Early Hints\r\ncontent-length: 2\r\n\r\n" + OK,
    "interim with none": b"HTTP/1.1 100 Continue\r\ncontent-length: 0\r\n\r\n" + OK,
    "interim in chunks": b"HTTP/1.1 199 ?\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + OK,
    "interim only": b"HTTP/1.1 100 Continue\r\n\r\n",
    "switching": b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    "switching silently": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "a line before it": b"\r\n" + OK,
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
    "bad length": b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
    "length and chunks": STREAM[:-2] + b"content-length: 4\r\n\r\n0\r\n\r\n",
    "folded": b"HTTP/1.1 200 OK\r\nx-a: 1\r\n 2\r\ncontent-length: 0\r\n\r\n",
    "NUL": b"HTTP/1.1 200 OK\r\nx-a: \x00\r\ncontent-length: 0\r\n\r\n",
    "space in name": b"HTTP/1.1 200 OK\r\nx a: 1\r\ncontent-length: 0\r\n\r\n",
    "status 99": b"HTTP/1.1 099 ?\r\ncontent-length: 0\r\n\r\n",
}


@pytest.mark.parametrize("name", NOT_HTTP)
def test_what_is_no_reply_is_an_error(run: Run[Any], name: str) -> None:
    """Garbage, ambiguous framing and an early end are
    UpstreamBrokenError with the upstream's name.
    """
    with pytest.raises(UpstreamBrokenError, match=r"upstream http://127\.0\.0\.1:\d+ "):
        ask_once(run, closing(NOT_HTTP[name]))


ENDLESS = {
    "field": (b"HTTP/1.1 200 OK\r\nx-a: ", b"a" * 1000),
    "field name": (b"HTTP/1.1 200 OK\r\n", b"a" * 1000),
    "fields": (b"HTTP/1.1 200 OK\r\n", b"a: 1\r\n" * 100),
    "reason": (b"HTTP/1.1 200 ", b"OK" * 500),
    "interim": (b"", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"),
    "line ends": (b"", b"\r\n" * 500),
    "trailer": (STREAM + b"0\r\nx-a: ", b"a" * 1000),
    "trailers": (STREAM + b"0\r\n", b"a: 1\r\n" * 100),
    "chunk extension": (STREAM + b"1;", b"a" * 1000),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_ends_is_ended(run: Run[Any], name: str) -> None:
    """An endless head, trailers or framing are refused before they fill the memory."""
    gate = Gate()
    sent = math.inf
    first, more = ENDLESS[name]

    def script(peer: Peer) -> None:
        nonlocal sent
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**16)
        peer.request()
        peer.send(first)
        sent = peer.send_for_ever(more)
        gate.open()

    async def scenario() -> None:
        async with asking(script) as client:
            with pytest.raises(UpstreamBrokenError):
                await client.ask()
            await gate.opened()
            assert sent < 2**24

    run(scenario())


@pytest.mark.parametrize(
    ("fields", "is_taken"),
    [
        (b"x: 1\r\n" * (MAX_FIELDS - 1), True),
        (b"x: 1\r\n" * MAX_FIELDS, False),
        (b"x: " + b"a" * (HEADER_LIMIT - 100) + b"\r\n", True),
        (b"x: " + b"a" * HEADER_LIMIT + b"\r\n", False),
    ],
)
def test_a_head_has_limits(run: Run[Any], fields: bytes, is_taken: bool) -> None:
    """A head may have 64 KiB and a few hundred fields, also if they arrive at once."""
    raw = b"HTTP/1.1 200 OK\r\n" + fields + b"content-length: 2\r\n\r\nok"
    if is_taken:
        assert ask_once(run, closing(raw)).body == b"ok"
        return
    with pytest.raises(UpstreamBrokenError, match="header"):
        ask_once(run, closing(raw))


# Upstreams that cannot be reached


def test_refused_and_unresolvable_are_unreachable(run: Run[Any]) -> None:
    """A failed connection is UpstreamError with 502 and the kind of the failure."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    async def scenario() -> None:
        for host in (f"127.0.0.1:{port}", f"{'x' * 64}.invalid"):
            pool = Pool(f"http://{host}/v1")
            with pytest.raises(
                UpstreamError, match=rf"could not connect to upstream http://{host} \(\w+Error\)"
            ) as caught:
                await pool.send(UpstreamRequest("POST", "/x"))
            assert (caught.value.status, caught.value.code) == (502, "upstream_unreachable")
            await pool.aclose()

    run(scenario())


def test_connecting_does_not_take_for_ever(run: Run[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts and never shakes hands is given up after the connect timeout."""
    monkeypatch.setattr(pool_module, "CONNECT_TIMEOUT_S", 0.1)

    async def scenario() -> None:
        with RawServer(being_left) as server:
            pool = Pool(server.base_url.replace("http:", "https:"))
            with pytest.raises(UpstreamTimeoutError):
                await pool.send(UpstreamRequest("POST", "/x"))
            await pool.aclose()

    run(scenario())


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a self-signed certificate for localhost and its key into one file; return its path."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    names = "-subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
    subprocess.run(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 {names}"
        " -keyout key.pem -out cert.pem",
        shell=True,
        cwd=folder,
        check=True,
        capture_output=True,
    )
    both = folder / "both.pem"
    both.write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return both


@pytest.fixture
def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.mark.parametrize("is_from_environment", [False, True])
def test_tls_with_a_known_certificate(
    run: Run[Any],
    certificate: Path,
    server_tls: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
    is_from_environment: bool,
) -> None:
    """HTTPS works with a given context or SSL_CERT_FILE, for large bodies, and is kept alive."""

    def script(peer: Peer) -> None:
        while seen := peer.request():
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(seen.body), seen.body)

    context = None
    if is_from_environment:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    else:
        context = ssl.create_default_context(cafile=certificate)

    async def scenario() -> None:
        with RawServer(script, server_tls) as server:
            pool = Pool(server.base_url, ssl_context=context)
            for body in (b"small", BODY, b"small"):
                reply = await pool.send(UpstreamRequest("POST", "/x", body=body))
                assert await reply.read(2**21) == body
            assert server.connections == 1
            await pool.aclose()

    run(scenario())


def test_tls_with_an_unknown_certificate(run: Run[Any], server_tls: ssl.SSLContext) -> None:
    """With a certificate of unknown origin it is UpstreamError, and nothing is sent."""

    async def scenario() -> None:
        with RawServer(answering(OK), server_tls) as server:
            pool = Pool(server.base_url)
            with pytest.raises(UpstreamError, match="SSLCertVerificationError"):
                await pool.send(UpstreamRequest("POST", "/x"))
            assert server.requests == []
            await pool.aclose()

    run(scenario())


def test_tls_with_another_hosts_certificate(
    run: Run[Any], certificate: Path, server_tls: ssl.SSLContext
) -> None:
    """A certificate for another host than base_url's is refused."""

    async def scenario() -> None:
        with RawServer(answering(OK), server_tls, host="127.0.0.2") as server:
            context = ssl.create_default_context(cafile=certificate)
            pool = Pool(server.base_url, ssl_context=context)
            with pytest.raises(UpstreamError, match="SSLCertVerificationError"):
                await pool.send(UpstreamRequest("POST", "/x"))
            await pool.aclose()

    run(scenario())


def test_tls_where_there_is_none(run: Run[Any]) -> None:
    """A server that does not speak TLS gives UpstreamError."""

    async def scenario() -> None:
        with RawServer(lambda peer: peer.send(NOT_HTTP["garbage"])) as server:
            pool = Pool(server.base_url.replace("http:", "https:"))
            with pytest.raises(UpstreamError, match="could not connect"):
                await pool.send(UpstreamRequest("POST", "/x"))
            await pool.aclose()

    run(scenario())


def test_tls_cut_off_and_left(run: Run[Any], certificate: Path, server_tls: ssl.SSLContext) -> None:
    """Over TLS a cut is UpstreamBrokenError, and closing a reply closes the connection."""
    gate = Gate()

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(CUT["length"])
        if peer.number == 1:
            assert peer.is_left_within(1)
            gate.open()

    async def scenario() -> None:
        with RawServer(script, server_tls) as server:
            context = ssl.create_default_context(cafile=certificate)
            pool = Pool(server.base_url, ssl_context=context)
            reply = await pool.send(UpstreamRequest("POST", "/x"))
            with pytest.raises(UpstreamBrokenError):
                await reply.read(2**20)
            reply = await pool.send(UpstreamRequest("POST", "/x"))
            await reply.aclose()
            await gate.opened()
            await pool.aclose()

    run(scenario())


# Kept connections


def test_connections_persist(run: Run[Any]) -> None:
    """Consecutive requests share one connection, however their replies are framed."""

    async def scenario() -> None:
        for name in ("length", "chunked", "interim", "204", "304", "empty", "without CR"):
            async with asking(answering(REPLIES[name][0])) as client:
                for _ in range(5):
                    assert await client.ask() == REPLIES[name][1]
                assert client.server.connections == 1
                assert len(client.server.requests) == 5

    run(scenario())


def test_the_warmest_connection_is_taken(run: Run[Any]) -> None:
    """The connection that was used last is used next, so that spare ones can age."""
    used: list[int] = []
    gate = threading.Barrier(3)

    def script(peer: Peer) -> None:
        peer.request()
        gate.wait(PATIENCE_S)
        time.sleep(peer.number * 0.05)
        peer.send(OK)
        while peer.request():
            used.append(peer.number)
            peer.send(OK)

    async def scenario() -> None:
        async with asking(script) as client:
            await asyncio.gather(*(client.ask() for _ in range(3)))
            for _ in range(4):
                await client.ask()
            assert used == [2, 2, 2, 2]

    run(scenario())


@pytest.mark.parametrize(
    "raw",
    [
        REPLIES["until close"][0],
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        OK + OK,
        OK + b"x",
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 900000\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\nok",
    ],
)
def test_connection_is_not_reused(run: Run[Any], raw: bytes) -> None:
    """Where upstream will close, or sent more than
    its reply, the next request has a new connection.
    """

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(raw)
        if b"connection: close\r\n\r\n" not in raw:
            assert peer.is_left_within(1)

    async def scenario() -> None:
        async with asking(script) as client:
            first = await client.ask()
            assert await client.ask() == first
            assert client.server.connections == 2

    run(scenario())


def test_http_1_0_keep_alive_is_reused(run: Run[Any]) -> None:
    """A connection with HTTP/1.0, keep-alive and a length is kept, too."""
    raw = b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok"

    async def scenario() -> None:
        async with asking(answering(raw)) as client:
            await client.ask()
            await client.ask()
            assert client.server.connections == 1

    run(scenario())


def test_late_bytes_answer_nothing(run: Run[Any]) -> None:
    """Bytes on an idle connection close it, and are no reply to the next request."""
    gate = Gate()

    def script(peer: Peer) -> None:
        if peer.request():
            peer.send(OK)
            if peer.number == 0:
                time.sleep(0.02)
                peer.send(OK.replace(b"ok", b"no"))
                assert peer.is_left_within(1)
                gate.open()

    async def scenario() -> None:
        async with asking(script) as client:
            assert (await client.ask()).body == b"ok"
            await gate.opened()
            assert (await client.ask()).body == b"ok"
            assert client.server.connections == 2

    run(scenario())


@pytest.mark.parametrize("ending", ["close", "reset", "half", "408"])
def test_a_connection_that_upstream_closed_is_not_used(run: Run[Any], ending: str) -> None:
    """An idle connection that upstream closed costs no request, not even a POST."""

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(OK)
        if ending == "reset":
            time.sleep(0.01)
            peer.reset()
        elif ending == "half":
            peer.finish_writing()
            peer.is_left_within(PATIENCE_S)
        elif ending == "408":
            peer.send(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")

    async def scenario() -> None:
        async with asking(script) as client:
            for number in range(3):
                assert (await client.ask()).body == b"ok"
                await until(lambda: not client.pool._idle)  # a busy machine closes later
                assert client.server.connections == number + 1

    run(scenario())


def test_a_close_that_the_loop_has_not_seen_yet(run: Run[Any]) -> None:
    """A POST goes to a new connection also where the loop was busy while upstream closed."""
    gate = Gate()

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(OK)
        gate.wait()

    async def scenario() -> None:
        async with asking(script) as client:
            await client.ask()
            gate.open()
            time.sleep(0.05)  # noqa: ASYNC251 - the loop must not run
            assert (await client.ask()).body == b"ok"
            assert client.server.connections == 2

    run(scenario())


@pytest.mark.skipif("uvloop" not in LOOPS, reason="others write before they read")
@pytest.mark.parametrize("last", [b"", OK], ids=["the end", "another answer"])
def test_a_request_that_waits_for_others_is_not_lost(last: bytes) -> None:
    """Bytes that arrive before a gathered request was sent are no answer to
    it: nothing of it was sent, so that even a POST goes to a new connection.
    """
    gate, sent = Gate(), Gate()

    def script(peer: Peer) -> None:
        for _ in range(2):  # a connection that was used again is not checked
            peer.request()
            peer.send(OK)
        if peer.number == 0:
            gate.wait()
            peer.send(last)
            if not last:
                peer.finish_writing()
            sent.open()
        peer.is_left_within(PATIENCE_S)

    async def scenario() -> None:
        async with asking(script) as client:
            for _ in range(2):
                await client.ask()
            client.pool._bursts.is_gathering = True
            gate.open()
            sent.wait()  # the loop must not run
            assert (await client.ask(body=b"3")).body == b"ok"
            assert [each.body for each in client.server.requests] == [b"", b"", b"3"]
            assert client.server.connections == 2

    with asyncio.Runner(loop_factory=lambda: new_loop("uvloop")) as runner:
        runner.run(scenario())


def dropping(times: int, started: bytes = b"") -> Script:
    """Return a script that serves one request per connection.

    The first `times` connections read a second request and then drop it.
    """

    def script(peer: Peer) -> None:
        while peer.request():
            if peer.number < times and len(peer._server.requests) > 1:
                peer.send(started)
                return
            peer.send(OK)

    return script


def test_a_post_is_never_sent_twice(run: Run[Any]) -> None:
    """Where a kept connection closes after a POST was written, that is an error, not a retry."""

    async def scenario() -> None:
        async with asking(dropping(1)) as client:
            await client.ask()
            with pytest.raises(UpstreamBrokenError, match="broke off its answer"):
                await client.ask()
            assert len(client.server.requests) == 2
            assert (await client.ask()).body == b"ok"

    run(scenario())


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_an_idempotent_request_is_sent_once_more(run: Run[Any], method: str) -> None:
    """When a kept connection closes without a byte, GET and its like go to a new connection."""

    async def scenario() -> None:
        async with asking(dropping(1)) as client:
            await client.ask()
            assert (await client.ask(method)).status == 200
            assert len(client.server.requests) == 3
            assert client.server.connections == 2

    run(scenario())


def test_once_more_is_once(run: Run[Any]) -> None:
    """The second attempt is the last: a new connection that closes at once is not retried."""

    async def scenario() -> None:
        async with asking(dropping(9)) as client:
            await client.ask()
            with pytest.raises(UpstreamBrokenError):
                await client.ask("GET")
            assert len(client.server.requests) == 3
            with pytest.raises(UpstreamBrokenError):
                await client.ask("GET")
            assert len(client.server.requests) == 4

    run(scenario())


def test_started_replies_are_not_retried(run: Run[Any]) -> None:
    """After a single byte of a reply the request is not repeated, since upstream has seen it."""

    async def scenario() -> None:
        async with asking(dropping(1, started=b"H")) as client:
            await client.ask()
            with pytest.raises(UpstreamBrokenError):
                await client.ask("GET")
            assert len(client.server.requests) == 2

    run(scenario())


def test_idle_connections_grow_old(run: Run[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle connection is closed after the keep-alive time, and one in use is not."""
    monkeypatch.setattr(pool_module, "KEEP_ALIVE_S", 0.05)
    monkeypatch.setattr(pool_module, "SWEEP_S", 0.02)
    gate = Gate()

    def script(peer: Peer) -> None:
        peer.request()
        if peer.number == 1:
            time.sleep(0.15)
        peer.send(OK)
        assert peer.is_left_within(1)
        if peer.number == 0:
            gate.open()

    async def scenario() -> None:
        async with asking(script) as client:
            await client.ask()
            await gate.opened()
            assert (await client.ask()).body == b"ok"

    run(scenario())


def test_idle_connections_are_bounded(run: Run[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """After a burst a limited number of connections is kept, and the others close at once."""
    monkeypatch.setattr(pool_module, "MAX_IDLE", 3)
    assert MAX_IDLE == 256
    left: list[int] = []

    def script(peer: Peer) -> None:
        peer.request()
        time.sleep(0.05)
        peer.send(OK)
        if peer.is_left_within(0.5):
            left.append(peer.number)

    async def scenario() -> None:
        async with asking(script) as client:
            await asyncio.gather(*(client.ask() for _ in range(10)))
            await until(lambda: len(left) == 7)
            await asyncio.sleep(0.05)
            assert len(left) == 7

    run(scenario())


def test_two_hundred_at_once(run: Run[Any]) -> None:
    """Each of 200 concurrent requests gets its own reply, and their connections serve the next."""

    def script(peer: Peer) -> None:
        while seen := peer.request():
            time.sleep(0.05)
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(seen.body), seen.body)

    async def scenario() -> None:
        async with asking(script) as client:
            for _ in range(2):
                bodies = [b"%d" % number for number in range(200)]
                got = await asyncio.gather(*(client.ask(body=body) for body in bodies))
                assert [each.body for each in got] == bodies
            assert 100 < client.server.connections <= 200

    run(scenario())


# Cancellation


def waiting_to_be_left(started: bytes, gate: Gate) -> Script:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(started)
        assert peer.is_left_within(1)
        gate.open()

    return script


@pytest.mark.parametrize("started", [b"", b"HTTP/1.1 200 OK\r\n"])
def test_cancelled_request_disconnects(run: Run[Any], started: bytes) -> None:
    """When the task in `send` is cancelled, upstream's connection closes."""
    gate = Gate()

    async def scenario() -> None:
        async with asking(waiting_to_be_left(started, gate)) as client:
            task = asyncio.create_task(client.ask(body=BODY))
            await until(lambda: len(client.server.requests) == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await gate.opened()

    run(scenario())


def test_cancelled_upload_disconnects(run: Run[Any]) -> None:
    """When the task is cancelled while a large body is written, upstream's connection closes."""
    gate = Gate()

    def script(peer: Peer) -> None:
        peer.head()
        gate.open()
        assert peer.is_left_within(1)

    async def scenario() -> None:
        async with asking(script) as client:
            task = asyncio.create_task(client.ask(body=BODY * 64))
            await gate.opened()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(scenario())


@pytest.mark.parametrize("turns", range(12))
def test_a_request_can_be_cancelled_at_any_moment(run: Run[Any], turns: int) -> None:
    """Cancelling while connecting, sending or reading leaves nothing open and logs no error."""

    async def scenario() -> None:
        async with asking(answering(STREAM, b"1\r\na\r\n0\r\n\r\n")) as client:
            for _ in range(2):
                task = asyncio.create_task(client.ask())
                for _ in range(turns):
                    await asyncio.sleep(0)
                if turns % 3 == 2:
                    await asyncio.sleep(0.001 * turns)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert (await client.ask()).body == b"a"

    run(scenario())


def test_cancelled_while_connecting(run: Run[Any]) -> None:
    """A cancelled task gives up a handshake at once."""
    gate = Gate()

    def script(peer: Peer) -> None:
        assert peer.is_left_within(1)
        gate.open()

    async def scenario() -> None:
        with RawServer(script) as server:
            pool = Pool(server.base_url.replace("http:", "https:"))
            task = asyncio.create_task(pool.send(UpstreamRequest("POST", "/x")))
            await until(lambda: server.connections == 1)
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await gate.opened()
            await pool.aclose()

    run(scenario())


def test_closing_half_a_reply_closes_the_connection(run: Run[Any]) -> None:
    """`aclose` before the end closes upstream's connection at once, and a waiting reader ends."""
    gate = Gate()

    async def scenario() -> None:
        async with asking(waiting_to_be_left(STREAM + b"1\r\na\r\n", gate)) as client:
            reply = await client.pool.send(UpstreamRequest("POST", "/x"))
            assert await anext(reply.chunks) == b"a"
            reader = asyncio.ensure_future(anext(reply.chunks))
            await asyncio.sleep(0.01)
            await reply.aclose()
            await gate.opened()
            with pytest.raises(UpstreamBrokenError):
                await reader
            await reply.aclose()

    run(scenario())


def test_closing_a_whole_reply_keeps_the_connection(run: Run[Any]) -> None:
    """A reply that arrived but was not read leaves its connection to the next request."""

    async def scenario() -> None:
        async with asking(answering(OK)) as client:
            for _ in range(3):
                reply = await client.pool.send(UpstreamRequest("POST", "/x"))
                await asyncio.sleep(0.01)
                await reply.aclose()
                await reply.on_close()
            assert client.server.connections == 1

    run(scenario())


def test_closing_the_pool_closes_everything(run: Run[Any]) -> None:
    """Closing the pool closes all connections, ends readers, and refuses new requests."""
    left: list[int] = []

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(OK if peer.number == 0 else STREAM)
        if peer.is_left_within(1):
            left.append(peer.number)

    async def scenario() -> None:
        async with asking(script) as client:
            whole = await client.pool.send(UpstreamRequest("POST", "/x"))
            client.pool._idle.clear()  # so that the next one needs a connection of its own
            half = await client.pool.send(UpstreamRequest("POST", "/x"))
            reader = asyncio.ensure_future(half.read(2**20))
            await asyncio.sleep(0.01)
            await client.pool.aclose()
            with pytest.raises(UpstreamError):
                await reader
            assert await whole.read(2) == b"ok"
            with pytest.raises(UpstreamError):
                await client.ask()
            await until(lambda: sorted(left) == [0, 1])

    run(scenario())


# Silence


@pytest.mark.parametrize("started", [b"", b"HTTP/1.1 200 OK\r\ncontent-le"])
def test_silence_before_the_head(run: Run[Any], started: bytes) -> None:
    """After `timeout_s` without a byte it is UpstreamTimeoutError, and upstream is left."""
    gate = Gate()

    async def scenario() -> None:
        async with asking(waiting_to_be_left(started, gate), timeout_s=0.1) as client:
            with pytest.raises(UpstreamTimeoutError, match="did not answer in time"):
                await client.ask()
            await gate.opened()

    run(scenario())


@pytest.mark.parametrize("is_read_whole", [False, True])
def test_silence_between_bytes(run: Run[Any], is_read_whole: bool) -> None:
    """Silence within a body is a timeout too, after the bytes that arrived were returned."""
    gate = Gate()

    async def scenario() -> None:
        async with asking(
            waiting_to_be_left(STREAM + b"1\r\na\r\n", gate), timeout_s=0.1
        ) as client:
            reply = await client.pool.send(UpstreamRequest("POST", "/x"))
            if is_read_whole:
                with pytest.raises(UpstreamTimeoutError):
                    await reply.read(100)
            else:
                assert await anext(reply.chunks) == b"a"
                with pytest.raises(UpstreamTimeoutError):
                    await anext(reply.chunks)
            await gate.opened()

    run(scenario())


def test_an_upstream_that_does_not_read(run: Run[Any]) -> None:
    """A body that upstream does not read counts as silence, too."""
    gate = Gate()

    def script(peer: Peer) -> None:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)
        gate.wait()

    async def scenario() -> None:
        async with asking(script, timeout_s=0.1) as client:
            with pytest.raises(UpstreamTimeoutError):
                await client.ask(body=BODY * 16)
            gate.open()

    run(scenario())


def test_a_slow_reply_is_not_silence(run: Run[Any]) -> None:
    """A reply may take much longer than `timeout_s`, as long as something arrives."""

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(STREAM, *[b"1\r\na\r\n"] * 9, b"0\r\n\r\n", pause_s=0.04)

    async def scenario() -> None:
        async with asking(script, timeout_s=0.2) as client:
            assert (await client.ask()).body == b"a" * 9

    run(scenario())


# Slow readers and slow writers


def test_a_slow_reader_slows_upstream(run: Run[Any]) -> None:
    """While nobody reads little is received, and that is not upstream's silence."""
    sent = 0
    total = 32 * 2**20

    def script(peer: Peer) -> None:
        nonlocal sent
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**16)
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        while sent < total:
            sent += peer.sock.send(BODY)

    async def scenario() -> None:
        async with asking(script, timeout_s=0.1) as client:
            reply = await client.pool.send(UpstreamRequest("POST", "/x"))
            await asyncio.sleep(0.3)
            assert sent < total / 2
            first = await anext(reply.chunks)
            assert HIGH_WATER < len(first) < 3 * HIGH_WATER
            size = len(first)
            async for chunk in reply.chunks:
                size += len(chunk)
                assert len(chunk) < 3 * HIGH_WATER
            assert size == total
            await reply.aclose()

    run(scenario())


def test_a_paused_reply_can_be_read_whole(run: Run[Any]) -> None:
    """`read` continues a paused reply, and the connection can be used again."""
    raw = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (8 * len(BODY)) + BODY * 8

    async def scenario() -> None:
        async with asking(answering(raw)) as client:
            for _ in range(2):
                reply = await client.pool.send(UpstreamRequest("POST", "/x"))
                await asyncio.sleep(0.05)
                assert await reply.read(2**24) == BODY * 8
            assert client.server.connections == 1

    run(scenario())


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_refused_upload_is_answered(run: Run[Any], is_reset: bool) -> None:
    """Where upstream answers 413 and closes while the body is sent, the reply is returned."""
    refusal = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nbig"

    def script(peer: Peer) -> None:
        peer.head()
        peer.send(refusal)
        if is_reset:
            time.sleep(0.1)  # on a busy machine a reset can overtake the bytes before it
            return  # with unread bytes, a close is a reset
        assert peer.is_left_within(PATIENCE_S)

    async def scenario() -> None:
        async with asking(script) as client:
            for number in range(2):
                got = await client.ask(body=BODY * 16)
                assert (got.status, got.body) == (413, b"big")
                assert client.server.connections == number + 1

    run(scenario())


def test_an_answer_may_come_while_the_body_is_sent(run: Run[Any]) -> None:
    """An upstream that answers while it reads gets the whole body."""
    body = BODY * 8

    def script(peer: Peer) -> None:
        head = peer.head()
        assert b"content-length: %d" % len(body) in head
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body), peer._rest)
        echoed = len(peer._rest)
        while echoed < len(body) and (data := peer.sock.recv(2**16)):
            peer.send(data)
            echoed += len(data)

    assert ask_once(run, script, body=body).body == body


@pytest.mark.parametrize("how", [socket.SHUT_WR, socket.SHUT_RD])
def test_half_closed_connections(run: Run[Any], how: int) -> None:
    """Upstream may end one direction after it read the request, and its reply is whole."""

    def script(peer: Peer) -> None:
        peer.request()
        if how == socket.SHUT_RD:
            peer.sock.shutdown(how)
        peer.send(OK)
        if how == socket.SHUT_WR:
            peer.sock.shutdown(how)
            assert peer.is_left_within(1)

    async def scenario() -> None:
        async with asking(script) as client:
            for _ in range(2):
                assert (await client.ask()).body == b"ok"
                await asyncio.sleep(0.02)

    run(scenario())


def test_a_forward_proxy_in_the_environment_is_not_used(
    run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP_PROXY is for httpx, which serves upstreams
    behind one, and changes nothing in the pool.
    """
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert ask_once(run, answering(OK)).body == b"ok"


# Through a company's forward proxy


def forwarding(heads: list[bytes], status: int = 200) -> Script:
    """Return a forward proxy that opens or refuses tunnels, and records the heads of requests."""

    def script(peer: Peer) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += peer.sock.recv(1)
        heads.append(head)
        peer.send(b"HTTP/1.1 %d It Is\r\n\r\n" % status)
        if status >= 300:
            return
        host, _, port = head.split()[1].decode().rpartition(":")
        with socket.create_connection((host, int(port))) as there:
            others = {peer.sock: there, there: peer.sock}
            while ready := select.select([*others], [], [], PATIENCE_S)[0]:
                for each in ready:
                    if not (part := each.recv(65_536)):
                        return
                    others[each].sendall(part)

    return script


@pytest.mark.parametrize("no_proxy", ["", "example.org,localhost"])
def test_https_goes_through_the_forward_proxy(
    run: Run[Any],
    certificate: Path,
    server_tls: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
    no_proxy: str,
) -> None:
    """HTTPS_PROXY opens a tunnel with the proxy's login and
    without the key; hosts in NO_PROXY are reached directly.
    """

    async def scenario() -> None:
        heads: list[bytes] = []
        with RawServer(forwarding(heads)) as between:
            monkeypatch.setenv("HTTPS_PROXY", f"http://me:p%40ss@127.0.0.1:{between.port}")
            for name in ("NO_PROXY", "no_proxy"):
                monkeypatch.setenv(name, no_proxy)
            with RawServer(answering(OK), server_tls) as server:
                place = server.base_url.replace("127.0.0.1", "localhost")
                context = ssl.create_default_context(cafile=certificate)
                pool = Pool(place, "sk-secret", ssl_context=context)
                reply = await pool.send(UpstreamRequest("POST", "/x", body=b"{}"))
                assert reply.status == 200
                await reply.aclose()
                await pool.aclose()
            if no_proxy:
                assert heads == []
                return
            [head] = heads
            assert head.startswith(b"CONNECT localhost:")
            assert b"proxy-authorization: Basic bWU6cEBzcw==" in head
            assert b"sk-secret" not in head

    run(scenario())


def test_forward_proxy_refusal_is_reported(run: Run[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the forward proxy without its password; http:// is reached directly."""

    async def scenario() -> None:
        heads: list[bytes] = []
        with RawServer(forwarding(heads, 407)) as between:
            address = f"127.0.0.1:{between.port}"
            monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@{address}")
            monkeypatch.setenv("NO_PROXY", "")
            pool = Pool("https://api.example.com/v1")
            with pytest.raises(UpstreamError) as error:
                await pool.send(UpstreamRequest("POST", "/x", body=b"{}"))
            assert error.value.message == (
                f"the proxy at http://{address} (HTTPS_PROXY) opens no tunnel to "
                "api.example.com:443 (407)"
            )
            await pool.aclose()
            with RawServer(answering(OK)) as server:
                pool = Pool(server.base_url)
                await (await pool.send(UpstreamRequest("GET", "/x"))).aclose()
                await pool.aclose()
            assert len(heads) == 1

    run(scenario())


def test_a_forward_proxy_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid forward proxy is refused at the start, without repeating the variable."""
    monkeypatch.setenv("HTTPS_PROXY", "socks5://me:secret@127.0.0.1:1080")
    monkeypatch.setenv("NO_PROXY", "")
    with pytest.raises(StartupError, match="HTTPS_PROXY must be the address") as error:
        Pool("https://api.example.com/v1")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("host", "exceptions", "is_named"),
    [
        ("api.example.com", "example.com", True),
        ("api.example.com", " .Example.com , x", True),
        ("api.example.com", "*.example.com", True),
        ("api.example.com", "api.example.com:443", True),
        ("api.example.com", "api.example.com.", True),
        ("api.example.com", "xample.com,pi.example.com", False),
        ("api.example.com", "10.0.0.0/8", False),
        ("10.1.2.3", "localhost,10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("fd00::1", "fd00::/8", True),
        ("api.example.com", ",,", False),
    ],
)
def test_exceptions_are_hosts_domains_and_networks(
    host: str, exceptions: str, is_named: bool
) -> None:
    """NO_PROXY is read in the forms that clients of other languages read too."""
    assert is_excepted(host, exceptions) is is_named


@pytest.mark.parametrize("ending", ["", "/v1/v1", "/v1/chat/completions", "/v1/messages/"])
def test_missing_v1_is_logged_once(run: Run[Any], ending: str) -> None:
    """Where upstream knows no path, the log says once what is often wrong with the address."""

    async def scenario() -> None:
        with capture_logs() as lines, RawServer(answering(OK.replace(b"200 OK", b"404 No"))) as one:
            place = one.base_url.removesuffix("/v1")
            pool = Pool(place + ending)
            for _ in range(2):
                await (await pool.send(UpstreamRequest("GET", "/x"))).aclose()
            await pool.aclose()
            [line] = [each for each in lines if each["event"] == "upstream_knows_no_path"]
            assert line["hint"] == f"did you mean base_url: {place}/v1 ?"

    run(scenario())
