"""The server's end of a WebSocket, which completes uvicorn's protocol.

Both ends use `websockets` (`proxy/optional/websockets/websockets.py` has the other one). It needs
no further package and checks a message's size before it is read. Messages are not compressed in
either direction, because the proxy would have to unpack and pack each of them.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets import http11

from proxy.errors import BadRequestError

HEADER_LIMIT = 64 * 1024  # bytes in a line of a handshake, as for relayed requests
QUIET_S, LINGER_S = 0.2, 2.0  # a refused client's silence, or its longest talk, before the close

http11.MAX_LINE_LENGTH = HEADER_LIMIT


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's protocol.

    It also answers two mistakes of clients that uvicorn leaves unanswered.
    """

    _hang_up_by: float | None = None  # on the loop's clock; None until a message is refused

    def data_received(self, data: bytes) -> None:
        """Parse data, or drop them after a refused message; answer an unreadable handshake."""
        if self._hang_up_by is not None:
            self._wait_for_silence(self._hang_up_by)
            return
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self._refuse_handshake()

    def _refuse_handshake(self) -> None:
        """Answer a handshake that cannot be read with 400, or its client would wait for ever."""
        if self.transport.is_closing():
            return
        kind = type(self.conn.handshake_exc).__name__
        body = BadRequestError(
            f"the WebSocket handshake cannot be read ({kind})", code="invalid_handshake"
        ).body()
        head = (
            "HTTP/1.1 400 Bad Request\r\nconnection: close\r\nx-pinocchio-error: true\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    async def send(self, message: Any) -> None:
        """Send an ASGI message; a refusal by an HTTP reply completes the handshake."""
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # otherwise uvicorn logs a missing answer

    def handle_parser_exception(self) -> None:
        """Send the protocol's close, but close the connection only when the client stops sending.

        Otherwise most clients would get a reset and never read why. What they send is dropped.
        """
        closed = self.conn.close_sent
        assert closed is not None
        if not self.close_sent:
            self.queue.put_nowait(
                {"type": "websocket.disconnect", "code": closed.code, "reason": closed.reason}
            )
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self._hang_up_by = self.loop.time() + LINGER_S
        self._wait_for_silence(self._hang_up_by)

    def _wait_for_silence(self, at_most_until: float) -> None:
        """Close the connection in 0.2 s, at the latest at `at_most_until` (loop's time)."""
        if self.close_timer is not None:
            self.close_timer.cancel()
        at = min(self.loop.time() + QUIET_S, at_most_until)
        self.close_timer = self.loop.call_at(at, self.transport.close)
