"""Requests and replies as plain values, and the two ends of an ASGI connection.

Routes of relayed traffic are plain ASGI endpoints: no body is declared as a model, read twice or
copied. A client that disconnects cancels the work, and with it the call upstream. A body over
`limits.max_body` is refused here. Bodies that grow when they are unpacked, or have too many JSON
values, are refused in `exchange/request.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog

from proxy.errors import BodyTooLargeError, ProxyError
from proxy.http.wire import headers as names
from proxy.http.wire.headers import Headers
from proxy.http.wire.http import (
    CLIENT,
    BodyWriter,
    Client,
    ErrorBody,
    Handler,
    Receive,
    Reply,
    Request,
    Scope,
    Send,
    error_reply,
    place,
    request_of,
)
from proxy.http.wire.json_splice import Pieces

NOT_MODIFIED = 304
log = structlog.get_logger(__name__)


class Endpoint:
    """An ASGI application around one handler, a coroutine from `Request` to `Reply`.

    `max_body` is the most bytes of a request's body. `error_body` writes a ProxyError as bytes in
    the client's format, such as OpenAI's envelope.
    """

    def __init__(
        self, handler: Handler, max_body: int, error_body: ErrorBody = ProxyError.body
    ) -> None:
        self._handler = handler
        self._max_body = max_body
        self._error_body = error_body

    def around(self, handle: Callable[[Handler, Request], Awaitable[Reply]]) -> Endpoint:
        """Return an endpoint with the same limits that calls `handle(handler, request)`.

        `handler` is this endpoint's own.
        """
        return Endpoint(partial(handle, self._handler), self._max_body, self._error_body)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Read a request, answer it and send the reply, by the `Client` in the scope or by ASGI.

        A `Client` is removed from the scope, because scope and client would keep each other alive.
        """
        client: Client | None = scope.pop(CLIENT, None)
        return self.answer(request_of(scope), client or _AsgiClient(scope, receive, send))

    def answer(self, request: Request, client: Client) -> Awaitable[None]:
        """Return the work that reads the body into `request.body`, calls the handler and replies.

        It does not raise errors of the handler: a ProxyError is answered in the client's format,
        and any other exception with 500 and a log line.
        """
        body = client.whole_body(self._max_body)
        if body is None:
            return self._receive(request, client)
        request.body = body
        return self._answer(request, client)

    async def _receive(self, request: Request, client: Client) -> None:
        """Read a body that is not complete yet into `request.body`, then answer.

        A body over the limit gets an error reply (413). A client that leaves before gets none.
        """
        length = _declared_length(request) if client.length is None else client.length
        try:
            request.body = await _read_body(client.receive, length, self._max_body)
        except ProxyError as error:
            await _send(error_reply(error, self._error_body), client)
        except _ClientGoneError:
            return
        else:
            await self._answer(request, client)

    async def _answer(self, request: Request, client: Client) -> None:
        """Call the handler and send its reply, or an error reply if it raises.

        While it works, a client that leaves cancels this task; that cancellation ends here. The
        reply's `on_close` is awaited in any case. An error while the reply is being sent is only
        logged.
        """
        client.watch()
        handler = self._handler  # `self._handler()` would look for a method of the class first
        try:
            try:
                reply = await handler(request)
            except ProxyError as error:  # without its traceback, whose frames keep much memory
                reply = error_reply(error.with_traceback(None), self._error_body)
            except Exception as error:  # a fault of ours; the client still gets an envelope
                log.error("internal_error", path=request.path, **place(error))
                fault = ProxyError("the proxy failed; its log says where")
                reply = error_reply(fault, self._error_body)
            try:
                await _send(reply, client)
            except Exception as error:  # the status is sent, so only a missing end shows the fault
                log.error("reply_broke_off", path=request.path, **place(error))
            finally:
                if reply.on_close is not None:
                    await reply.on_close()
        except asyncio.CancelledError:
            if not client.has_left:
                raise
        finally:
            client.unwatch()


async def _send(reply: Reply, client: Client) -> None:
    """Send a reply to a client: whole if its body is known, else in parts as they are produced.

    A body without a content length is collected first for a client of HTTP/1.0, which has no
    chunks.
    """
    pieces, fields = reply.pieces(), reply.headers
    if pieces is not None:
        await client.write_whole(reply.status, fields, pieces)
        return
    if reply.status == NOT_MODIFIED:  # it has no body, and servers check a declared length
        fields = names.without(fields, b"content-length")
    if client.is_old and names.header(fields, b"content-length") is None:
        whole = _CollectedBody()
        await _write_body(reply.body, whole)
        await client.write_whole(reply.status, fields, (b"".join(whole.parts),))
        return
    await client.begin(reply.status, fields)
    await _write_body(reply.body, client)
    await client.end()


async def _write_body(body: Any, writer: BodyWriter) -> None:
    """Write a body that is still being produced to `writer`.

    `body` is a coroutine function that gets the writer, or an asynchronous iterator of parts, which
    is closed at the end, also after an error.
    """
    try:
        if callable(body):
            await body(writer)
        else:
            async for chunk in body:
                await writer.write(chunk)
    finally:
        if hasattr(body, "aclose"):
            await body.aclose()


async def send_reply(reply: Reply, send: Send) -> None:
    """Send a whole reply, with its content length, as the two messages of an ASGI response."""
    body = reply.whole()
    fields = names.with_length(reply.headers, len(body))
    await send({"type": "http.response.start", "status": reply.status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


class _CollectedBody:
    """A writer that keeps the parts of a body."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    async def write(self, part: bytes) -> None:
        self.parts.append(part)

    def takes_parts(self) -> bool:
        return False

    def write_part(self, part: bytes) -> None:
        """Do nothing: `takes_parts` is never True."""


class _AsgiClient:
    """The client of another server than ours, such as Ray's, reached by the messages of ASGI.

    To learn that it leaves takes a task, which costs as much as a small request.
    """

    status = 0
    length: int | None = None

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self._send = send
        self.is_old = scope.get("http_version") == "1.0"
        self.has_left = False
        self._waiting: asyncio.Task[None] | None = None

    def whole_body(self, limit: int) -> bytes | None:
        return None

    def watch(self) -> None:
        """Start the task that cancels the current one when the client leaves."""
        working = asyncio.current_task()
        assert working is not None  # an ASGI application runs in a task
        self._waiting = asyncio.create_task(self._wait(working))

    async def _wait(self, working: asyncio.Task[Any]) -> None:
        """Wait for the message that the client has left; set `has_left`, cancel `working`."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.has_left = True
        working.cancel()

    def unwatch(self) -> None:
        """Cancel the task that `watch` started, if any."""
        waiting, self._waiting = self._waiting, None  # breaks a reference cycle
        if waiting is not None:
            waiting.cancel()

    def note_known(self, has_key: bool) -> None:
        """Do nothing: the other server admits its clients."""

    def hang_up(self) -> None:
        """Do nothing: a reply without its end shows the fault."""

    async def write_whole(self, status: int, headers: Headers, body: Pieces) -> None:
        self.unwatch()  # behind the last bytes, servers report a disconnect that is none
        await send_reply(Reply(status, headers, body), self._send)

    async def begin(self, status: int, headers: Headers) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    def takes_parts(self) -> bool:
        return False

    def write_part(self, part: bytes) -> None:
        """Do nothing: `takes_parts` is never True."""

    async def write(self, part: bytes) -> None:
        await self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def end(self) -> None:
        self.unwatch()
        await self._send({"type": "http.response.body", "body": b""})


class _ClientGoneError(Exception):
    """The client left before the body of its request was complete."""


def _declared_length(request: Request) -> int:
    """Return the number in the request's `content-length`; 0 without one, or if it is no number."""
    length = request.values.get(b"content-length", b"")
    return int(length) if length.isdigit() else 0


async def _read_body(receive: Receive, length: int, limit: int) -> bytes:
    """Read all parts of a request's body with ASGI's `receive`, and return them as one.

    Raises BodyTooLargeError beyond `limit` bytes, at once if the head's `length` is beyond it
    already, and _ClientGoneError if the client leaves before the end.
    """
    if length > limit:
        raise BodyTooLargeError(
            f"the body has {length} bytes, {limit} are allowed (limits.max_body)"
        )
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientGoneError
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise BodyTooLargeError(f"the body is larger than {limit} bytes (limits.max_body)")
        parts.append(part)
        if not message.get("more_body", False):
            return part if len(parts) == 1 else b"".join(parts)
