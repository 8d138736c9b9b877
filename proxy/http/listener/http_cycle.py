"""One request on the server's side, and the reply to it: the application's counterpart.

A whole body or reply is passed on without ASGI messages (`proxy.http.wire.http.Client`). Such a
reply is sent in one write, and its head is checked as one text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Protocol

import structlog

from proxy.errors import ProxyError
from proxy.http.listener.request_heads import refusal
from proxy.http.wire.headers import (
    Headers,
    KnownBytes,
    known_bytes,
    serialize_fields,
    with_length,
)
from proxy.http.wire.http import CLIENT, KNOWN, ASGIApplication, Client, Message, Scope, place
from proxy.http.wire.json_splice import Pieces
from proxy.http.wire.outlet import Outlet

STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}
WRITTEN_TOGETHER = 2**16  # bytes of a body that is copied for one write
WITHOUT_BODY = (204, 304)
HIGH_WATER = 2**16  # bytes of a body that the application has not received yet

log = structlog.get_logger(__name__)


class Flow:
    """Both directions of one connection; the transport reports when its buffer is full."""

    __slots__ = ("_transport", "_waiting", "read_paused", "write_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._waiting: asyncio.Future[None] | None = None
        self.read_paused = False
        self.write_paused = False

    def pause_reading(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self.write_paused = True

    def resume_writing(self) -> None:
        self.write_paused = False
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def drain(self) -> None:
        """Wait until the client has accepted enough of what was written, or has left."""
        while self.write_paused:
            if self._waiting is None:
                self._waiting = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiting)  # one of two waiting tasks may be cancelled


class KnownHead:
    """A head that a client has sent before, recognized by its bytes instead of parsed again.

    API clients send the same head with every request of a connection, except for the body's length.
    If it arrives at once, with its body, a part of it or none yet, its meaning is known: llhttp has
    read these very bytes before, and `request_heads.py` has accepted them.
    """

    __slots__ = ("_position", "_scope", "again", "head", "is_head")

    def __init__(self, head: KnownBytes, scope: Scope) -> None:
        self.head = head
        headers = scope["headers"].copy()  # the application may add to the original
        self._scope = {**scope, "headers": headers}
        self._scope.pop(CLIENT, None)
        self.is_head = scope["method"] == "HEAD"
        self._position = [name for name, _ in headers].index(b"content-length")
        self.again: Callable[[Client], Awaitable[None] | None] | None = None
        """Answers a request with this head without a scope: set once one was admitted; returns None
        where the request has to be admitted like the first one."""

    def scope(self, length: bytes) -> dict[str, Any]:
        """Return a new scope of the head with another length; only the values are shared."""
        scope = self._scope.copy()
        scope["headers"] = headers = scope["headers"].copy()
        headers[self._position] = (b"content-length", length)
        scope[KNOWN] = self
        return scope


def known_head(data: bytes, scope: Scope, *, has_body: bool = True) -> KnownHead | None:
    """Return the head of the single request in `data`, which was read to its end.

    `has_body` says whether its whole body is in the data, or none of it. None for a head that is
    too long or without a length, or whose end is not certain.
    """
    head = known_bytes(data, has_body=has_body)
    return None if head is None else KnownHead(head, scope)


class CycleConnection(Protocol):
    """The parts of a connection that its cycles use."""

    outlet: Outlet
    flow: Flow
    tasks: set[asyncio.Task[None]]  # the tasks that answer requests

    def on_response_complete(self) -> None: ...

    def note_known(self, has_key: bool) -> None: ...


def _expects(headers: Headers) -> bool:
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)


class Cycle:
    """One request and its response: both the application's `Client` and its ASGI functions.

    The `head` is an ASGI scope, or a head that the connection has sent before. A given `body` is
    whole.
    """

    __slots__ = (
        "_asks_for_body",
        "_bytes_left",
        "_connection",
        "_has_news",
        "_is_chunked",
        "_is_head",
        "_is_watched",
        "_known",
        "_parts",
        "_scope",
        "_waiting",
        "flow",
        "has_left",
        "is_old",
        "keep_alive",
        "length",
        "more_body",
        "outlet",
        "response_complete",
        "response_started",
        "size",
        "status",
        "task",
    )

    def __init__(
        self,
        connection: CycleConnection,
        head: Scope | KnownHead,
        keep_alive: bool,
        body: bytes | None = None,
    ) -> None:
        if isinstance(head, KnownHead):
            self._known: KnownHead | None = head
            self._scope: Scope | None = None  # made when it is first used
            self._is_head, self.is_old = head.is_head, False
        else:
            self._known, self._scope = None, head
            head[CLIENT] = self
            self._is_head, self.is_old = head["method"] == "HEAD", head["http_version"] == "1.0"
        self.outlet = connection.outlet
        self.flow = connection.flow
        self.keep_alive = keep_alive
        self.task: asyncio.Task[None] | None = None  # the task that answers
        self.has_left = False  # whether the client has left, or the connection was ended here
        if body is None:
            self.more_body, self.size = True, 0
            self._parts: list[bytes] = []  # of the body that the application has not received
        else:
            self.more_body, self.size = False, len(body)
            self._parts = [body]
        self.length: int | None = None if body is None else self.size
        self.status = 0  # 0 until the reply has begun
        self.response_started = False
        self.response_complete = False
        self._connection = connection
        self._is_watched = False
        self._has_news = not self.more_body  # whether `receive` has something to return
        self._waiting: asyncio.Future[None] | None = None
        self._asks_for_body = True  # whether the client may still wait for "100 Continue"
        self._is_chunked = False
        self._bytes_left = 0  # of a reply whose length is declared

    @property
    def scope(self) -> Scope:
        if self._scope is None:
            assert self._known is not None
            self._scope = self._known.scope(b"%d" % (self.length or 0))
            self._scope[CLIENT] = self
        return self._scope

    async def run(self, app: ASGIApplication) -> None:
        """Run the application; close the connection where it fails or sends no whole reply."""
        try:
            known, work = self._known, None
            if known is not None and known.again is not None:
                work = known.again(self)
                if work is None:  # such requests have to be admitted again
                    known.again = None
            await (work or app(self.scope, self.receive, self.send))
        except BaseException as error:  # including the server's cancellation when it ends
            self._fail(**place(error))
        else:
            if not self.response_complete and not self.has_left:
                self._fail(kind="no whole reply")
        finally:
            if self.task is not None:
                self._connection.tasks.discard(self.task)
                self.task = None  # breaks a reference cycle
            if self._scope is not None:
                self._scope.pop(CLIENT, None)  # likewise, where no endpoint has removed it

    def _fail(self, **why: str) -> None:
        log.error("no_reply", path=self.scope["path"], **why)
        if not self.response_started and not self.has_left:
            self.response_started = True
            self.keep_alive = False
            self.outlet.write(refusal(ProxyError("the proxy failed; its log says where")))
            self._complete()
        self.outlet.close()

    def add(self, part: bytes) -> None:
        """Append a part of the body."""
        self._parts.append(part)
        self.size += len(part)
        self._tell()

    def end_body(self) -> None:
        self.more_body = False
        self._tell()

    def leave(self) -> None:
        """Note that the client has left before its reply was whole, and wake `receive`.

        The task that answers is cancelled if it is watched. After a whole reply only `receive` is
        woken.
        """
        if not self.response_complete:
            self.has_left = True
            if self._is_watched and self.task is not None:
                self.task.cancel()
        self._tell()

    def hang_up(self) -> None:
        """End the connection, even in the middle of a reply."""
        self.has_left = True
        self.keep_alive = False
        self.outlet.close()

    def note_known(self, has_key: bool) -> None:
        self._connection.note_known(has_key)

    def whole_body(self, limit: int) -> bytes | None:
        if self.more_body or self.has_left or self.size > limit:
            return None
        self._has_news = False
        return self._take()

    def _take(self) -> bytes:
        parts = self._parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._parts = []
        self.size = 0
        return body

    def watch(self) -> None:
        self._is_watched = True
        if self.flow.read_paused:
            self.flow.resume_reading()

    def unwatch(self) -> None:
        self._is_watched = False

    def _tell(self) -> None:
        """Wake `receive`, which has something to return now."""
        self._has_news = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def receive(self) -> Any:
        if not self._has_news and not self.has_left and not self.response_complete:
            self._continue()
            self.flow.resume_reading()
            await self._news()
        self._has_news = False
        if self.has_left or self.response_complete:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._take(), "more_body": self.more_body}

    async def _news(self) -> None:
        while not self._has_news:
            if self._waiting is None:
                self._waiting = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiting)  # one of two waiting tasks may be cancelled

    def _continue(self) -> None:
        """Send "100 Continue" once, if the client waits for it."""
        is_asked_for, self._asks_for_body = self._asks_for_body, False
        if is_asked_for and not self.outlet.is_closing() and _expects(self.scope["headers"]):
            self.outlet.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _is_there(self) -> bool:
        """Wait while the client is slow, and return whether it is still there."""
        if self.flow.write_paused and not self.has_left:
            await self.flow.drain()
        return not self.has_left

    async def send(self, message: Message) -> None:
        if not await self._is_there():
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

    async def begin(self, status: int, headers: Headers) -> None:
        if await self._is_there():
            self._write_head(status, headers)

    async def write(self, part: bytes) -> None:
        if await self._is_there():
            self._write_part(part, True)

    async def end(self) -> None:
        if await self._is_there():
            self._write_part(b"", False)

    def takes_parts(self) -> bool:
        is_open = self._is_chunked and not self.response_complete
        return is_open and not self.flow.write_paused and not self.has_left

    def write_part(self, part: bytes) -> None:
        self.outlet.write_alone(b"%x\r\n%b\r\n" % (len(part), part))

    async def write_whole(self, status: int, headers: Headers, body: Pieces) -> None:
        if not await self._is_there():
            return
        first, is_one = body[0], len(body) == 1
        size = len(first) if is_one else sum(map(len, body))
        fields, length = serialize_fields(headers), b""
        if fields.find(b"content-length: ") < 0:
            length = b"content-length: %d\r\n" % size
        else:  # the length keeps its place among the fields
            fields = serialize_fields(with_length(headers, size))
        head = self._head(status, fields, length)
        if self._is_head:
            self.outlet.write_alone(head)
        elif is_one and size < WRITTEN_TOGETHER:
            self.outlet.write_alone(head + first)
        else:
            self.outlet.write_large([head, *body])
        self.response_started = True
        self._complete()

    def _complete(self) -> None:
        self.response_complete = True
        if self._waiting is not None:
            self._tell()
        if not self.keep_alive:
            self.outlet.close()
        self._connection.on_response_complete()

    def _write_part(self, body: bytes, is_more: bool) -> None:
        """Write a part of the body.

        Raises RuntimeError where its length differs from the declared one.
        """
        if self._is_head:
            self._bytes_left = 0
        elif self._is_chunked:
            end = b"" if is_more else b"0\r\n\r\n"
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            self.outlet.write(chunk + end)
        else:
            self._bytes_left -= len(body)
            if self._bytes_left < 0:
                raise RuntimeError("the body is longer than its content-length")
            self.outlet.write(body)
        if not is_more:
            if self._bytes_left:
                raise RuntimeError("the body is shorter than its content-length")
            self.outlet.flush()
            self._complete()

    def _write_head(self, status: int, headers: Headers) -> None:
        """Write the head of a reply whose body follows in parts."""
        length, framing = dict(headers).get(b"content-length"), b""
        if length is not None:
            self._bytes_left = int(length)
        elif not self._is_head and status not in WITHOUT_BODY:
            self._is_chunked, framing = True, b"transfer-encoding: chunked\r\n"
        self.outlet.write(self._head(status, serialize_fields(headers), framing))
        self.response_started = True

    def _head(self, status: int, fields: bytes, framing: bytes) -> bytes:
        self._asks_for_body = False
        self.status = status
        closing = b"" if self.keep_alive else b"connection: close\r\n"
        line = STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        return b"".join((line, fields, framing, closing, b"\r\n"))
