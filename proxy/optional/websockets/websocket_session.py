"""One WebSocket session: the client's end, upstream's end, and the messages between them.

Each side is read only as fast as the other takes messages: a slow reader stops the sender, and few
messages are held at a time. Whatever a side sent before it closed still reaches the other, and so
do its close code and reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from proxy.errors import BodyTooLargeError, ProxyError, RateLimitedError, UpstreamBrokenError
from proxy.http.listener.endpoint import send_reply
from proxy.http.wire.caller import TAKE
from proxy.http.wire.headers import Headers
from proxy.http.wire.http import Message, Receive, Reply, Scope, Send, error_reply
from proxy.http.wire.json_splice import dumps, json_object

GOING_AWAY, NO_CODE, TOO_BIG, FAILED = 1001, 1005, 1009, 1011
CLOSE_TIMEOUT_S = 2
RESPONSE_CREATE = "response.create"  # the type of a message that requests a response


@dataclass(frozen=True, slots=True)
class End:
    """How one side ended a session; `code` None is a close frame without a code."""

    code: int | None
    reason: str = ""
    error: str | None = None  # our machine code, if the connection broke


class ClientLeftError(Exception):
    """The client hung up before its handshake was answered."""


class SocketClient:
    """The client's end: ASGI messages, with a look ahead at the next one."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.offers: list[str] = [name for name in scope["subprotocols"] if name]
        self._can_refuse = "websocket.http.response" in scope.get("extensions", {})
        self._is_accepted = False
        self._receive = receive
        self._send = send
        self._ahead: asyncio.Task[Message] | None = None
        self._take: Callable[[], None] | None = scope.get(TAKE)

    async def unless_closed(
        self, opening: Coroutine[Any, Any, ClientConnection]
    ) -> ClientConnection:
        """Await `opening` and return its result, unless the client hangs up first.

        In that case `opening` is cancelled and ClientLeftError raised.
        """
        task = asyncio.create_task(opening)
        self._ahead = ahead = asyncio.create_task(self._next())
        try:
            await asyncio.wait((task, ahead), return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and ahead.result()["type"] == "websocket.disconnect":
                raise ClientLeftError
            return await task
        finally:
            task.cancel()

    async def _next(self) -> Message:
        """Wait for the client's next message."""
        return await self._receive()

    async def receive(self) -> Message:
        """Return the next message, and count one that requests a response against the rate limit.

        Beyond the limit the message is dropped, and the client gets an event with the error.
        """
        while True:
            message = await self._next_message()
            if self._take is None or not _requests_response(message):
                return message
            try:
                self._take()
                return message
            except RateLimitedError as error:
                event = {"type": "error", "error": error.envelope()["error"]}
                with suppress(OSError):
                    await self.send(dumps(event).decode())

    async def _next_message(self) -> Message:
        """Return the message that was read ahead, if any, else wait for the next one."""
        if self._ahead is None:
            return await self._receive()
        ahead, self._ahead = self._ahead, None
        return await ahead

    def stop_looking(self) -> None:
        """Cancel the read-ahead of the client's next message."""
        if self._ahead is not None:
            self._ahead.cancel()

    async def accept(self, subprotocol: str | None, fields: Headers) -> None:
        """Answer the handshake; an error because the client has left is ignored."""
        self._is_accepted = True
        with suppress(OSError):  # the client has left, which `receive` reports
            await self._send(
                {"type": "websocket.accept", "subprotocol": subprotocol, "headers": fields}
            )

    async def refuse(self, reply: Reply) -> None:
        """Answer the handshake with an HTTP reply.

        If the server cannot send one, the answer is 403 without a body.
        """

        async def as_refusal(message: Message) -> None:
            await self._send({**message, "type": f"websocket.{message['type']}"})

        with suppress(OSError):
            if self._can_refuse:
                await send_reply(reply, as_refusal)
            else:
                await self._send({"type": "websocket.close"})

    async def send(self, data: str | bytes) -> None:
        """Send a message, and wait while the client does not read.

        Raises OSError when it is gone.
        """
        kind = "text" if isinstance(data, str) else "bytes"
        await self._send({"type": "websocket.send", kind: data})

    async def close(self, end: End) -> None:
        """Close the session with a code and a reason; does nothing if the client is gone."""
        with suppress(OSError):
            await self._send({"type": "websocket.close", "code": end.code, "reason": end.reason})

    async def fail(self) -> None:
        """Report that the proxy has a fault: by a close code, or as the answer to the handshake."""
        error = ProxyError("the proxy failed; its log says where")
        with suppress(RuntimeError):  # the server's error for a message that comes too late
            if self._is_accepted:
                await self.close(End(FAILED, error.message))
            else:
                await self.refuse(error_reply(error))


async def relay_messages(client: SocketClient, upstream: ClientConnection) -> End:
    """Relay both directions until one side ends; end the other side in the same way.

    Returns how the session ended.
    """
    from_client = asyncio.create_task(_to_upstream(client, upstream))
    from_upstream = asyncio.create_task(_to_client(upstream, client))
    pumps = (from_client, from_upstream)
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        if from_client.done():
            end = from_client.result()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    # None is a close frame without a code, which `close` has no type for
                    await upstream.close(end.code, end.reason)  # type: ignore[arg-type]
        else:
            end = from_upstream.result()
            await client.close(end)
        return end
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.wait(pumps)


async def _to_upstream(client: SocketClient, upstream: ClientConnection) -> End:
    """Relay the client's messages until it disconnects; return how the client ended the session.

    Messages that come after upstream has closed are dropped.
    """
    while (message := await client.receive())["type"] != "websocket.disconnect":
        text = message.get("text")
        with suppress(ConnectionClosed):  # `_to_client` reports it, once all is delivered
            await upstream.send(message["bytes"] if text is None else text)
    if "reason" not in message:  # no close frame: the client is gone, or the proxy stops
        return End(GOING_AWAY, "the client is gone", "client_left")
    code, reason = message["code"], message["reason"] or ""
    if code == NO_CODE:
        return End(None)
    return End(code, reason, BodyTooLargeError.code if code == TOO_BIG else None)


def _requests_response(message: Message) -> bool:
    """Return whether a message is JSON of type `response.create`, which requests a response."""
    data: str | bytes = message.get("text") or message.get("bytes") or b""
    return (json_object(data) or {}).get("type") == RESPONSE_CREATE


async def _to_client(upstream: ClientConnection, client: SocketClient) -> End:
    """Relay upstream's messages until it closes; return how upstream ended the session.

    Messages that come after the client is gone are dropped.
    """
    is_there = True
    while True:
        try:
            data = await upstream.recv()
        except ConnectionClosed as closed:
            return _end_of(closed)
        if is_there:
            try:
                await client.send(data)
            except OSError:
                is_there = False  # go on: its earlier messages still go upstream


def _end_of(closed: ConnectionClosed) -> End:
    """Return how upstream's end is reported to the client."""
    if (frame := closed.rcvd) is not None:
        return End(None) if frame.code == NO_CODE else End(frame.code, frame.reason)
    if closed.sent is not None and closed.sent.code == TOO_BIG:
        reason = "upstream's message is larger than limits.max_body"
        return End(TOO_BIG, reason, BodyTooLargeError.code)
    return End(FAILED, "upstream broke off the connection", UpstreamBrokenError.code)
