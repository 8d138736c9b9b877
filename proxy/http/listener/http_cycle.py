"""One request on the server's side, and the reply to it: the application's counterpart.

A whole body or reply is passed on without ASGI messages (`proxy.http.wire.http.Client`). Such a
reply is sent in one write, and its head is checked as one text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Protocol

import structlog

from proxy.errors import ProxyError
from proxy.http.listener.flow import Flow
from proxy.http.listener.known_head import KnownHead
from proxy.http.listener.request_heads import refusal
from proxy.http.wire.headers import serialize_fields, with_length
from proxy.http.wire.http import CLIENT, ASGIApplication, Message, Scope, place
from proxy.http.wire.outlet import Outlet

STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}
WRITTEN_TOGETHER = 2**16  # bytes of a body that is copied for one write
WITHOUT_BODY = (204, 304)

log = structlog.get_logger(__name__)


class CycleConnection(Protocol):
    """The parts of a connection that its cycles use."""

    outlet: Outlet
    flow: Flow
    tasks: set[asyncio.Task[None]]  # the tasks that answer requests

    def on_response_complete(self) -> None: ...

    def note_known(self, has_key: bool) -> None: ...


def _expects(headers: Iterable[tuple[bytes, bytes]]) -> bool:
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
            if self._known is None or (work := self._known.known.begin(self)) is None:
                work = app(self.scope, self.receive, self.send)
            await work
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

    async def send(self, message: Message) -> None:
        if self.flow.write_paused and not self.has_left:
            await self.flow.drain()
        if self.has_left:
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

    def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> bool:
        if self.flow.write_paused or self.has_left:
            return False
        self._write_head(status, headers)
        return True

    def end(self) -> bool:
        if self.flow.write_paused or self.has_left:
            return False
        self._write_part(b"", False)
        return True

    def takes_parts(self) -> bool:
        is_open = self._is_chunked and not self.response_complete
        return is_open and not self.flow.write_paused and not self.has_left

    def write_part(self, part: bytes) -> None:
        self.outlet.write_alone(b"%x\r\n%b\r\n" % (len(part), part))

    def add_part(self, part: bytes) -> bool:
        if not self.takes_parts():
            return False
        self.outlet.write(b"%x\r\n%b\r\n" % (len(part), part))
        return True

    def write_whole(
        self, status: int, headers: list[tuple[bytes, bytes]], body: tuple[bytes | memoryview, ...]
    ) -> bool:
        if self.flow.write_paused or self.has_left:
            return False
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
        return True

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

    def _write_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
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
