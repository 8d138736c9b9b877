"""One request at the server's end, and the reply to it: what the application talks to.

What is whole, a body or a reply, goes from hand to hand without a message of ASGI
(`proxy.wire.http.Client`); such a reply leaves in one write, its head checked as one text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from proxy.wire.headers import written

WRITTEN_TOGETHER = 2**16  # bytes of a body that is copied for one write
WITHOUT_BODY = (204, 304)


class Connection(Protocol):
    """What a cycle needs of the connection that it came over."""

    scope: Any
    outlet: Outlet
    flow: FlowControl
    logger: Any
    server_state: Any

    def on_response_complete(self) -> None: ...

    def note_known(self, has_key: bool) -> None: ...


def _expects(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)


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
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(data)

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


class Cycle(RequestResponseCycle):
    """One request and its response."""

    def __init__(self, connection: Connection, keep_alive: bool) -> None:
        self.scope = connection.scope
        self.transport: Any = connection.outlet
        self.flow = connection.flow
        self.logger = connection.logger
        self.access_log = False
        self.default_headers = connection.server_state.default_headers
        self.message_event: Any = _News()
        self.on_response = connection.on_response_complete
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
        self.chunked_encoding: bool | None = None
        self.expected_content_length = 0

    def add(self, part: bytes) -> None:
        """Another part of the body has come."""
        self.parts.append(part)
        self.size += len(part)
        self.message_event.set()

    def end_body(self) -> None:
        self.more_body = False
        self.message_event.set()

    def leave(self) -> None:
        """The client has gone."""
        if not self.response_complete:
            self.disconnected = True
        self.message_event.set()
        if self.disconnected and self.on_leaving is not None:
            self.on_leaving()

    def hang_up(self) -> None:
        """Ends the connection; a reply that is not whole stays so."""
        self.disconnected = True
        self.keep_alive = False
        self.transport.close()

    def whole_body(self, limit: int) -> bytes | None:
        if self.more_body or self.disconnected or self.size > limit:
            return None
        self.message_event.is_set = False
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
        if not self.message_event.is_set and not self.disconnected and not self.response_complete:
            self._continue()
            self.flow.resume_reading()
            await self.message_event.wait()
        self.message_event.is_set = False
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._take(), "more_body": self.more_body}

    def _continue(self) -> None:
        """Asks for the body where the client waits for that; what is there needs no asking."""
        is_asked_for, self.waiting_for_100_continue = self.waiting_for_100_continue, False
        if is_asked_for and not self.transport.is_closing() and _expects(self.scope["headers"]):
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def send(self, message: Any) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        kind = message["type"]
        if kind == "http.response.start" and not self.response_started:
            self._write_head(message["status"], message["headers"])
        elif self.chunked_encoding and kind == "http.response.body" and not self.response_complete:
            self._write_chunk(message["body"], message.get("more_body", False))
        else:
            await super().send(message)

    def write_whole(
        self, status: int, headers: list[tuple[bytes, bytes]], body: tuple[bytes | memoryview, ...]
    ) -> bool:
        if self.flow.write_paused or self.disconnected:
            return False
        head = self._head(status, headers)
        transport = self.transport.transport
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
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _write_chunk(self, body: bytes, is_more: bool) -> None:
        if body:
            self.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        if not is_more:
            self.transport.write(b"0\r\n\r\n")
            self.transport.flush()
            self._complete()

    def _write_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The head of a body that follows in parts."""
        length = next((value for name, value in headers if name == b"content-length"), None)
        framing = b""
        if length is not None:
            self.chunked_encoding, self.expected_content_length = False, int(length)
        elif self.scope["method"] != "HEAD" and status not in WITHOUT_BODY:
            self.chunked_encoding, framing = True, b"transfer-encoding: chunked\r\n"
        self.transport.write(self._head(status, headers, framing))
        self.response_started = True

    def _head(self, status: int, headers: list[tuple[bytes, bytes]], framing: bytes = b"") -> bytes:
        """Raises ValueError for a field that would be more than one."""
        self.waiting_for_100_continue = False
        self.status = status
        fields = written(headers)
        closing = b"" if self.keep_alive else b"connection: close\r\n"
        line = STATUS_LINE.get(status) or b"HTTP/1.1 %d \r\n" % status
        return b"".join((line, fields, framing, closing, b"\r\n"))
