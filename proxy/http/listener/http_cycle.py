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
        """Stop reading from the client's socket until `resume_reading` is called."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the client's socket again; does nothing if reading was not paused."""
        if self.read_paused:
            self.read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Note that the transport's buffer is full, so that `drain` waits."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """Note that the transport's buffer has room again, and wake all that wait in `drain`."""
        self.write_paused = False
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def drain(self) -> None:
        """Wait while the transport's buffer is full, until the client has read enough or left."""
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
        """Keep a parsed head; `scope` is its ASGI scope, of which a copy is kept.

        Raises ValueError if the head has no `content-length`.
        """
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
        """Return a new ASGI scope of this head, with `length` (digits) as its content length.

        The list of headers is new too; the scope has this head under `KNOWN`.
        """
        scope = self._scope.copy()
        scope["headers"] = headers = scope["headers"].copy()
        headers[self._position] = (b"content-length", length)
        scope[KNOWN] = self
        return scope


def known_head(data: bytes, scope: Scope, *, has_body: bool = True) -> KnownHead | None:
    """Return a recognizer of the one request's head in `data`, or None if none can be made.

    `data` must hold the head and, with `has_body`, the complete body, else nothing of it. None for
    a head of more than 8,192 bytes, one without a content length, or one whose end is not certain.
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
    """Return whether a head has `expect: 100-continue`: its client waits for that reply."""
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
        """Begin a cycle for a head, either its ASGI scope or one that this connection sent before.

        A `body` of bytes is complete; None means that it arrives later by `add` and `end_body`.
        `keep_alive` False closes the connection after the reply.
        """
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
        """The ASGI scope of the request, made at first use for a head that was sent before."""
        if self._scope is None:
            assert self._known is not None
            self._scope = self._known.scope(b"%d" % (self.length or 0))
            self._scope[CLIENT] = self
        return self._scope

    async def run(self, app: ASGIApplication) -> None:
        """Answer the request by a known head's `again`, or else by the ASGI application `app`.

        An exception, cancellation included, and an application that ends without a complete reply
        are logged as `no_reply`; the client gets 500 if no reply has begun, and the connection is
        closed. Nothing is raised.
        """
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

    def _fail(self, **details: str) -> None:
        """Log `no_reply` with these facts and close the connection.

        The client gets 500 first if no reply has begun and it has not left.
        """
        log.error("no_reply", path=self.scope["path"], **details)
        if not self.response_started and not self.has_left:
            self.response_started = True
            self.keep_alive = False
            self.outlet.write(refusal(ProxyError("the proxy failed; its log says where")))
            self._complete()
        self.outlet.close()

    def add(self, part: bytes) -> None:
        """Append bytes to the body that the application has not received, and wake `receive`."""
        self._parts.append(part)
        self.size += len(part)
        self._wake_receive()

    def end_body(self) -> None:
        """Note that the body is complete, and wake `receive`."""
        self.more_body = False
        self._wake_receive()

    def leave(self) -> None:
        """Note that the client has left before its reply was whole, and wake `receive`.

        The task that answers is cancelled if it is watched. After a whole reply only `receive` is
        woken.
        """
        if not self.response_complete:
            self.has_left = True
            if self._is_watched and self.task is not None:
                self.task.cancel()
        self._wake_receive()

    def hang_up(self) -> None:
        """End the connection, even in the middle of a reply."""
        self.has_left = True
        self.keep_alive = False
        self.outlet.close()

    def note_known(self, has_key: bool) -> None:
        self._connection.note_known(has_key)

    def whole_body(self, limit: int) -> bytes | None:
        """Take the request's body if it is complete and within `limit`, else return None."""
        if self.more_body or self.has_left or self.size > limit:
            return None
        self._has_news = False
        return self._take()

    def _take(self) -> bytes:
        """Return all bytes of the body that have arrived and were not taken before."""
        parts = self._parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._parts = []
        self.size = 0
        return body

    def watch(self) -> None:
        """Cancel the task that answers if the client leaves; also reads on, to notice that."""
        self._is_watched = True
        if self.flow.read_paused:
            self.flow.resume_reading()

    def unwatch(self) -> None:
        self._is_watched = False

    def _wake_receive(self) -> None:
        """Wake `receive`, which has something to return now."""
        self._has_news = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def receive(self) -> Any:
        """Return the next ASGI message: a part of the body, or `http.disconnect`.

        Waits for one if necessary, after a "100 Continue" to a client that expects it.
        `http.disconnect` also follows a complete reply.
        """
        if not self._has_news and not self.has_left and not self.response_complete:
            self._continue()
            self.flow.resume_reading()
            await self._news()
        self._has_news = False
        if self.has_left or self.response_complete:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._take(), "more_body": self.more_body}

    async def _news(self) -> None:
        """Wait until a part of the body, its end, or the client's end has arrived."""
        while not self._has_news:
            if self._waiting is None:
                self._waiting = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiting)  # one of two waiting tasks may be cancelled

    def _continue(self) -> None:
        """Send "100 Continue" once, if the client waits for it."""
        is_expected, self._asks_for_body = self._asks_for_body, False
        if is_expected and not self.outlet.is_closing() and _expects(self.scope["headers"]):
            self.outlet.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _is_there(self) -> bool:
        """Wait while the client is slow, and return whether it is still there."""
        if self.flow.write_paused and not self.has_left:
            await self.flow.drain()
        return not self.has_left

    async def send(self, message: Message) -> None:
        """Send an ASGI message of the reply; waits while the client is slow.

        Does nothing if the client has left. Raises RuntimeError for a message out of order, after
        the end of the reply, or with more or fewer bytes than the reply's content length.
        """
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
        """Write a chunk at once, without a check; call it only while `takes_parts` is True."""
        self.outlet.write_alone(b"%x\r\n%b\r\n" % (len(part), part))

    async def write_whole(self, status: int, headers: Headers, body: Pieces) -> None:
        """Send head and body of a reply in one write, or in several for 64 KiB and more.

        The content length is appended to the headers, or corrected where they have one. HEAD gets
        no body.
        """
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
        """End the reply: wake `receive` and begin the connection's next request.

        A connection that is not kept is closed first.
        """
        self.response_complete = True
        if self._waiting is not None:
            self._wake_receive()
        if not self.keep_alive:
            self.outlet.close()
        self._connection.on_response_complete()

    def _write_part(self, body: bytes, is_more: bool) -> None:
        """Write a part of the body as a chunk, or plain if the content length is declared.

        The last part (`is_more` False) also ends the reply. Nothing is written for HEAD. Raises
        RuntimeError if the body is longer or shorter than its content length.
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
        """Write the head of a reply whose body follows in parts.

        It has `transfer-encoding: chunked` if no length is declared, except for HEAD, 204 and 304,
        which have no body.
        """
        length, framing = dict(headers).get(b"content-length"), b""
        if length is not None:
            self._bytes_left = int(length)
        elif not self._is_head and status not in WITHOUT_BODY:
            self._is_chunked, framing = True, b"transfer-encoding: chunked\r\n"
        self.outlet.write(self._head(status, serialize_fields(headers), framing))
        self.response_started = True

    def _head(self, status: int, fields: bytes, framing: bytes) -> bytes:
        """Return the reply's head as bytes, from status line to blank line, and set `status`.

        `fields` and `framing` are lines with their line ends. `connection: close` is added where
        the connection is not kept.
        """
        self._asks_for_body = False
        self.status = status
        closing = b"" if self.keep_alive else b"connection: close\r\n"
        line = STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        return b"".join((line, fields, framing, closing, b"\r\n"))
