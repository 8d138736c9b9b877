"""The server's end of HTTP/1.1, between a transport of asyncio and the application.

llhttp parses HTTP/1.1, through httptools. uvicorn makes one of these protocols for each connection,
and otherwise is only the server around them: sockets, signals, the end. The application's view of a
request and its reply is in `http_cycle.py`.

A head that another parser could read differently is refused with 400 (`request_heads.py`). An
`Upgrade` that is not accepted is ignored, as RFC 9110 asks. Trailers are dropped. Heads are limited
in size and time, bodies in time, and connections in number (`connections.py`).
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import httptools
import structlog

from proxy.errors import BusyError, HeadTooLargeError, OverloadedError, ProxyError, TooSlowError
from proxy.http.listener.connections import connections_of
from proxy.http.listener.http_cycle import HIGH_WATER, Cycle, Flow, KnownHead, known_head
from proxy.http.listener.open_files import FileWatch
from proxy.http.listener.request_heads import (
    asks_for_websocket,
    check_head,
    head_bytes,
    read_target,
    refusal,
    without_upgrade,
)
from proxy.http.wire.headers import HEADS_LEARNT, Headers
from proxy.http.wire.http import Scope
from proxy.http.wire.outlet import Outlet

if TYPE_CHECKING:
    import uvicorn
    from uvicorn.server import ServerState

HEAD_BYTES = 64 * 1024  # of target, names and values; also of bytes in a row that are no body's
LINE_BYTES = 1_024  # for the rest of a head
HEAD_FIELDS = 200
HEAD_S = 10.0  # from the connection's beginning, or the head's own
BODY_S = 20.0  # plus a second for each BODY_BYTES_A_SECOND
BODY_BYTES_A_SECOND = 4_096
COUNTED_BODY = 2**14  # bytes; smaller bodies are not counted among the unfinished ones
LINGER_S = 5.0  # how long a client may go on sending after its last reply
STALL_S = 60.0  # how long a client may read nothing of its reply
MOST_PIPELINED = 100  # requests that wait for the reply before theirs
_ASGI: Any = {"version": "3.0", "spec_version": "2.3"}

log = structlog.get_logger(__name__)
_files = FileWatch()


class HttpProtocol(asyncio.Protocol):
    """The `http` class of `uvicorn.Config`; `limit_concurrency` limits the connections."""

    __slots__ = (
        *("_all", "_app_state", "_body_bytes", "_config", "_has_key", "_heads_to_learn"),
        *("_idle_bytes", "_ignores_upgrade", "_is_known", "_is_read", "_known"),
        *("_last_words", "_missing", "_most_of_head", "_segment", "_unread"),
        *("client", "cycle", "flow", "has_ended", "headers", "is_in_head", "is_trusted"),
        *("is_upgrading", "loop", "outlet", "parser", "pipeline", "running", "scheme"),
        *("scope", "server", "server_state", "tasks", "transport", "until", "url"),
    )

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Initialize the protocol; uvicorn calls this with these argument names."""
        self.loop = _loop or asyncio.get_running_loop()
        self.server_state = server_state
        self.tasks = server_state.tasks  # the server waits for these at its end
        self._config, self._app_state = config, app_state
        self.pipeline: deque[Cycle] = deque()  # waiting requests, the newest first
        self.url = b""
        self.headers: Headers
        self.scope: Scope
        self.cycle: Cycle | None = None  # the newest request
        self.running: Cycle | None = None  # the request that is being answered
        self.until = math.inf  # the client's deadline, on the loop's clock
        self.is_in_head = False
        self.is_upgrading = False  # whether the following bytes are for another protocol
        self.has_ended = False  # whether nothing more is read
        self.is_trusted = False  # whether its last request went well, or had a good key
        self._is_known = False
        self._has_key = False
        self._is_read = False  # False until its first turn
        self._ignores_upgrade = False
        self._body_bytes = 0  # of the unfinished body
        self._segment = 0  # bytes that arrived at once
        self._most_of_head = 0  # the most bytes that the current head can have
        self._idle_bytes = 0  # in a row, without the end of a head or a part of a body
        self._known: KnownHead | None = None  # the head of an earlier request
        self._missing = 0  # bytes of the body behind a known head, which bypass the parser
        self._heads_to_learn = HEADS_LEARNT
        self._last_words = b""  # the last reply, sent after those that come before it
        self._unread = (0, math.inf)  # bytes that the client has not read, and since when
        self._new_parser()

    def _new_parser(self) -> None:
        """Make a parser that accepts data after a request that closes the connection."""
        self.parser: Any = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def connection_made(self, transport: Any) -> None:
        self.server_state.connections.add(self)  # type: ignore[arg-type]  # uvicorn's own classes
        _files.note(transport)
        self.transport = transport
        self.flow = Flow(transport)
        self.server, self.client = _address(transport, "sockname"), _address(transport, "peername")
        self.scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        self.until = self.loop.time() + HEAD_S
        self._all = connections_of(self.server_state, self._config.limit_concurrency)
        self.outlet = Outlet(transport, self._all.bursts)
        if not self._all.add(self, self.loop):
            self._end(BusyError("all connections are taken"))
        self._all.begin(self._read, self.loop)
        if not self._is_read:
            self.flow.pause_reading()

    def _read(self) -> None:
        """Begin to read the connection."""
        self._is_read = True
        self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._known = None
        self._all.remove(self)
        self.server_state.connections.discard(self)
        self.until = math.inf
        for cycle in {self.running, self.cycle, *self.pipeline}:
            if cycle is not None:
                cycle.leave()
        self.flow.resume_writing()
        self.pipeline.clear()
        self.running = self.cycle = self.parser = None  # breaks reference cycles

    def data_received(self, data: bytes) -> None:
        if self.has_ended:
            return
        if self._missing and not (data := self._without_rest(data)):
            return
        cycle = self.cycle
        is_next = (  # the data begin a request, and no earlier one is unanswered
            self.running is None
            and not (self.is_in_head or self.is_upgrading)
            and (cycle is None or not cycle.more_body)
        )
        if is_next and self._known is not None and self._begin_again(self._known, data):
            return
        self._segment = len(data)
        self._idle_bytes += self._segment
        self._most_of_head += self._segment
        try:
            self._feed(data)
            if self._idle_bytes > HEAD_BYTES + LINE_BYTES:
                raise HeadTooLargeError(_TOO_LARGE)
        except ProxyError as error:
            self._refuse(error)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, ProxyError) else None)
        if is_next and self._heads_to_learn:
            self._learn(data)

    def _begin_again(self, known: KnownHead, data: bytes) -> bool:
        """Answer the request in `data` if its head is `known`; return False for other data."""
        head = known.head
        length = head.length_in(data)
        if length is None:
            return False
        self._idle_bytes, self._heads_to_learn = 0, HEADS_LEARNT
        body = data[head.size + len(length) :]
        size, stays = int(length), not self._all.is_draining
        missing = size - len(body)
        self.cycle = cycle = Cycle(self, known, stays, None if missing else body)
        if missing:
            cycle.length = size
        self._run(cycle)
        if missing:
            self._missing = missing
            self.on_body(body)
        return True

    def _without_rest(self, data: bytes) -> bytes:
        """Take the rest of a body behind a known head, and return the data that follow it."""
        part = data[: self._missing]
        self._missing -= len(part)
        self.on_body(part)
        if not self._missing:
            self.on_message_complete()
        return data[len(part) :]

    def _learn(self, data: bytes) -> None:
        """Keep the head of the one request in `data`, to recognize it when it is sent again."""
        self._heads_to_learn -= 1
        cycle = self.running
        if cycle is None or cycle is not self.cycle or self.is_in_head or not cycle.keep_alive:
            return
        if not (cycle.more_body and cycle.size):
            self._known = known_head(data, cycle.scope, has_body=not cycle.more_body)

    def _feed(self, data: bytes) -> None:
        """Parse data; hand the connection over at a WebSocket, and ignore any other `Upgrade`."""
        rest = memoryview(data)
        while True:
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if self.is_upgrading:
                    self._hand_over()
                    return
                rest = rest[upgrade.args[0] :]
                self._read_again()

    def _read_again(self) -> None:
        """Parse the message again without its `Upgrade`, for llhttp ends it behind the head."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        head = without_upgrade(method, self.url, version, self.headers)
        self._new_parser()
        self._ignores_upgrade = False
        self.parser.feed_data(head)

    def _hand_over(self) -> None:
        """Flush, forget the connection and pass it, head first, to uvicorn's WebSocket protocol."""
        self.outlet.flush()
        self._all.remove(self)
        self.server_state.connections.discard(self)
        protocol_class: Any = self._config.ws_protocol_class
        protocol = protocol_class(
            config=self._config, server_state=self.server_state, app_state=self._app_state
        )
        protocol.connection_made(self.transport)
        protocol.data_received(head_bytes(b"GET", self.url, "1.1", self.headers))
        self.transport.set_protocol(protocol)

    # Callbacks of the parser. Errors raised here are the context of feed_data's own error.

    def on_message_begin(self) -> None:
        """Begin a head and its time limit; raise BusyError where 100 requests wait already."""
        if len(self.pipeline) >= MOST_PIPELINED:
            raise BusyError(f"more than {MOST_PIPELINED} requests wait on this connection")
        self.url = b""
        self.headers = []
        self.is_in_head = True
        self._most_of_head = self._segment
        if self.running is None:
            self.until = self.loop.time() + HEAD_S

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Begin to answer, or queue the request behind the one that is being answered."""
        self.is_in_head, self._idle_bytes = False, 0
        parser, headers = self.parser, self.headers
        if len(headers) > HEAD_FIELDS or self._most_of_head > HEAD_BYTES:
            self._check_size(headers)
        method, version = parser.get_method(), parser.get_http_version()
        check_head(method, self.url, version, headers)
        path, raw_path, query = read_target(self.url)
        scope: Scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": _METHODS.get(method) or method.decode("ascii"),
            "root_path": "",
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": headers,
        }
        self.scope = scope
        if parser.should_upgrade():
            self.is_upgrading = self.running is None and self._takes_upgrade()
            self._ignores_upgrade = not self.is_upgrading
            return
        self.headers = []  # collects trailers, which are dropped
        stays = version != "1.0" and parser.should_keep_alive() and not self._all.is_draining
        self.cycle = Cycle(self, scope, stays)
        if self.running is None:
            self._run(self.cycle)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft(self.cycle)

    def _check_size(self, headers: Headers) -> None:
        """Check the head's exact size, without a body; raise HeadTooLargeError."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in headers)
        if len(headers) > HEAD_FIELDS or size > HEAD_BYTES:
            raise HeadTooLargeError(_TOO_LARGE)

    def _takes_upgrade(self) -> bool:
        """Return whether the request is a WebSocket handshake, a GET, to accept."""
        takes_them = self._config.ws_protocol_class is not None
        return takes_them and self.scope["method"] == "GET" and asks_for_websocket(self.headers)

    def on_body(self, body: bytes) -> None:
        """Append bytes to the newest request's body, and extend its deadline by their share."""
        self._idle_bytes = 0
        cycle = self.cycle
        if self.is_upgrading or cycle is None or cycle.response_complete:
            return
        self.until += len(body) / BODY_BYTES_A_SECOND
        self._note_body(len(body))
        cycle.add(body)
        if cycle.size > HIGH_WATER:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        """End the newest request's body; no deadline while it is answered, an idle one after."""
        cycle = self.cycle
        if self.is_upgrading or self._ignores_upgrade or cycle is None:
            return
        self._idle_bytes = 0
        self._body_bytes = 0
        self._all.end_body(self)
        cycle.end_body()
        if cycle is self.running:
            self.until = math.inf
        elif self.running is None:  # the reply was sent before the body was whole
            self.until = self.loop.time() + self._config.timeout_keep_alive

    def _note_body(self, size: int) -> None:
        """Count bytes of a body, unless it is small or its client has a key."""
        self._body_bytes += size
        if self._body_bytes > COUNTED_BODY and not self._has_key:
            is_first = self._body_bytes - size <= COUNTED_BODY
            self._all.note_body(self, self._body_bytes if is_first else size)

    def refuse_body(self) -> None:
        """Answer the unfinished request with 503 in the next turn of the event loop."""
        self.loop.call_soon(self._refuse_body)  # this connection's parser may be at work now

    def _refuse_body(self) -> None:
        if self.cycle is not None and self.cycle.more_body and not self.has_ended:
            self._refuse(
                OverloadedError("too many bodies are being received, and this one is the slowest")
            )

    # Requests are answered one after the other.

    def _run(self, cycle: Cycle) -> None:
        self.running = cycle
        self.until = self.loop.time() + BODY_S if cycle.more_body else math.inf
        if self.is_trusted:
            self._begin(cycle)
        else:
            self._all.begin(partial(self._begin, cycle), self.loop)

    def _begin(self, cycle: Cycle) -> None:
        """Start the task that answers a request, unless its client has left meanwhile."""
        if cycle is not self.running:
            return  # the client left while the request waited for its turn
        cycle.task = task = self.loop.create_task(cycle.run(self._config.loaded_app))
        self.tasks.add(task)

    def on_response_complete(self) -> None:
        """Begin the next request of the pipeline, or set the deadline of an idle connection."""
        self.server_state.total_requests += 1
        if not self._is_known and self.running is not None:
            self.is_trusted = self.running.status < 400
        self.running = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        now = self.loop.time()
        if self.pipeline:
            self._run(self.pipeline.pop())
        elif self._last_words:
            self._send_last_reply(self._last_words)
        elif self.cycle is not None and self.cycle.more_body:
            self.until = now + LINGER_S
        else:
            self.until = now + (HEAD_S if self.is_in_head else self._config.timeout_keep_alive)

    # The ends of a connection.

    def note_known(self, has_key: bool) -> None:
        """Mark the connection as a known client's; bodies of clients with a key are not counted."""
        self._is_known = self.is_trusted = True
        self._all.note_known(self)
        self._has_key = has_key
        if has_key:
            self._all.end_body(self)  # a part of it was counted before the key was checked

    def is_idle(self) -> bool:
        """Return whether no request is being answered and no bytes wait to be sent."""
        return self.running is None and not self.outlet.is_waiting()

    def close_now(self) -> None:
        self.transport.abort()

    def look(self, now: float) -> None:
        """End a connection whose time `until` is up, or whose client reads nothing for 60 s."""
        if self.until < now:
            self._expire(now)
        elif self.flow.write_paused:
            left, since = self._unread
            size = self.transport.get_write_buffer_size()
            if not 0 < size == left:
                self._unread = (size, now)
            elif now - since > STALL_S:
                self.transport.abort()

    def _expire(self, now: float) -> None:
        """Refuse a late request (408) or close an idle connection; wait on if we paused reading."""
        cycle = self.running
        if self.has_ended:
            self.transport.abort()
        elif cycle is not None and self.flow.read_paused:
            self.until = now + BODY_S  # reading is paused here, which is not the client's fault
        elif cycle is not None or self.is_in_head:
            self._refuse(TooSlowError("the request did not arrive in time"))
        else:
            self.outlet.close()

    def _refuse(self, error: ProxyError | None = None) -> None:
        """Send the connection's last reply; a reply that has begun is broken off instead."""
        newest, running = self.cycle, self.running
        if newest is not None and newest.more_body:
            if newest.response_complete:
                self.has_ended = True  # the client has its reply
                self.outlet.close()
                return
            if running is not newest:
                self.pipeline.popleft()  # its body will never be whole
            elif running.response_started:
                self.transport.abort()
                return
            else:
                self.running = None
                running.leave()
        self._end(error)

    def _end(self, error: ProxyError | None) -> None:
        """Stop reading, and send the error's reply now or after the reply in progress."""
        words = refusal(error)
        log.debug("request_refused", client=self.client, reply=words[:12].decode())
        self.has_ended, self.is_in_head = True, False
        if self.running is None:
            self._send_last_reply(words)
        else:
            self._last_words = words

    def _send_last_reply(self, words: bytes) -> None:
        """Send the last reply; close once the client has read it or after 5 s, lest it be reset."""
        self.outlet.flush()
        self.transport.write(words)
        self.flow.resume_reading()
        self.until = self.loop.time() + LINGER_S
        if not self.transport.can_write_eof():
            self.outlet.close()
            return
        try:
            self.transport.write_eof()
        except OSError:  # the client has reset the connection
            self.outlet.close()

    def pause_writing(self) -> None:
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        self.flow.resume_writing()

    def shutdown(self) -> None:
        """Close the connection after the reply in progress; uvicorn calls it at its end."""
        if self.running is None:
            self.outlet.close()
        else:
            self.running.keep_alive = False


def _address(transport: asyncio.Transport, which: str) -> tuple[str, int] | None:
    """Return host and port of one end, or None for a Unix socket."""
    address = transport.get_extra_info(which)
    return (str(address[0]), int(address[1])) if isinstance(address, tuple | list) else None


_METHODS = {name.encode(): name for name in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")}
_TOO_LARGE = f"the header has more than {HEAD_BYTES} bytes or {HEAD_FIELDS} fields"
