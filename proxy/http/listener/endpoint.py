"""Requests and replies as plain values, and the two ends of an ASGI connection.

Routes of relayed traffic are plain ASGI endpoints: no body is declared as a model, read twice or
copied. A client that disconnects cancels the work, and with it the call upstream. A body over
`limits.max_body` is refused here. Bodies that grow when they are unpacked, or have too many JSON
values, are refused in `exchange/request.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from proxy.errors import BodyTooLargeError, ProxyError
from proxy.http.wire import headers as names
from proxy.http.wire.http import (
    CLIENT,
    Client,
    DisconnectWatch,
    ErrorBody,
    Handler,
    Message,
    Receive,
    Reply,
    Request,
    Scope,
    Send,
    error_reply,
    place,
    request_of,
)

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
        request = request_of(scope)
        client: Client | None = scope.pop(CLIENT, None)
        if client is not None:
            return self.answer(request, client)
        return self._receive(request, _Ends(scope, receive, send), None, _declared_length(request))

    def answer(self, request: Request, client: Client) -> Awaitable[None]:
        """Answer a client of our own server; `request.body` is set here."""
        body = client.whole_body(self._max_body)
        if body is None:
            length = _declared_length(request) if client.length is None else client.length
            return self._receive(request, client, client, length)
        request.body = body
        return self._answer(request, client, client, client)

    async def _receive(
        self, request: Request, ends: _Ends | Client, client: Client | None, length: int
    ) -> None:
        """Read the body, then answer; a client that leaves before gets no reply."""
        try:
            request.body = await _read_body(ends.receive, length, self._max_body)
        except ProxyError as error:
            await send_reply(error_reply(error, self._error_body), ends.scope, ends.send)
        except _ClientGoneError:
            return
        else:
            watch = _Watch(ends.receive) if client is None else client
            await self._answer(request, ends, client, watch)

    async def _answer(
        self, request: Request, ends: _Ends | Client, client: Client | None, watch: DisconnectWatch
    ) -> None:
        watch.watch()
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
                if client is None or client.is_old:
                    await send_reply(reply, ends.scope, ends.send, watch.unwatch)
                elif not sent_whole(reply, client):
                    await _send(reply, client.send, watch.unwatch, client)
            except Exception as error:  # the status is sent, so only a missing end shows the fault
                log.error("reply_broke_off", path=request.path, **place(error))
            finally:
                if reply.on_close is not None:
                    await reply.on_close()
        except asyncio.CancelledError:
            if not watch.has_left:
                raise
        finally:
            watch.unwatch()


@dataclass(slots=True)
class _Ends:
    """The three arguments of an ASGI application, for a request to another server than ours."""

    scope: Scope
    receive: Receive
    send: Send


class _Watch:
    """Waits for a client of another server than ours to leave.

    It takes a task, which costs as much as a small request.
    """

    __slots__ = ("_receive", "_waiting", "has_left")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._waiting: asyncio.Task[None] | None = None
        self.has_left = False

    def watch(self) -> None:
        working = asyncio.current_task()
        assert working is not None  # an ASGI application runs in a task
        self._waiting = asyncio.create_task(self._wait(working))

    async def _wait(self, working: asyncio.Task[Any]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.has_left = True
        working.cancel()

    def unwatch(self) -> None:
        waiting, self._waiting = self._waiting, None  # breaks a reference cycle
        if waiting is not None:
            waiting.cancel()


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


def _collect_body(send: Send) -> Send:
    started: list[Message] = []
    parts: list[bytes] = []

    async def send_whole(message: Message) -> None:
        if message["type"] == "http.response.start":
            started.append(message)
            return
        parts.append(message.get("body", b""))
        if message.get("more_body", False):
            return
        body = b"".join(parts)
        start = started[0]
        if not any(name == b"content-length" for name, _ in start["headers"]):
            length = (b"content-length", b"%d" % len(body))
            start = {**start, "headers": [*start["headers"], length]}
        await send(start)
        await send({"type": "http.response.body", "body": body})

    return send_whole


def _do_nothing() -> None:
    """Do nothing."""


def sent_whole(reply: Reply, client: Client) -> bool:
    """Send a whole reply at once and return True, or False for one that `send_reply` must send.

    That is a reply whose body is still arriving, or whose client is slow, has left, or speaks
    HTTP/1.0.
    """
    pieces = reply.pieces()
    if pieces is None or client.is_old:
        return False
    return client.write_whole(reply.status, reply.headers, pieces)


async def send_reply(
    reply: Reply, scope: Scope, send: Send, before_end: Callable[[], None] = _do_nothing
) -> None:
    """Send a reply, and call `before_end` just before its last bytes.

    After those, servers report a disconnect that is none. HTTP/1.0 has no chunks, so its clients
    get every body whole.
    """
    if scope.get("http_version") == "1.0":
        send = _collect_body(send)
    await _send(reply, send, before_end, None)


async def _send(
    reply: Reply, send: Send, before_end: Callable[[], None], client: Client | None
) -> None:
    """Send a reply as ASGI messages or, where possible, directly to a client of our own server."""
    pieces = reply.pieces()
    if pieces is not None:
        fields = names.with_length(reply.headers, sum(map(len, pieces)))
        await send({"type": "http.response.start", "status": reply.status, "headers": fields})
        before_end()
        await send({"type": "http.response.body", "body": b"".join(pieces)})
        return
    fields = reply.headers
    if reply.status == NOT_MODIFIED:  # it has no body, and servers check a declared length
        fields = names.without(fields, b"content-length")
    if client is None or not client.begin(reply.status, fields):
        await send({"type": "http.response.start", "status": reply.status, "headers": fields})
    body: Any = reply.body
    writer = _Writer(send, client)
    try:
        if callable(body):
            await body(writer)
        else:
            async for chunk in body:
                await writer.write(chunk)
        before_end()
        if client is None or not client.end():
            await send({"type": "http.response.body", "body": b""})
    finally:
        if hasattr(body, "aclose"):
            await body.aclose()


class _Writer:
    """Sends the parts of a body: directly to the client of our own server, else by ASGI."""

    __slots__ = ("_send", "client")

    def __init__(self, send: Send, client: Client | None) -> None:
        self._send = send
        self.client = client

    async def write(self, part: bytes) -> None:
        client = self.client
        if client is None or not part or not client.add_part(part):
            await self._send({"type": "http.response.body", "body": part, "more_body": True})
