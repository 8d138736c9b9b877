"""One request at the server's end, and the reply to it: what the application talks to.

What is whole, a body or a reply, goes from hand to hand without a message of ASGI
(`proxy.wire.http.Client`); such a reply leaves in one write, its head checked as one text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Protocol

import structlog

from proxy.errors import ProxyError
from proxy.listener.flow import Flow
from proxy.listener.request_heads import refusal
from proxy.wire.headers import written
from proxy.wire.http import CLIENT, ASGIApplication, Message, Scope, place

STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}
WRITTEN_TOGETHER = 2**16  # bytes of a body that is copied for one write
WITHOUT_BODY = (204, 304)

log = structlog.get_logger(__name__)


class Connection(Protocol):
    """What a cycle needs of the connection that it came over."""

    scope: Scope
    outlet: Outlet
    flow: Flow

    def on_response_complete(self) -> None: ...

    def note_known(self, has_key: bool) -> None: ...


def _expects(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)


def _nothing() -> None:
    """There is nothing to do."""


class _News:
    """Whether there is something to `receive`: what asyncio.Event is, for one who waits."""

    __slots__ = ("_waiting", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiting: asyncio.Future[None] | None = None

    def set(self) -> None:
        self.is_set = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def wait(self) -> None:
        while not self.is_set:
            if self._waiting is None:
                self._waiting = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiting)  # of two who wait, one may be cancelled


class Outlet:
    """A transport that sends what is written in one turn of the event loop in one go."""

    __slots__ = ("_loop", "_parts", "transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not data:
            return
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(data)

    def write_now(self, data: bytes) -> None:
        """For what comes alone, which nothing would be joined with."""
        if self._parts:
            self._parts.append(data)
        else:
            self.transport.write(data)

    def flush(self) -> None:
        parts = self._parts
        if parts:
            self._parts = []
            self.transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def close(self) -> None:
        self.flush()
        self.transport.close()

    def is_closing(self) -> bool:
        return self.transport.is_closing()


class Cycle:
    """One request and its response: both the `Client` of the application and its ends of ASGI."""

    def __init__(self, connection: Connection, keep_alive: bool) -> None:
        self.scope = connection.scope
        self.outlet = connection.outlet
        self.flow = connection.flow
        self.news = _News()
        self.on_response: Callable[[], None] = connection.on_response_complete
        self.note_known = connection.note_known
        self.on_leaving: Callable[[], object] | None = None
        self.disconnected = False
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = True  # perhaps: nobody has looked
        self.parts: list[bytes] = []  # of the body, as far as it is not taken
        self.size = 0  # of the parts
        self.more_body = True
        self.status = 0  # until a reply has begun
        self.response_started = False
        self.response_complete = False
        self.is_chunked = False
        self.bytes_left = 0  # of a body whose length is declared

    async def run(self, app: ASGIApplication) -> None:
        """Has the application answer; a fault of its own ends the connection."""
        try:
            await app(self.scope, self.receive, self.send)
        except BaseException as error:  # the server cancels what is not done when it ends
            self._fail(**place(error))
        else:
            if not self.response_complete and not self.disconnected:
                self._fail(kind="no whole reply")
        finally:
            self.on_response = _nothing  # or each would keep the other
            self.scope.pop(CLIENT, None)  # likewise, where no endpoint has taken it out

    def _fail(self, **why: str) -> None:
        log.error("no_reply", path=self.scope["path"], **why)
        if not self.response_started and not self.disconnected:
            self.response_started = True
            self.keep_alive = False
            self.outlet.write(refusal(ProxyError("the proxy failed; its log says where")))
            self._complete()
        self.outlet.close()

    def add(self, part: bytes) -> None:
        """Another part of the body has come."""
        self.parts.append(part)
        self.size += len(part)
        self.news.set()

    def end_body(self) -> None:
        self.more_body = False
        self.news.set()

    def leave(self) -> None:
        """The client has gone."""
        if not self.response_complete:
            self.disconnected = True
        self.news.set()
        if self.disconnected and self.on_leaving is not None:
            self.on_leaving()

    def hang_up(self) -> None:
        """Ends the connection; a reply that is not whole stays so."""
        self.disconnected = True
        self.keep_alive = False
        self.outlet.close()

    def whole_body(self, limit: int) -> bytes | None:
        if self.more_body or self.disconnected or self.size > limit:
            return None
        self.news.is_set = False
        return self._take()

    def _take(self) -> bytes:
        parts = self.parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        self.parts = []
        self.size = 0
        return body

    def tell_leaving(self, call: Callable[[], object] | None) -> None:
        """From now on the client's leaving is told in this way, or in none."""
        self.on_leaving = call
        if call is not None:
            self.flow.resume_reading()

    async def receive(self) -> Any:
        if not self.news.is_set and not self.disconnected and not self.response_complete:
            self._continue()
            self.flow.resume_reading()
            await self.news.wait()
        self.news.is_set = False
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._take(), "more_body": self.more_body}

    def _continue(self) -> None:
        """Asks for the body where the client waits for that; what is there needs no asking."""
        is_asked_for, self.waiting_for_100_continue = self.waiting_for_100_continue, False
        if is_asked_for and not self.outlet.is_closing() and _expects(self.scope["headers"]):
            self.outlet.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def send(self, message: Message) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        kind = message["type"]
        if kind != ("http.response.body" if self.response_started else "http.response.start"):
            raise RuntimeError(f"{kind} is out of its order")
        if kind == "http.response.start":
            self._write_head(message["status"], message["headers"])
        elif self.response_complete:
            raise RuntimeError("the reply was whole already")
        else:
            self._write_part(message.get("body", b""), message.get("more_body", False))

    def takes_parts(self) -> bool:
        is_open = self.is_chunked and not self.response_complete
        return is_open and not self.flow.write_paused and not self.disconnected

    def write_part(self, part: bytes) -> None:
        self.outlet.write_now(b"%x\r\n%b\r\n" % (len(part), part))

    def write_whole(
        self, status: int, headers: list[tuple[bytes, bytes]], body: tuple[bytes | memoryview, ...]
    ) -> bool:
        if self.flow.write_paused or self.disconnected:
            return False
        head = self._head(status, headers)
        transport = self.outlet.transport
        if self.scope["method"] == "HEAD":
            transport.write(head)
        elif len(body) == 1 and len(body[0]) < WRITTEN_TOGETHER:
            transport.write(head + body[0])
        else:
            transport.writelines([head, *body])
        self.response_started = True
        self._complete()
        return True

    def _complete(self) -> None:
        self.response_complete = True
        self.news.set()
        if not self.keep_alive:
            self.outlet.close()
        self.on_response()

    def _write_part(self, body: bytes, is_more: bool) -> None:
        """A part of the body; raises RuntimeError where its length is not the declared one."""
        if self.scope["method"] == "HEAD":
            self.bytes_left = 0
        elif self.is_chunked:
            end = b"" if is_more else b"0\r\n\r\n"
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            self.outlet.write(chunk + end)
        else:
            self.bytes_left -= len(body)
            if self.bytes_left < 0:
                raise RuntimeError("the body is longer than its content-length")
            self.outlet.write(body)
        if not is_more:
            if self.bytes_left:
                raise RuntimeError("the body is shorter than its content-length")
            self.outlet.flush()
            self._complete()

    def _write_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The head of a body that follows in parts."""
        length = next((value for name, value in headers if name == b"content-length"), None)
        framing = b""
        if length is not None:
            self.bytes_left = int(length)
        elif self.scope["method"] != "HEAD" and status not in WITHOUT_BODY:
            self.is_chunked, framing = True, b"transfer-encoding: chunked\r\n"
        self.outlet.write(self._head(status, headers, framing))
        self.response_started = True

    def _head(self, status: int, headers: list[tuple[bytes, bytes]], framing: bytes = b"") -> bytes:
        """Raises ValueError for a field that would be more than one."""
        self.waiting_for_100_continue = False
        self.status = status
        fields = written(headers)
        closing = b"" if self.keep_alive else b"connection: close\r\n"
        line = STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        return b"".join((line, fields, framing, closing, b"\r\n"))
