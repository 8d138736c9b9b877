"""Attacks on the server's end of HTTP: hidden requests, endless input, and use of all room.

Each test runs the real server; `tests/fuzz/http.py` compares it with other parsers.
"""

from __future__ import annotations

import asyncio
import gc
import re
import select
import socket
import time
import tracemalloc
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import HostNotAllowedError
from proxy.gate.host_check import check_host
from proxy.gate.key_hash import hash_key
from proxy.http.listener import connections
from proxy.http.listener import http_protocol as http_server
from proxy.http.listener.connections import BEGUN_IN_A_TURN, Connections
from proxy.http.listener.request_heads import read_target
from proxy.http.wire import headers
from proxy.http.wire.http import request_of
from tests.proxy.http.listener.http_recorder import Recorder, connect, everything, serving
from tests.running.client_keys import make_key, wait_until_known
from tests.running.live_proxy import LiveProxy
from tests.servers.raw_server import Peer, RawServer

BODY = b"GET /v1/files?smuggled=1 HTTP/1.1\r\nhost: x\r\n\r\n"
HOST = b"host: localhost\r\n"
PLAIN = b"POST /v1/embeddings HTTP/1.1\r\n" + HOST + b"content-length: %d\r\n" % len(BODY)
CHUNKED = b"POST /v1/embeddings HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n"
GET = b"GET /v1/models HTTP/1.1\r\n" + HOST + b"\r\n"


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the timeouts to a twentieth."""
    monkeypatch.setattr(connections, "SWEEP_S", 0.05)
    for name in ("HEAD_S", "BODY_S", "LINGER_S"):
        monkeypatch.setattr(http_server, name, getattr(http_server, name) / 20)


def status_of(reply: bytes) -> int:
    return int(reply[9:12])


# An Upgrade that is not taken


@pytest.mark.parametrize("framing", ["a length", "chunks"])
@pytest.mark.parametrize("pieces", ["one segment", "a segment each", "byte by byte"])
@pytest.mark.parametrize("upgrade", [b"h2c", b"foo", b"websocket", b"websocket, h2c", b"TLS/1.0"])
@pytest.mark.parametrize("connection", [b"upgrade", b"Upgrade, HTTP2-Settings", b"close, UPGRADE"])
def test_the_body_behind_an_upgrade_is_a_body(
    recorder: Recorder, connection: bytes, upgrade: bytes, pieces: str, framing: str
) -> None:
    """The body of a POST with an Upgrade belongs to that request, whatever protocol it offers."""
    asking = b"connection: %b\r\nupgrade: %b\r\nhttp2-settings: AAMAAABk\r\n\r\n"
    if framing == "chunks":
        head, body = CHUNKED, b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    else:
        head, body = PLAIN, BODY
    head += asking % (connection, upgrade)
    after = GET.replace(b"models", b"after").replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    sent = {"one segment": [head + body + after], "a segment each": [head, body, after]}.get(
        pieces, [bytes([byte]) for byte in head + body + after]
    )
    with serving(recorder) as port, connect(port) as sock:
        for piece in sent:
            try:
                sock.sendall(piece)
            except OSError:
                break  # the request has `close`
            if len(sent) == 3:
                time.sleep(0.02)
        replies = everything(sock)
    seen = [("POST", b"/v1/embeddings", BODY)]
    if not connection.startswith(b"close"):
        seen.append(("GET", b"/v1/after", b""))
    assert recorder.seen == seen
    assert replies.count(b"HTTP/1.1 200 OK") == len(seen)


def test_upstream_gets_the_body_behind_an_upgrade(tmp_path: Path) -> None:
    """Upstream gets one request with the body behind an Upgrade."""

    def answer(peer: Peer) -> None:
        while peer.request():
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    with RawServer(answer) as upstream:
        proxy = LiveProxy(upstream.base_url, tmp_path)
        try:
            with connect(proxy.port) as sock:
                sock.sendall(PLAIN + b"connection: upgrade, close\r\nupgrade: h2c\r\n\r\n")
                time.sleep(0.2)
                sock.sendall(BODY)
                reply = everything(sock)
        finally:
            proxy.stop()
    assert [(seen.line, seen.body) for seen in upstream.requests] == [
        (b"POST /v1/embeddings HTTP/1.1", BODY)
    ]
    assert reply.count(b"HTTP/1.1 ") == 1


def test_an_upgrade_without_a_body_is_answered(recorder: Recorder) -> None:
    """A GET that offers h2c, as Java's client does by itself, is answered as an ordinary GET."""
    asked = b"GET /v1/models HTTP/1.1\r\n" + HOST
    asked += b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AA\r\n\r\n"
    with serving(recorder) as port, connect(port) as sock:
        for _ in range(3):
            sock.sendall(asked)
            assert sock.recv(2**16).startswith(b"HTTP/1.1 200 OK")
    assert recorder.seen == [("GET", b"/v1/models", b"")] * 3


def test_a_handshake_waits_for_no_reply(recorder: Recorder) -> None:
    """An offer of WebSockets behind a request that is still being answered is ignored."""
    handshake = GET.replace(b"\r\n\r\n", b"\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
    with serving(recorder) as port, connect(port) as sock:
        sock.sendall(GET + handshake + GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        assert everything(sock).count(b"HTTP/1.1 200 OK") == 3
    assert recorder.seen == [("GET", b"/v1/models", b"")] * 3


def test_trailers_are_no_fields(recorder: Recorder) -> None:
    """Trailers behind a body are dropped, whether the body is read late or early."""
    body = b"2\r\nhi\r\n0\r\nauthorization: Bearer sk-other\r\nx-trailer: 1\r\n\r\n"
    with serving(recorder) as port, connect(port) as sock:
        for pieces in ([CHUNKED + b"\r\n" + body], [CHUNKED + b"\r\n", body]):
            for piece in pieces:
                sock.sendall(piece)
                time.sleep(0.05)
            assert sock.recv(2**16).startswith(b"HTTP/1.1 200 OK")
            names = [name for name, _ in recorder.fields]
            assert names == [b"host", b"transfer-encoding"]


# Ambiguous requests

UNREADABLE = {
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    "a host with a path": b"GET / HTTP/1.1\r\nhost: 127.0.0.1:80/static/?\r\n\r\n",
    "a host with a user": b"GET / HTTP/1.1\r\nhost: a@127.0.0.1\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\n" + HOST + b"\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "CONNECT": b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a fragment": b"GET /a#b HTTP/1.1\r\n" + HOST + b"\r\n",
    "a star": b"GET * HTTP/1.1\r\n" + HOST + b"\r\n",
    "no slash": b"GET a HTTP/1.1\r\n" + HOST + b"\r\n",
    "a path above the root": b"GET /a/../../b HTTP/1.1\r\n" + HOST + b"\r\n",
    "a path above the root, encoded": b"GET /%2e%2e/b HTTP/1.1\r\n" + HOST + b"\r\n",
    "another host in the target": b"GET http://other/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "letters beyond ASCII": b"GET /caf\xc3\xa9 HTTP/1.1\r\n" + HOST + b"\r\n",
    "two lengths": PLAIN + b"content-length: 1\r\n\r\n",
    "the same length twice": PLAIN + b"content-length: %d\r\n\r\n" % len(BODY) + BODY,
    "a length and chunks": PLAIN + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "gzip and chunks": CHUNKED.replace(b"chunked", b"gzip, chunked") + b"\r\n0\r\n\r\n",
    "chunks twice": CHUNKED + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "no chunks": CHUNKED.replace(b"chunked", b"identity") + b"\r\n",
    "chunks within a word": CHUNKED.replace(b"chunked", b"xchunked") + b"\r\n0\r\n\r\n",
    "chunks and nothing": CHUNKED.replace(b"chunked", b"chunked,") + b"\r\n0\r\n\r\n",
    "chunks before another": CHUNKED.replace(b"chunked", b"chunked, gzip") + b"\r\n0\r\n\r\n",
    "chunks with a parameter": CHUNKED.replace(b"chunked", b"chunked;q=1") + b"\r\n0\r\n\r\n",
    "an empty coding": CHUNKED.replace(b"chunked", b"") + b"\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n0\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nhost : localhost\r\n\r\n",
    "a folded line": b"GET / HTTP/1.1\r\n" + HOST + b"a: 1\r\n b\r\n\r\n",
    "line ends without CR": b"GET / HTTP/1.1\nhost: localhost\n\n",
    "NUL in a value": b"GET / HTTP/1.1\r\n" + HOST + b"a: \x00\r\n\r\n",
    "a chunk of no size": CHUNKED + b"\r\nx\r\n",
    "a chunk that is longer": CHUNKED + b"\r\n1\r\nab\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_could_be_read_differently_is_refused(recorder: Recorder, name: str) -> None:
    """An ambiguous request gets 400 in our envelope, and its connection is closed."""
    with serving(recorder) as port, connect(port) as sock:
        sock.sendall(UNREADABLE[name] + GET)
        replies = everything(sock)
    assert status_of(replies) == 400
    assert replies.count(b"HTTP/1.1 400") == 1
    assert b'"code": "invalid_http"' in replies
    assert b"connection: close\r\n" in replies
    assert recorder.seen == []


def test_earlier_requests_are_answered_before_a_refusal(recorder: Recorder) -> None:
    """The refusal of an unreadable request comes after the replies to the requests before it."""
    with serving(recorder) as port, connect(port) as sock:
        sock.sendall(GET + GET + b"what is this?\r\n\r\n" + GET)
        replies = everything(sock)
    assert re.findall(rb"HTTP/1.1 (\d+) ", replies) == [b"200", b"200", b"400"]


# Limits of size and time


@pytest.mark.parametrize(
    ("sent", "is_taken"),
    [
        (b"a: " + b"x" * 60_000, True),
        (b"a: " + b"x" * 70_000, False),
        (b"a" * 70_000 + b": x", False),
        (b"\r\n".join(b"a%d: x" % n for n in range(199)), True),
        (b"\r\n".join(b"a%d: x" % n for n in range(200)), False),
        (b"\r\n".join(b"a%d: %b" % (n, b"x" * 999) for n in range(70)), False),
    ],
)
def test_a_head_has_a_size(recorder: Recorder, sent: bytes, is_taken: bool) -> None:
    """A head of 64 KB and 200 fields is read, and a larger one gets 431, however it arrives."""
    whole = b"GET /v1/models HTTP/1.1\r\n" + HOST + b"connection: close\r\n" + sent + b"\r\n\r\n"
    whole = whole if is_taken else whole.replace(b"connection: close\r\n", b"")
    whole = whole.replace(b"connection: close\r\n", b"") if sent.count(b"\n") == 198 else whole
    for size in (len(whole), 1_000):
        with serving(recorder) as port, connect(port) as sock:
            for at in range(0, len(whole), size):
                sock.sendall(whole[at : at + size])
            assert status_of(sock.recv(2**16)) == (200 if is_taken else 431)


def test_a_head_without_end_costs_little() -> None:
    """80 MB of one value, target, chunk extension or trailer are not collected."""
    begun = {
        "value": b"GET / HTTP/1.1\r\n" + HOST + b"a: ",
        "target": b"GET /",
        "extension": CHUNKED + b"\r\n1;",
        "trailer": CHUNKED + b"\r\n0\r\na: ",
        "empty lines": b"",
    }
    for name, beginning in begun.items():
        with serving(Recorder()) as port, connect(port) as sock:
            sock.sendall(beginning)
            piece = b"\r\n" * 2**17 if name == "empty lines" else b"x" * 2**18
            sent = 0
            while sent < 80 * 2**20 and not select.select([sock], [], [], 0)[0]:
                sock.sendall(piece)
                sent += len(piece)
            assert status_of(sock.recv(2**16)) == 431, name
            assert sent < 8 * 2**20, name


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", None),
        (b"\r\n", None),
        (b"GET / HT", 408),
        (b"GET / HTTP/1.1\r\nhost: x\r\n", 408),
        (PLAIN + b"\r\n", 408),
        (PLAIN + b"\r\nGET", 408),
        (CHUNKED + b"\r\n1\r\na\r\n", 408),
        (GET + b"GET / HTTP/1.1\r\n", 408),
    ],
)
def test_what_does_not_arrive_is_not_waited_for(
    recorder: Recorder, sent: bytes, status: int | None
) -> None:
    """Silent, half-headed and half-bodied connections end, even if a byte comes now and then."""
    with serving(recorder) as port, connect(port) as sock:
        sock.sendall(sent)
        began = time.monotonic()
        sock.settimeout(0.1)
        reply = b""
        while True:
            try:
                part = sock.recv(2**16)
            except TimeoutError:
                sock.sendall(b"\r\n" if sent in (b"", b"\r\n") else b"")
                assert time.monotonic() - began < 8
                continue
            except OSError:
                break
            if not part:
                break
            reply += part
        assert (status is None and not reply) or b"HTTP/1.1 %d " % status in reply
        assert time.monotonic() - began > 0.4


@pytest.mark.parametrize("has_key", [False, True])
def test_of_several_bodies_the_one_that_takes_longest_leaves(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, has_key: bool
) -> None:
    """Bodies of clients without a key are bounded together: the slowest one is dropped."""
    monkeypatch.setattr("proxy.http.listener.connections.MOST_BODY_BYTES", 2**20)
    recorder.has_key = has_key
    size = 3 * 2**20
    head = b"POST /v1/embeddings HTTP/1.1\r\n" + HOST + b"content-length: %d\r\n\r\n" % size
    with serving(recorder) as port, connect(port) as slow, connect(port) as fast:
        slow.sendall(head + b"x" * 400_000)
        time.sleep(0.5)
        fast.sendall(head + b"x" * 900_000)
        if has_key:
            slow.sendall(b"x" * (size - 400_000))
            assert status_of(slow.recv(2**16)) == 200
        else:
            reply = everything(slow)
            assert status_of(reply) == 503
            assert b'"code": "overloaded"' in reply
            assert b"\r\nretry-after: 2\r\n" in reply
        fast.sendall(b"x" * (size - 900_000))
        assert status_of(fast.recv(2**16)) == 200
    assert [len(body) for _, _, body in recorder.seen] == [size] * (1 + has_key)


async def test_requests_of_strangers_begin_a_few_at_a_time() -> None:
    """A thousand requests at once leave turns of the event loop to other clients."""
    everybody, loop = Connections([], None), asyncio.get_running_loop()
    begun: list[int] = []
    for number in range(3 * BEGUN_IN_A_TURN):
        everybody.begin(partial(begun.append, number), loop)
    counts = [len(begun)]
    for _ in range(3):
        await asyncio.sleep(0)
        counts.append(len(begun))
    assert counts == [each * BEGUN_IN_A_TURN for each in (1, 2, 3, 3)]
    assert begun == sorted(begun)
    await asyncio.sleep(0)
    everybody.begin(partial(begun.append, -1), loop)
    assert begun[-1] == -1  # at once, where nobody waits


def test_who_left_before_its_turn_is_not_begun(recorder: Recorder) -> None:
    """Requests whose clients have left are not begun, so that the others are served."""
    with serving(recorder) as port:
        gone = [connect(port) for _ in range(200)]
        for each in gone:
            each.sendall(GET)
            each.close()
        with connect(port) as stays:
            stays.sendall(GET)
            assert status_of(stays.recv(2**16)) == 200


@pytest.mark.usefixtures("quick")
def test_a_slow_body_that_goes_on_is_read(recorder: Recorder) -> None:
    """A body gets more time the more of it has arrived."""
    size = 200_000
    head = b"POST / HTTP/1.1\r\n" + HOST + b"content-length: %d\r\n\r\n" % size
    with serving(recorder) as port, connect(port) as sock:
        sock.sendall(head)
        for _ in range(20):
            sock.sendall(b"x" * (size // 20))
            time.sleep(0.1)
        assert sock.recv(2**16).startswith(b"HTTP/1.1 200 OK")


def test_tiny_chunks_cost_what_they_weigh(recorder: Recorder) -> None:
    """A body in chunks of one byte is joined once, not copied for each chunk."""
    with serving(recorder) as port, connect(port) as sock:
        sock.sendall(CHUNKED + b"connection: close\r\n\r\n")
        began = time.process_time()
        sock.sendall(b"1\r\nx\r\n" * 400_000 + b"0\r\n\r\n")
        assert everything(sock).startswith(b"HTTP/1.1 200 OK")
    assert recorder.seen[0][2] == b"x" * 400_000
    assert time.process_time() - began < 6  # 400,000 copies of 100 KB take longer


def test_pipelines_have_a_length(recorder: Recorder) -> None:
    """A hundred requests may wait on a connection; then it ends."""
    with serving(recorder) as port, connect(port) as sock:
        sock.sendall(GET * 2_000)
        replies = everything(sock)
    assert 100 <= replies.count(b"HTTP/1.1 200 OK") == len(recorder.seen) < 2_000
    assert replies.count(b"HTTP/1.1 503 ") == 1


# Number of connections


def test_strangers_drive_out_each_other(recorder: Recorder) -> None:
    """A flood of silent connections does not keep out, or drive out, clients that may come in."""
    recorder.is_known = True
    with serving(recorder, limit_concurrency=40) as port, ExitStack() as stack:
        known = [stack.enter_context(connect(port)) for _ in range(5)]
        for sock in known:
            sock.sendall(GET)
            assert sock.recv(2**16).startswith(b"HTTP/1.1 200 OK")
        flood = [stack.enter_context(connect(port)) for _ in range(300)]
        for _ in range(3):
            late = stack.enter_context(connect(port))
            for sock in (late, *known):
                sock.sendall(GET)
                assert sock.recv(2**16).startswith(b"HTTP/1.1 200 OK")
        assert sum(_is_open(sock) for sock in flood) <= 30


def test_idle_ones_leave_before_anybody_is_refused(recorder: Recorder) -> None:
    """Where everybody may come in, the oldest idle connection makes way for a new one."""
    recorder.is_known = True
    with serving(recorder, limit_concurrency=8, timeout_keep_alive=60) as port, ExitStack() as all:
        socks = []
        for _ in range(30):
            socks.append(all.enter_context(connect(port)))
            socks[-1].sendall(GET)
            assert socks[-1].recv(2**16).startswith(b"HTTP/1.1 200 OK")
        time.sleep(0.1)
        assert 1 <= sum(_is_open(sock) for sock in socks) <= 8


def _is_open(sock: socket.socket) -> bool:
    try:
        while select.select([sock], [], [], 0)[0]:
            if not sock.recv(2**16):
                return False
    except OSError:
        return False
    return True


def test_a_key_makes_a_client_known(tmp_path: Path) -> None:
    """Silent connections and wrong keys do not keep out a client with a good key."""

    def answer(peer: Peer) -> None:
        while peer.request():
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    with RawServer(answer) as upstream, ExitStack() as stack:
        proxy = LiveProxy(
            upstream.base_url, tmp_path, keys="required", limits={"max_connections": 20}
        )
        stack.callback(proxy.stop)
        secret, _ = make_key(proxy.store_path, name="good")
        wait_until_known(proxy.base_url, secret)
        good = GET.replace(b"\r\n\r\n", b"\r\nauthorization: Bearer %b\r\n\r\n" % secret.encode())
        bad = good.replace(secret[-6:].encode(), b"000000")
        first = stack.enter_context(connect(proxy.port))
        first.sendall(good)
        assert status_of(first.recv(2**16)) == 200
        for number in range(60):
            sock = stack.enter_context(connect(proxy.port))
            if number % 2:
                sock.sendall(bad)
                assert status_of(sock.recv(2**16)) == 401
        for sock in (stack.enter_context(connect(proxy.port)), first):
            sock.sendall(good)
            assert status_of(sock.recv(2**16)) == 200


# Caches


def _targets(text: bytes) -> None:
    read_target(b"/" + text)


def _hosts(text: bytes) -> None:
    with pytest.raises(HostNotAllowedError):
        check_host([(b"host", text)])


def _names(text: bytes) -> None:
    headers.to_upstream([(text, b"1")])
    headers.to_client([(text, b"1")])


def _keys(text: bytes) -> None:
    scope: dict[str, Any] = {"method": "GET", "path": "/", "raw_path": b"/" + text}
    scope |= {"query_string": b"", "headers": [(b"authorization", text)]}
    hash_key(request_of(scope))


@pytest.mark.parametrize("use", [_targets, _hosts, _names, _keys])
def test_caches_keep_no_long_texts(use: Callable[[bytes], None]) -> None:
    """Sixty texts of 100 KB from strangers are not kept in caches, and few short ones."""
    use(b"x")
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(60):
            use(b"%06d" % number + b"x" * 100_000)
        gc.collect()
        after_long, _ = tracemalloc.get_traced_memory()
        for number in range(3_000):  # these would drive long ones out
            use(b"%06d" % number + b"y" * 40)
        gc.collect()
        after_short, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max(after_long, after_short) < 2 * 2**20
