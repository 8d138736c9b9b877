"""Requests and replies as plain values, and the two ends of an ASGI connection.

Routes of relayed traffic are plain ASGI endpoints: no body is declared as a model, read twice or
copied. A client that disconnects cancels the work, and with it the call upstream.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog
from starlette.types import Message, Receive, Scope, Send

from proxy import headers as names
from proxy.errors import BodyTooLargeError, ProxyError
from proxy.upstream import Headers, header


@dataclass(slots=True)
class Request:
    """A client's request: names of headers in lower case, the body as it came."""

    method: str
    path: str
    query: str
    headers: Headers
    body: bytes = b""
    started: float = field(default_factory=time.perf_counter)

    def header(self, name: str) -> str | None:
        return header(self.headers, name)


@dataclass(slots=True)
class Reply:
    """What the client gets: a whole body, or one that is still arriving."""

    status: int
    headers: Headers
    body: bytes | AsyncIterator[bytes] = b""
    on_close: Callable[[], Awaitable[None]] | None = None


log = structlog.get_logger(__name__)

Handler = Callable[[Request], Awaitable[Reply]]


def error_reply(error: ProxyError) -> Reply:
    """OpenAI's envelope, marked as ours."""
    fields = [("content-type", "application/json"), (names.ERROR, "true"), *error.headers]
    return Reply(error.status, fields, error.body())


class Endpoint:
    """An ASGI application around one handler."""

    def __init__(self, handler: Handler, max_body: int) -> None:
        self._handler = handler
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = _request_of(scope)
        try:
            request.body = await _read_body(receive, request, self._max_body)
        except ProxyError as error:
            await send_reply(error_reply(error), send)
            return
        except _ClientGoneError:
            return
        work = asyncio.create_task(self._answer(request, send))
        watch = asyncio.create_task(_until_disconnect(receive))
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
            if not work.done():
                work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    async def _answer(self, request: Request, send: Send) -> None:
        try:
            reply = await self._handler(request)
        except ProxyError as error:
            reply = error_reply(error)
        except Exception as error:  # a fault of ours; the client still gets an envelope
            log.error("internal_error", path=request.path, **_place(error))
            reply = error_reply(ProxyError("the proxy failed; its log says where"))
        try:
            await send_reply(reply, send)
        except Exception as error:  # the status is out: a body without its end has to say it
            log.error("reply_broke_off", path=request.path, **_place(error))
        finally:
            if reply.on_close is not None:
                await reply.on_close()


def _place(error: Exception) -> dict[str, str]:
    """What failed and where; never the message, which may hold what a client sent."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return {"kind": type(error).__name__, "at": f"{frame.filename}:{frame.lineno}"}


class _ClientGoneError(Exception):
    """The client left before its request was whole."""


def _request_of(scope: Scope) -> Request:
    fields = [
        (name.decode("latin-1").lower(), value.decode("latin-1"))
        for name, value in scope["headers"]
    ]
    path = scope.get("raw_path") or scope["path"].encode()
    return Request(
        method=scope["method"],
        path=path.split(b"?")[0].decode("latin-1"),
        query=scope["query_string"].decode("latin-1"),
        headers=fields,
    )


async def _read_body(receive: Receive, request: Request, limit: int) -> bytes:
    """Reads the body up to the limit; raises BodyTooLargeError beyond it."""
    declared = request.header("content-length") or ""
    if declared.isdigit() and int(declared) > limit:
        raise BodyTooLargeError(
            f"the body has {declared} bytes, {limit} are allowed (limits.max_body)"
        )
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientGoneError
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise BodyTooLargeError(f"the body is larger than {limit} bytes (limits.max_body)")
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_reply(reply: Reply, send: Send) -> None:
    fields: list[tuple[str, str]] = list(reply.headers)
    if isinstance(reply.body, bytes):
        fields = [
            *names.without(fields, "content-length"),
            ("content-length", str(len(reply.body))),
        ]
    start: Message = {
        "type": "http.response.start",
        "status": reply.status,
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields],
    }
    await send(start)
    if isinstance(reply.body, bytes):
        await send({"type": "http.response.body", "body": reply.body})
        return
    body: Any = reply.body
    try:
        async for chunk in body:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        if hasattr(body, "aclose"):
            await body.aclose()
