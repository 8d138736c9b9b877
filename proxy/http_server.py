"""The server's end of HTTP: uvicorn's, which is taught to send a whole reply in one go.

uvicorn checks every header field with two patterns and writes head and body apart; most of what it
costs is that. A reply that is whole is offered to it in one message of an ASGI extension of ours,
and its head is checked as one text. Everything else is uvicorn's.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from proxy.asgi import WHOLE_REPLY

WRITTEN_TOGETHER = 2**16  # bytes of a body that is copied for one write
WITHOUT_BODY = (204, 304)
_EXTENSIONS: dict[str, dict[object, object]] = {WHOLE_REPLY: {}}


class HttpProtocol(HttpToolsProtocol):
    """Give it to `uvicorn.Config` as `http`."""

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.__class__ = _Cycle  # made by uvicorn in the middle of a method of its own
        cycle.scope["extensions"] = _EXTENSIONS
        super()._start_asgi_task(cycle, app)


class _Cycle(RequestResponseCycle):
    """One request and its response."""

    async def send(self, message: Any) -> None:
        kind = message["type"]
        if kind == WHOLE_REPLY:
            await self._send_whole(message)
        elif kind == "http.response.start" and not self.response_started:
            await self._send_head(message["status"], message["headers"])
        else:
            await super().send(message)

    async def _send_whole(self, message: Any) -> None:
        if not await self._can_write():
            return
        head, body = self._head(message["status"], message["headers"]), message["body"]
        if self.scope["method"] == "HEAD":
            self.transport.write(head)
        elif len(body) == 1 and len(body[0]) < WRITTEN_TOGETHER:
            self.transport.write(head + body[0])
        else:
            self.transport.writelines([head, *body])
        self.response_started = self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    async def _send_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The head of a body that follows in parts."""
        if not await self._can_write():
            return
        length = next((value for name, value in headers if name == b"content-length"), None)
        framing = b""
        if length is not None:
            self.chunked_encoding, self.expected_content_length = False, int(length)
        elif self.scope["method"] != "HEAD" and status not in WITHOUT_BODY:
            self.chunked_encoding, framing = True, b"transfer-encoding: chunked\r\n"
        self.transport.write(self._head(status, headers, framing))
        self.response_started = True

    async def _can_write(self) -> bool:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        return not self.disconnected

    def _head(self, status: int, headers: list[tuple[bytes, bytes]], framing: bytes = b"") -> bytes:
        """Raises RuntimeError for a field that would be more than one."""
        self.waiting_for_100_continue = False
        fields = b"".join([b"%b: %b\r\n" % field for field in headers])
        if fields.count(b"\n") != len(headers) or fields.count(b"\r") != len(headers):
            raise RuntimeError("a header field with a line end")
        closing = b"" if self.keep_alive else b"connection: close\r\n"
        line = STATUS_LINE.get(status) or b"HTTP/1.1 %d \r\n" % status
        return b"%b%b%b%b\r\n" % (line, fields, closing, framing)
