"""The server's end of HTTP: uvicorn's, without what it costs and nobody here needs.

Everything that is decided about HTTP/1.1 is decided by uvicorn's own protocol; this one gives the
same answers for less. A target is parsed once and remembered. What a request waits for is a flag
and a future instead of an event. Idle connections are found by one timer for all of them. What is
whole, a body or a reply, goes from hand to hand without a message of ASGI (`proxy.asgi.Client`);
such a reply leaves in one write, its head checked as one text.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import unquote
from weakref import WeakKeyDictionary

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from proxy.asgi import CLIENT
from proxy.headers import written

WRITTEN_TOGETHER = 2**16  # bytes of a body that is copied for one write
WITHOUT_BODY = (204, 304)
SWEEP_S = 1.0  # how much later than promised an idle connection may be closed
_ASGI: Any = {"version": "3.0", "spec_version": "2.3"}


class HttpProtocol(HttpToolsProtocol):
    """Give it to `uvicorn.Config` as `http`."""

    idle_until = math.inf  # on the loop's clock; while a request is answered there is no end
    is_upgrading = False  # then what follows is for another protocol

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.outlet = _Outlet(transport, self.loop)
        sweep = _sweeps.get(self.server_state)
        if sweep is None:
            sweep = _sweeps[self.server_state] = _Sweep(self.connections)
        sweep.go_on(self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        cycle: Any = self.cycle
        if cycle is not None and cycle.disconnected and cycle.on_leaving is not None:
            cycle.on_leaving()

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Begins to answer, or queues the request behind the one that is being answered."""
        parser = self.parser
        method, version = parser.get_method(), parser.get_http_version()
        path, raw_path, query = _target(self.url)
        scope: Any = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme or "http",
            "method": _METHODS.get(method) or method.decode("ascii"),
            "root_path": "",
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self.headers,
        }
        self.scope = scope
        self.is_upgrading = parser.should_upgrade() and self._should_upgrade()
        if self.is_upgrading:
            return
        before = self.cycle
        self.cycle = cycle = _Cycle(self, version != "1.0" and parser.should_keep_alive())
        scope[CLIENT] = cycle
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def on_body(self, body: bytes) -> None:
        cycle: Any = self.cycle
        if self.is_upgrading or cycle.response_complete:
            return
        cycle.body = body = cycle.body + body if cycle.body else body
        if len(body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        cycle = self.cycle
        if not self.is_upgrading and not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()

    def on_response_complete(self) -> None:
        """The next request of the pipeline, or else the connection is idle from now on."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self.idle_until = self.loop.time() + self.timeout_keep_alive

    def _unset_keepalive_if_required(self) -> None:
        self.idle_until = math.inf


class _Sweep:
    """Closes the connections of one server that were idle for too long."""

    def __init__(self, connections: set[Any]) -> None:
        self._connections = connections
        self._timer: asyncio.TimerHandle | None = None

    def go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None and self._connections:
            self._timer = loop.call_later(SWEEP_S, self._run, loop)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for connection in [*self._connections]:
            if getattr(connection, "idle_until", math.inf) < now:  # WebSockets are among them
                connection.timeout_keep_alive_handler()
        self.go_on(loop)


_sweeps: WeakKeyDictionary[ServerState, _Sweep] = WeakKeyDictionary()
_METHODS = {name.encode(): name for name in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")}


@lru_cache(maxsize=1_024)
def _target(url: bytes) -> tuple[str, bytes, bytes]:
    """Path, raw path and query of a request's target; raises what httptools raises for none."""
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    return unquote(path) if "%" in path else path, parsed.path, parsed.query or b""


def _expects(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)


class _News:
    """Whether there is something to `receive`: what asyncio.Event is, for one who waits."""

    __slots__ = ("_waiting", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiting: asyncio.Future[None] | None = None

    def set(self) -> None:
        self.is_set = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def wait(self) -> None:
        while not self.is_set:
            if self._waiting is None:
                self._waiting = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiting)  # of two who wait, one may be cancelled


class _Outlet:
    """A transport that sends what is written in one turn of the event loop in one go."""

    __slots__ = ("_loop", "_parts", "transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(data)

    def flush(self) -> None:
        parts = self._parts
        if parts:
            self._parts = []
            self.transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def close(self) -> None:
        self.flush()
        self.transport.close()

    def is_closing(self) -> bool:
        return self.transport.is_closing()


class _Cycle(RequestResponseCycle):
    """One request and its response."""

    def __init__(self, protocol: HttpProtocol, keep_alive: bool) -> None:
        self.scope = protocol.scope
        self.transport: Any = protocol.outlet
        self.flow = protocol.flow
        self.logger = protocol.logger
        self.access_log = False
        self.default_headers = protocol.server_state.default_headers
        self.message_event: Any = _News()
        self.on_response = protocol.on_response_complete
        self.on_leaving: Callable[[], object] | None = None
        self.disconnected = False
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = True  # perhaps: nobody has looked
        self.body: Any = b""
        self.more_body = True
        self.response_started = False
        self.response_complete = False
        self.chunked_encoding: bool | None = None
        self.expected_content_length = 0

    def whole_body(self, limit: int) -> bytes | None:
        if self.more_body or self.disconnected or len(self.body) > limit:
            return None
        self.message_event.is_set = False
        body: bytes = self.body
        self.body = b""
        return body

    def tell_leaving(self, call: Callable[[], object] | None) -> None:
        """From now on the client's leaving is told in this way, or in none."""
        self.on_leaving = call
        if call is not None:
            self.flow.resume_reading()

    async def receive(self) -> Any:
        if not self.message_event.is_set and not self.disconnected and not self.response_complete:
            self._continue()
            self.flow.resume_reading()
            await self.message_event.wait()
        self.message_event.is_set = False
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = self.body, b""
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def _continue(self) -> None:
        """Asks for the body where the client waits for that; what is there needs no asking."""
        is_asked_for, self.waiting_for_100_continue = self.waiting_for_100_continue, False
        if is_asked_for and not self.transport.is_closing() and _expects(self.scope["headers"]):
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def send(self, message: Any) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        kind = message["type"]
        if kind == "http.response.start" and not self.response_started:
            self._write_head(message["status"], message["headers"])
        elif self.chunked_encoding and kind == "http.response.body" and not self.response_complete:
            self._write_chunk(message["body"], message.get("more_body", False))
        else:
            await super().send(message)

    def write_whole(
        self, status: int, headers: list[tuple[bytes, bytes]], body: tuple[bytes | memoryview, ...]
    ) -> bool:
        if self.flow.write_paused or self.disconnected:
            return False
        head = self._head(status, headers)
        transport = self.transport.transport
        if self.scope["method"] == "HEAD":
            transport.write(head)
        elif len(body) == 1 and len(body[0]) < WRITTEN_TOGETHER:
            transport.write(head + body[0])
        else:
            transport.writelines([head, *body])
        self.response_started = True
        self._complete()
        return True

    def _complete(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _write_chunk(self, body: bytes, is_more: bool) -> None:
        if body:
            self.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        if not is_more:
            self.transport.write(b"0\r\n\r\n")
            self.transport.flush()
            self._complete()

    def _write_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The head of a body that follows in parts."""
        length = next((value for name, value in headers if name == b"content-length"), None)
        framing = b""
        if length is not None:
            self.chunked_encoding, self.expected_content_length = False, int(length)
        elif self.scope["method"] != "HEAD" and status not in WITHOUT_BODY:
            self.chunked_encoding, framing = True, b"transfer-encoding: chunked\r\n"
        self.transport.write(self._head(status, headers, framing))
        self.response_started = True

    def _head(self, status: int, headers: list[tuple[bytes, bytes]], framing: bytes = b"") -> bytes:
        """Raises ValueError for a field that would be more than one."""
        self.waiting_for_100_continue = False
        fields = written(headers)
        closing = b"" if self.keep_alive else b"connection: close\r\n"
        line = STATUS_LINE.get(status) or b"HTTP/1.1 %d \r\n" % status
        return b"".join((line, fields, framing, closing, b"\r\n"))
