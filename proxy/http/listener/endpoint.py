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
    """An ASGI application around one handler; `error_body` formats its errors."""

    def __init__(
        self, handler: Handler, max_body: int, error_body: ErrorBody = ProxyError.body
    ) -> None:
        self._handler = handler
        self._max_body = max_body
        self._error_body = error_body

    def around(self, handle: Callable[[Handler, Request], Awaitable[Reply]]) -> Endpoint:
        """Return an endpoint like this one whose requests go to `handle`, with this handler."""
        return Endpoint(partial(handle, self._handler), self._max_body, self._error_body)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        client: Client | None = scope.pop(CLIENT, None)
        return self.answer(request_of(scope), client or _AsgiClient(scope, receive, send))

    def answer(self, request: Request, client: Client) -> Awaitable[None]:
        """Answer a client; `request.body` is set here."""
        body = client.whole_body(self._max_body)
        if body is None:
            return self._receive(request, client)
        request.body = body
        return self._answer(request, client)

    async def _receive(self, request: Request, client: Client) -> None:
        """Read the body, then answer; a client that leaves before gets no reply."""
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
    """Send a reply; a body without a length is collected for a client that knows no chunks."""
    pieces, fields = reply.pieces(), reply.headers
    if pieces is not None:
        await client.write_whole(reply.status, fields, pieces)
        return
    if reply.status == NOT_MODIFIED:  # it has no body, and servers check a declared length
        fields = names.without(fields, b"content-length")
    if client.is_old and names.header(fields, b"content-length") is None:
        whole = _Collected()
        await _write_body(reply.body, whole)
        await client.write_whole(reply.status, fields, (b"".join(whole.parts),))
        return
    await client.begin(reply.status, fields)
    await _write_body(reply.body, client)
    await client.end()


async def _write_body(body: Any, writer: BodyWriter) -> None:
    """Write a body that is produced now: by a function, or by an iterator that is closed then."""
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
    """Send a whole reply as the two messages of ASGI."""
    body = reply.whole()
    fields = names.with_length(reply.headers, len(body))
    await send({"type": "http.response.start", "status": reply.status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


class _Collected:
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
        working = asyncio.current_task()
        assert working is not None  # an ASGI application runs in a task
        self._waiting = asyncio.create_task(self._wait(working))

    async def _wait(self, working: asyncio.Task[Any]) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.has_left = True
        working.cancel()

    def unwatch(self) -> None:
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
    """The client left before its request was whole."""


def _declared_length(request: Request) -> int:
    """Return the body's length as the head declares it, 0 where it does not."""
    told = request.values.get(b"content-length", b"")
    return int(told) if told.isdigit() else 0


async def _read_body(receive: Receive, length: int, limit: int) -> bytes:
    """Read the whole body.

    Raises BodyTooLargeError beyond the limit, at once where the declared `length` is, and
    _ClientGoneError where the client leaves.
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
