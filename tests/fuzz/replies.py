"""A fuzzer of upstream's replies: our pool, nginx and h11 must read the same bytes alike.

The same bytes answer all three. A finding is a reply whose status or body ours reads in another way
than one of them, or bytes behind a reply that answer the next request. Replies that ours alone
reads are counted. Where nginx is known to be wrong its result is ignored: it takes an interim reply
(1xx) for the last one, and ignores a length beside a tab.
"""

from __future__ import annotations

import asyncio
import http.client
import random
import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import h11

from proxy.errors import UpstreamError
from proxy.http.pool.pool import Pool
from proxy.http.wire.upstream import UpstreamRequest
from tests.fuzz.fuzzing import Case
from tests.fuzz.http_replies import one_reply
from tests.running.nginx import Nginx

Read = tuple[int, bytes]
NEXT = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\nconnection: close\r\n\r\nthe next"
PATIENCE_S = 0.15  # without anything from upstream
NGINX_GAVE_UP = 502
TAB = re.compile(rb"\ncontent-length:[^\r\n]*\t", re.I)


@contextmanager
def cases() -> Iterator[Case]:
    with _Upstream() as upstream, Nginx(upstream.port, "proxy_read_timeout 150ms;") as nginx:
        yield lambda chance: _case(chance, upstream, nginx.port)


def _case(chance: random.Random, upstream: _Upstream, nginx_port: int) -> str:
    reply, closes = one_reply(chance)
    upstream.reply, upstream.closes = reply, closes
    pending = upstream.begin_to_ask()  # ours and nginx wait for the same silence, which is slow
    by_nginx = _read_by_nginx(nginx_port)
    by_h11 = _read_by_h11(reply, closes)
    ours, after = pending.result(30)
    details = f"\nsent  {reply!r}, then {'closed' if closes else 'left open'}\nours  {ours!r}"
    details += f"\nnginx {by_nginx!r}\nh11   {by_h11!r}"
    assert after in (None, (200, b"the next")), f"the next request got {after!r}{details}"
    if ours is None:
        return "refused by all" if by_nginx is None and by_h11 is None else "ours refused"
    if by_nginx is not None and (by_nginx[0] < 200 or TAB.search(reply)):
        by_nginx = None
    for name, theirs in (("nginx", by_nginx), ("h11", by_h11)):
        assert theirs is None or ours == theirs, f"read differently by {name}{details}"
    if by_nginx is None and by_h11 is None:
        return "read by ours alone"
    return "read alike" if by_nginx == by_h11 else "another refused"


class _Upstream:
    """Answers `/v1/odd` with the reply of the case, and everything else with NEXT.

    It also sends the requests, through the pool, on the same event loop.
    """

    def __init__(self) -> None:
        self.reply, self.closes = b"", True
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> _Upstream:
        self._thread.start()
        self._server = self._wait(self._listen())
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self) -> asyncio.Server:
        return await self._loop.create_server(lambda: _Answering(self), "127.0.0.1", 0)

    async def _stop(self) -> None:
        self._server.close()

    def begin_to_ask(self) -> Future[tuple[Read | None, Read | None]]:
        """Start reading the case's reply and the next one through the pool.

        The future has both; an error is None.
        """
        return asyncio.run_coroutine_threadsafe(self._ask_twice(), self._loop)

    async def _ask_twice(self) -> tuple[Read | None, Read | None]:
        pool = Pool(f"http://127.0.0.1:{self.port}/v1", timeout_s=PATIENCE_S)
        try:
            return await _ask(pool, "/odd"), await _ask(pool, "/next")
        finally:
            await pool.aclose()


async def _ask(pool: Pool, path: str) -> Read | None:
    try:
        reply = await pool.send(UpstreamRequest("GET", path))
        return reply.status, await reply.read()
    except UpstreamError:
        return None


class _Answering(asyncio.Protocol):
    def __init__(self, upstream: _Upstream) -> None:
        self._upstream = upstream
        self._data = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while b"\r\n\r\n" in self._data:
            head, _, self._data = self._data.partition(b"\r\n\r\n")
            is_odd = b"/odd" in head.partition(b"\r\n")[0]
            self._transport.write(self._upstream.reply if is_odd else NEXT)
            if not is_odd or self._upstream.closes:
                self._transport.close()


def _read_by_h11(reply: bytes, closes: bool) -> Read | None:
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    status, body = 0, b""
    try:
        client.receive_data(reply)
        if closes:
            client.receive_data(b"")
        while True:
            event = client.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return status, body
            elif not isinstance(event, h11.InformationalResponse):
                return None
    except h11.ProtocolError:
        return None


def _read_by_nginx(port: int) -> Read | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/v1/odd")
        response = connection.getresponse()
        body = response.read()
        return None if response.status in (NGINX_GAVE_UP, 504) else (response.status, body)
    except (http.client.HTTPException, OSError, ValueError, OverflowError):  # from sizes
        return None
    finally:
        connection.close()
