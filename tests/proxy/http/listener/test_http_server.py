"""Our HTTP server: a whole reply goes out in one write, with the same bytes as uvicorn's two."""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvicorn

from proxy.config.sections import Config
from proxy.http.listener import connections
from proxy.http.listener.endpoint import Endpoint, send_reply
from proxy.http.listener.http_protocol import HttpProtocol
from proxy.http.listener.sockets import server_settings
from proxy.http.wire.http import CLIENT, BodyWriter, Client, Reply, Request
from proxy.http.wire.outlet import Bursts, Outlet
from tests.proxy.http.wire.always_gathered import AlwaysGathered
from tests.running.served import Served
from tests.sharing.captured_logs import capture_logs

BIG = b"x" * 3_000_000
REPLIES = {
    b"/small": Reply(200, [(b"content-type", b"text/plain"), (b"x-a", b"1")], b"hello"),
    b"/empty": Reply(503, [(b"content-length", b"9")], b""),
    b"/big": Reply(200, [(b"content-length", b"1"), (b"x-a", b"\xc3\xa9")], BIG),
    b"/split": Reply(200, [(b"x-a", b"1\r\nx-b: 2")], b"hello"),
}


async def application(scope: Any, receive: Any, send: Any) -> None:
    client: Client | None = scope.pop(CLIENT, None)
    if client is None or client.whole_body(2**20) is None:
        while (await receive()).get("more_body"):
            pass
    if scope["raw_path"] == b"/breaks-off":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"one", b"two"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        raise RuntimeError("in the middle of a body")
    reply = REPLIES[scope["raw_path"]]
    if client is None:
        await send_reply(reply, send)
    else:
        await write_whole(reply, client)


async def write_whole(reply: Reply, client: Client) -> None:
    await client.write_whole(reply.status, reply.headers, (reply.whole(),))


@contextmanager
def serving(http: Any, app: Any = application, **more: Any) -> Iterator[int]:
    settings: Any = {"log_config": None, "lifespan": "off", "server_header": False, "http": http}
    settings |= more
    with Served(uvicorn.Config(app, date_header=False, loop="asyncio", **settings)) as served:
        yield served.port


@pytest.fixture(scope="module", params=[Bursts, AlwaysGathered], ids=["at once", "gathered"])
def ports(request: pytest.FixtureRequest) -> Iterator[dict[str, int]]:
    """Yield the ports of servers that send replies at once, or gather them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "Bursts", request.param)
        with serving(HttpProtocol) as ours, serving("httptools") as theirs:
            yield {"ours": ours, "uvicorn's": theirs}


def told(port: int, request: bytes) -> bytes:
    """Return all that the server sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request)
        parts = []
        while part := connection.recv(2**20):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("path", ["small", "empty", "big"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_the_bytes_are_uvicorns(
    ports: dict[str, int], method: str, version: str, path: str
) -> None:
    """Status line, order of fields, body and the connection's end are uvicorn's."""
    head = f"{method} /{path} HTTP/{version}\r\nhost: x\r\nconnection: close\r\n"
    request = f"{head}content-length: 2\r\n\r\nhi".encode()
    assert told(ports["ours"], request) == told(ports["uvicorn's"], request)


@pytest.mark.parametrize("server", ["ours", "uvicorn's"])
def test_what_was_sent_before_a_fault_arrives(ports: dict[str, int], server: str) -> None:
    """Parts that wait for the end of their turn are sent before the connection is closed."""
    with capture_logs() as lines:
        reply = told(ports[server], b"GET /breaks-off?key=sk-secret HTTP/1.1\r\nhost: x\r\n\r\n")
    assert reply.endswith(b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n")
    if server == "ours":
        [line] = [each for each in lines if each["event"] == "no_reply"]
        assert (line["path"], line["kind"]) == ("/breaks-off", "RuntimeError")
        assert "secret" not in str(line)


def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle connection is closed after uvicorn's time, and not before."""
    monkeypatch.setattr(connections, "SWEEP_S", 0.05)
    with (
        serving(HttpProtocol, timeout_keep_alive=1) as port,
        socket.create_connection(("127.0.0.1", port), timeout=10) as connection,
    ):
        for pause_s in (0.7, 0.7, 0):
            connection.sendall(b"GET /small HTTP/1.1\r\nhost: x\r\n\r\n")
            assert connection.recv(2**16).endswith(b"hello")
            time.sleep(pause_s)
        began = time.monotonic()
        assert connection.recv(1) == b""
        assert 0.8 < time.monotonic() - began < 5


def test_connections_persist(ports: dict[str, int]) -> None:
    """Pipelined requests are answered in their order on one connection."""
    one = b"GET /small HTTP/1.1\r\nhost: x\r\n"
    replies = told(
        ports["ours"], one + b"\r\n" + one + b"\r\n" + one + b"connection: close\r\n\r\n"
    )
    assert replies.count(b"HTTP/1.1 200 OK\r\n") == replies.count(b"hello") == 3


def test_a_connection_whose_reply_waits_for_others_is_not_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection whose reply waits to be sent is not closed as idle to make room."""
    monkeypatch.setattr(connections, "Bursts", AlwaysGathered)
    found: list[bool] = []

    async def looking(scope: Any, receive: Any, send: Any) -> None:
        client: Any = scope.pop(CLIENT)
        protocol = client._connection
        await write_whole(REPLIES[b"/small"], client)
        found.append(protocol.is_idle())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        found.append(protocol.is_idle())

    with (
        serving(HttpProtocol, app=looking) as port,
        socket.create_connection(("127.0.0.1", port), timeout=10) as connection,
    ):
        connection.sendall(b"GET /small HTTP/1.1\r\nhost: x\r\n\r\n")
        assert connection.recv(2**16).endswith(b"hello")
    assert found == [False, True]


@pytest.mark.parametrize(
    "more", [b"\r\n", b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n", b"\x16\x03 no HTTP"]
)
def test_what_comes_after_the_last_request_takes_no_reply(
    ports: dict[str, int], more: bytes
) -> None:
    """A request that closes the connection is answered, whatever
    the client sends after it, and that is not answered.
    """
    one = b"GET /small HTTP/1.1\r\nhost: x\r\n"
    for request in (
        one + b"connection: close\r\n\r\n",
        one + b"\r\n" + one + b"connection: close\r\n\r\n",
    ):
        with capture_logs() as lines:
            reply = told(ports["ours"], request + more)
        assert reply == told(ports["ours"], request)
        assert reply.startswith(b"HTTP/1.1 200 OK\r\n")
        assert "request_refused" not in [each["event"] for each in lines]


def test_a_client_that_reads_late_gets_every_reply_whole(ports: dict[str, int]) -> None:
    """Replies beyond the system's buffers wait for the client and arrive whole, in order."""
    one = b"GET /big HTTP/1.1\r\nhost: x\r\n"
    request = one + b"\r\n" + one + b"\r\n" + one + b"connection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", ports["ours"]), timeout=10) as connection:
        connection.sendall(request)
        time.sleep(0.3)
        parts = []
        while part := connection.recv(2**20):
            parts.append(part)
    assert b"".join(parts) == told(ports["uvicorn's"], request)


@pytest.mark.parametrize("size", [2, 2**20, 2**20 + 1])
def test_a_body_is_the_same_whole_or_in_parts(size: int) -> None:
    """The application receives the same body, whether it is handed over whole or in messages."""
    found: list[tuple[bool, bytes]] = []

    async def echo(scope: Any, receive: Any, send: Any) -> None:
        client: Client = scope.pop(CLIENT)
        whole = client.whole_body(2**20)
        body = b"" if whole is None else whole
        is_more = whole is None
        while is_more:
            message = await receive()
            body, is_more = body + message["body"], message["more_body"]
        found.append((whole is not None, body))
        await write_whole(REPLIES[b"/small"], client)

    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    head = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    with serving(HttpProtocol, app=echo) as port:
        assert told(port, head % size + body).endswith(b"hello")
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(head % size)
            time.sleep(0.2)  # the application is at work by then
            connection.sendall(body)
            assert connection.recv(2**16).endswith(b"hello")
    assert [each for _, each in found] == [body, body]
    assert not found[1][0]
    assert found[0][0] == (size == 2)


def test_a_field_with_a_line_end_is_never_sent(ports: dict[str, int]) -> None:
    """A header field with a line end gives 500, and no second field is sent."""
    reply = told(ports["ours"], b"GET /split HTTP/1.1\r\nhost: x\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 500 ")
    assert b"x-b" not in reply


class GoneTransport(asyncio.Transport):
    """A transport whose peer has reset the connection, which shows only when it is shut down.

    A real system reports it so late only by chance.
    """

    is_closed = False

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: Any) -> None:
        """Discard the data."""

    def write_eof(self) -> None:
        raise OSError(errno.ENOTCONN, "not connected")

    def close(self) -> None:
        self.is_closed = True


def test_a_client_that_is_gone_before_the_last_words_is_no_fault() -> None:
    """A client that left before the last bytes causes no error, and its connection is closed."""
    protocol = HttpProtocol.__new__(HttpProtocol)
    protocol.transport = GoneTransport()
    protocol.outlet = Outlet(protocol.transport, Bursts())
    protocol.flow = cast(Any, SimpleNamespace(resume_reading=lambda: None))
    protocol.loop = asyncio.new_event_loop()
    protocol._send_last_reply(b"HTTP/1.1 400 \r\n\r\n")
    protocol.loop.close()
    assert protocol.transport.is_closed


def test_a_stop_and_connections_are_limited_as_configured() -> None:
    """Stopping takes at most the configured time, or the requested
    one, and workers divide the number of connections among them.
    """
    config = Config.model_validate({"limits": {"grace_s": 7, "max_connections": 10}})
    plain = server_settings(application, config.limits)
    assert (plain.timeout_graceful_shutdown, plain.limit_concurrency) == (7, 10)
    shared = server_settings(application, config.limits, grace_s=1, share=3)
    assert (shared.timeout_graceful_shutdown, shared.limit_concurrency) == (1, 4)


class Sent(list[Any]):
    """Takes the messages of ASGI, and can fail at the one with the head."""

    fails = False

    async def __call__(self, message: Any) -> None:
        if self.fails:
            raise OSError("the client is gone")
        self.append(message)


@pytest.mark.parametrize("fails", [False, True], ids=["sent", "client gone"])
async def test_a_body_that_writes_itself_is_closed_in_any_case(fails: bool) -> None:
    """A body that writes itself is closed also where its head could not be sent."""
    calls: list[str] = []

    async def body(writer: BodyWriter) -> None:
        assert not writer.takes_parts()
        for part in (b"one", b"two"):
            await writer.write(part)
        calls.append("written")

    async def close() -> None:
        calls.append("closed")

    async def answer(_: Request) -> Reply:
        return Reply(200, [], body, close)

    sent = Sent()
    sent.fails = fails
    scope = {"method": "POST", "path": "/", "query_string": b"", "headers": []}
    incoming = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        for message in incoming:
            return message
        return await asyncio.get_running_loop().create_future()

    await Endpoint(answer, 10)({**scope, "http_version": "1.1"}, receive, sent)
    assert [message.get("body") for message in sent] == (
        [] if fails else [None, b"one", b"two", b""]
    )
    assert calls == (["closed"] if fails else ["written", "closed"])
