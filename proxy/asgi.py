"""Requests and replies as plain values, and the two ends of an ASGI connection.

Routes of relayed traffic are plain ASGI endpoints: no body is declared as a model, read twice or
copied. A client that disconnects cancels the work, and with it the call upstream.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from proxy import headers as names
from proxy.callers import ANYONE, CALLER, Caller
from proxy.errors import BodyTooLargeError, ProxyError
from proxy.json_splice import Pieces
from proxy.remembering import remembers
from proxy.upstream import Headers, WithHeaders, first_values

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

NOT_MODIFIED = 304
METRICS = "pinocchio.metrics"
"""Where the application puts what counts a request."""
CLIENT = "pinocchio.client"
"""Where our own server puts the `Client` of a request into its scope. Whoever uses it takes it out,
or it would keep the scope, and the scope it."""


class Client(Protocol):
    """Who asked, without the messages of ASGI between."""

    def whole_body(self, limit: int) -> bytes | None:
        """The request's body, if all of it is there and has at most `limit` bytes; else it has to
        be `receive`d."""

    def note_known(self) -> None:
        """Who asks may come in; connections of those who may not have only a share of the room."""

    def hang_up(self) -> None:
        """Ends the connection; a reply that is not whole stays so."""

    def tell_leaving(self, call: Callable[[], object] | None) -> None:
        """Calls once, when the client leaves before its reply is whole; with None, not any more."""

    def write_whole(self, status: int, headers: Headers, body: Pieces) -> bool:
        """Sends a whole reply, its length among the headers; False if the client is slow, so that
        the reply has to wait in `send`."""


class Counts(Protocol):
    """What counts requests that end."""

    def note(self, exchange: Any) -> None: ...


@dataclass(slots=True)
class Request(WithHeaders):
    """A client's request: names of headers in lower case, the body as it came."""

    method: str
    path: str
    query: str
    headers: Headers
    body: bytes = b""
    caller: Caller = ANYONE
    metrics: Counts | None = None
    started: float = field(default_factory=time.perf_counter)
    values: dict[bytes, bytes] = field(init=False)  # the first value of every header

    def __post_init__(self) -> None:
        self.values = first_values(self.headers)


@dataclass(slots=True)
class Reply:
    """What the client gets: a whole body, or one that is still arriving."""

    status: int
    headers: Headers
    body: bytes | Pieces | AsyncIterator[bytes] = b""
    on_close: Callable[[], Awaitable[None]] | None = None

    def pieces(self) -> Pieces | None:
        """The body; None while it is still arriving."""
        if isinstance(self.body, bytes):
            return (self.body,)
        return self.body if isinstance(self.body, tuple) else None

    def whole(self) -> bytes:
        """The body of a reply that is not still arriving."""
        pieces = self.pieces()
        assert pieces is not None
        return b"".join(pieces)


log = structlog.get_logger(__name__)

Handler = Callable[[Request], Awaitable[Reply]]
ErrorBody = Callable[[ProxyError], bytes]


def error_reply(error: ProxyError, body: ErrorBody = ProxyError.body) -> Reply:
    """The envelope of the client's format, marked as ours."""
    fields = [
        (b"content-type", b"application/json"),
        (names.ERROR, b"true"),
        *error.headers,
    ]
    return Reply(error.status, fields, body(error))


class Endpoint:
    """An ASGI application around one handler; `error_body` words the errors of its format."""

    def __init__(
        self, handler: Handler, max_body: int, error_body: ErrorBody = ProxyError.body
    ) -> None:
        self._handler = handler
        self._max_body = max_body
        self._error_body = error_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, limit = request_of(scope), self._max_body
        client: Client | None = scope.pop(CLIENT, None)
        body = None if client is None else client.whole_body(limit)
        try:
            request.body = await _read_body(receive, request, limit) if body is None else body
        except ProxyError as error:
            await send_reply(error_reply(error, self._error_body), scope, send)
            return
        except _ClientGoneError:
            return
        watch = _Watch(client, receive)
        try:
            await self._answer(request, scope, send, watch)
        except asyncio.CancelledError:
            if not watch.has_left:
                raise
        finally:
            watch.stop()

    async def _answer(self, request: Request, scope: Scope, send: Send, watch: _Watch) -> None:
        try:
            reply = await self._handler(request)
        except ProxyError as error:
            reply = error_reply(error, self._error_body)
        except Exception as error:  # a fault of ours; the client still gets an envelope
            log.error("internal_error", path=request.path, **place(error))
            fault = ProxyError("the proxy failed; its log says where")
            reply = error_reply(fault, self._error_body)
        try:
            if watch.client is None or not sent_whole(reply, scope, watch.client):
                await send_reply(reply, scope, send, before_end=watch.stop)
        except Exception as error:  # the status is out: a body without its end has to say it
            log.error("reply_broke_off", path=request.path, **place(error))
        finally:
            if reply.on_close is not None:
                await reply.on_close()


class _Watch:
    """Cancels the current task when its client leaves."""

    __slots__ = ("_waiting", "_working", "client", "has_left")

    def __init__(self, client: Client | None, receive: Receive) -> None:
        self._working = asyncio.current_task()
        self._waiting: asyncio.Task[None] | None = None
        self.has_left = False
        self.client = client
        if client is not None:
            client.tell_leaving(self._leave)
        else:  # another server; there a task waits, which costs as much as a small request
            self._waiting = asyncio.create_task(self._wait(receive))

    async def _wait(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        assert self._working is not None  # an ASGI application runs in a task
        self.has_left = True
        self._working.cancel()

    def stop(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            client.tell_leaving(None)
        waiting, self._waiting = self._waiting, None  # or each would keep the other
        if waiting is not None:
            waiting.cancel()


def place(error: Exception) -> dict[str, str]:
    """What failed and where; never the message, which may hold what a client sent."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return {"kind": type(error).__name__, "at": f"{frame.filename}:{frame.lineno}"}


class _ClientGoneError(Exception):
    """The client left before its request was whole."""


def request_of(scope: Scope) -> Request:
    """The request without its body."""
    path = raw_path_of(scope)
    query = scope["query_string"].decode("latin-1")
    told = scope.get(CALLER, ANYONE), scope.get(METRICS)
    return Request(scope["method"], path, query, scope["headers"], b"", *told)


def raw_path_of(scope: Scope) -> str:
    """The path as it came over the wire."""
    return _path_of(scope.get("raw_path") or scope["path"].encode())


@remembers(1_024)
def _path_of(raw: bytes) -> str:
    return raw.partition(b"?")[0].decode("latin-1")


async def _read_body(receive: Receive, request: Request, limit: int) -> bytes:
    """Reads the body up to the limit; raises BodyTooLargeError beyond it."""
    declared = request.values.get(b"content-length", b"")
    if declared.isdigit() and int(declared) > limit:
        raise BodyTooLargeError(
            f"the body has {int(declared)} bytes, {limit} are allowed (limits.max_body)"
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


def _with_length(headers: Headers, length: int) -> Headers:
    """The fields with the body's length, in the place where upstream has it."""
    field = (b"content-length", b"%d" % length)
    for at, told in enumerate(headers):
        if told[0] == b"content-length":
            changed = headers.copy()
            changed[at] = field
            return changed
    return [*headers, field]


def _collected(send: Send) -> Send:
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


def _nothing() -> None:
    """There is nothing to do."""


def sent_whole(reply: Reply, scope: Scope, client: Client) -> bool:
    """Sends a reply at once; False for what `send_reply` has to send: one still arriving, to a slow
    client, or to one of HTTP/1.0."""
    pieces = reply.pieces()
    if pieces is None or scope["http_version"] == "1.0":
        return False
    fields = _with_length(reply.headers, sum(map(len, pieces)))
    return client.write_whole(reply.status, fields, pieces)


async def send_reply(
    reply: Reply, scope: Scope, send: Send, before_end: Callable[[], None] = _nothing
) -> None:
    """Sends a reply; once its last bytes are out, servers report a disconnect that is none.

    HTTP/1.0 knows no chunks; such a client is sent every body whole.
    """
    if scope.get("http_version") == "1.0":
        send = _collected(send)
    pieces = reply.pieces()
    if pieces is not None:
        fields = _with_length(reply.headers, sum(map(len, pieces)))
        await send({"type": "http.response.start", "status": reply.status, "headers": fields})
        before_end()
        await send({"type": "http.response.body", "body": b"".join(pieces)})
        return
    body: Any = reply.body
    fields = reply.headers
    if reply.status == NOT_MODIFIED:  # servers count the bytes that a length promises
        fields = names.without(fields, b"content-length")
    await send({"type": "http.response.start", "status": reply.status, "headers": fields})
    try:
        async for chunk in body:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        before_end()
        await send({"type": "http.response.body", "body": b""})
    finally:
        if hasattr(body, "aclose"):
            await body.aclose()
