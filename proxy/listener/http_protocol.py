"""The server's end of HTTP/1.1, between a transport of asyncio and the application.

llhttp decides what HTTP/1.1 is, through httptools. uvicorn makes one of these for each connection,
and is otherwise only the server around them: sockets, signals, the end. The answers are those of
uvicorn's own protocol for less: a target is parsed once and remembered, what a request waits for
is a flag and a future instead of an event, idle connections are found by one timer for all of
them. What a request and its reply are to the application stands in `http_cycle.py`.

What another parser on the way could read differently is refused with 400, and the connection is
closed: see `request_heads.py`. An `Upgrade` that is not taken is ignored, as RFC 9110 has it, and
the body is read; fields behind a body (trailers) are nobody's. A head has a size and a time, a
body has a time, and connections have a bound (`connections.py`).
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
from proxy.listener.connections import connections_of
from proxy.listener.flow import HIGH_WATER, Flow
from proxy.listener.http_cycle import Cycle
from proxy.listener.known_head import KnownHead, known_head
from proxy.listener.open_files import FileWatch
from proxy.listener.request_heads import (
    asks_for_websocket,
    check_head,
    head_bytes,
    read_target,
    refusal,
    without_upgrade,
)
from proxy.wire.headers import HEADS_LEARNT, Headers
from proxy.wire.http import Scope
from proxy.wire.outlet import Outlet

if TYPE_CHECKING:
    import uvicorn
    from uvicorn.server import ServerState

HEAD_BYTES = 64 * 1024  # of target, names and values; or in a row without any of a body
LINE_BYTES = 1_024  # what else a head has
HEAD_FIELDS = 200
HEAD_S = 10.0  # from the connection's beginning, or the head's own
BODY_S = 20.0  # and a second more for each BODY_BYTES_A_SECOND
BODY_BYTES_A_SECOND = 4_096
COUNTED_BODY = 2**14  # bytes; what is smaller is not counted among bodies on their way
LINGER_S = 5.0  # how long a client may go on to talk whose last reply is out
STALL_S = 60.0  # how long a client may leave its reply untouched
MOST_PIPELINED = 100  # requests that wait for the reply before theirs
_ASGI: Any = {"version": "3.0", "spec_version": "2.3"}

log = structlog.get_logger(__name__)
_files = FileWatch()


class HttpProtocol(asyncio.Protocol):
    """Give it to `uvicorn.Config` as `http`; `limit_concurrency` bounds the connections."""

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
        """Is called by uvicorn, with these names."""
        self.loop = _loop or asyncio.get_running_loop()
        self.server_state = server_state
        self.tasks = server_state.tasks  # which the server waits for at its end
        self._config, self._app_state = config, app_state
        self.pipeline: deque[Cycle] = deque()  # the newest one first
        self.url = b""
        self.headers: Headers
        self.scope: Scope
        self.cycle: Cycle | None = None  # the newest
        self.running: Cycle | None = None  # what is being answered
        self.until = math.inf  # on the loop's clock: after it the client has taken too long
        self.is_in_head = False
        self.is_upgrading = False  # then what follows is for another protocol
        self.has_ended = False  # nothing more is read
        self.is_trusted = False  # its last request went well, or had a good key
        self._is_known = False
        self._has_key = False
        self._is_read = False  # it may have to wait for its turn
        self._ignores_upgrade = False
        self._body_bytes = 0  # of the body that is on its way
        self._segment = 0  # bytes that came at once
        self._most_of_head = 0  # bytes that the head can have, at most
        self._idle_bytes = 0  # in a row that were neither the end of a head nor any of a body
        self._known: KnownHead | None = None  # the head of a request before
        self._missing = 0  # bytes of a body behind it, which the parser is not given
        self._heads_to_learn = HEADS_LEARNT
        self._last_words = b""  # once those before have their replies
        self._unread = (0, math.inf)  # bytes that the client left, and since when
        self._new_parser()

    def _new_parser(self) -> None:
        """A client may send more behind a request that closes the connection: it still gets the
        reply to that one."""
        self.parser: Any = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def connection_made(self, transport: Any) -> None:
        self.server_state.connections.add(self)  # type: ignore[arg-type]  # names its own classes
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
        """Its turn has come to be read, now or later."""
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
        self.running = self.cycle = self.parser = None  # each keeps this, and this each of them

    def data_received(self, data: bytes) -> None:
        if self.has_ended:
            return
        if self._missing and not (data := self._without_rest(data)):
            return
        cycle = self.cycle
        is_next = (  # what comes begins a request, and none before it is still answered
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
        """Begins to answer a request whose head is known; False for anything else."""
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
        """What follows in the data behind the body that began behind a known head."""
        part = data[: self._missing]
        self._missing -= len(part)
        self.on_body(part)
        if not self._missing:
            self.on_message_complete()
        return data[len(part) :]

    def _learn(self, data: bytes) -> None:
        """Keeps the head of the one request in the data, where its body is whole, or none of it is
        there, and the next may come on this connection."""
        self._heads_to_learn -= 1
        cycle = self.running
        if cycle is None or cycle is not self.cycle or self.is_in_head or not cycle.keep_alive:
            return
        if not (cycle.more_body and cycle.size):
            self._known = known_head(data, cycle.scope, has_body=not cycle.more_body)

    def _feed(self, data: bytes) -> None:
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
        """Begins the message anew: llhttp has ended one with an `Upgrade` behind its head."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        head = without_upgrade(method, self.url, version, self.headers)
        self._new_parser()
        self._ignores_upgrade = False
        self.parser.feed_data(head)

    def _hand_over(self) -> None:
        """Lets uvicorn's protocol of WebSockets have the connection, from its head on."""
        self.outlet.flush()
        self._all.remove(self)
        self.server_state.connections.discard(self)
        make: Any = self._config.ws_protocol_class
        protocol = make(
            config=self._config, server_state=self.server_state, app_state=self._app_state
        )
        protocol.connection_made(self.transport)
        protocol.data_received(head_bytes(b"GET", self.url, "1.1", self.headers))
        self.transport.set_protocol(protocol)

    # the parser's side; what is raised here comes out of feed_data as the context of its own error

    def on_message_begin(self) -> None:
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
        """Begins to answer, or queues the request behind the one that is being answered."""
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
        self.headers = []  # of trailers, which are nobody's
        stays = version != "1.0" and parser.should_keep_alive() and not self._all.is_draining
        self.cycle = Cycle(self, scope, stays)
        if self.running is None:
            self._run(self.cycle)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft(self.cycle)

    def _check_size(self, headers: Headers) -> None:
        """A part of what came may have been another request's body, and only this is the head."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in headers)
        if len(headers) > HEAD_FIELDS or size > HEAD_BYTES:
            raise HeadTooLargeError(_TOO_LARGE)

    def _takes_upgrade(self) -> bool:
        """A handshake is a GET; one with a body is refused by whoever reads it."""
        takes_them = self._config.ws_protocol_class is not None
        return takes_them and self.scope["method"] == "GET" and asks_for_websocket(self.headers)

    def on_body(self, body: bytes) -> None:
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
        cycle = self.cycle
        if self.is_upgrading or self._ignores_upgrade or cycle is None:
            return
        self._idle_bytes = 0
        self._body_bytes = 0
        self._all.end_body(self)
        cycle.end_body()
        if cycle is self.running:
            self.until = math.inf
        elif self.running is None:  # the reply was earlier
            self.until = self.loop.time() + self._config.timeout_keep_alive

    def _note_body(self, size: int) -> None:
        """Small ones come in few pieces, and are not counted."""
        self._body_bytes += size
        if self._body_bytes > COUNTED_BODY and not self._has_key:
            is_first = self._body_bytes - size <= COUNTED_BODY
            self._all.note_body(self, self._body_bytes if is_first else size)

    def refuse_body(self) -> None:
        self.loop.call_soon(self._refuse_body)  # it may be this one's parser that is at work

    def _refuse_body(self) -> None:
        if self.cycle is not None and self.cycle.more_body and not self.has_ended:
            self._refuse(
                OverloadedError("too many bodies are being received, and this one is the slowest")
            )

    # one after the other

    def _run(self, cycle: Cycle) -> None:
        self.running = cycle
        self.until = self.loop.time() + BODY_S if cycle.more_body else math.inf
        if self.is_trusted:
            self._begin(cycle)
        else:
            self._all.begin(partial(self._begin, cycle), self.loop)

    def _begin(self, cycle: Cycle) -> None:
        if cycle is not self.running:
            return  # the client left while this was waiting for its turn
        cycle.task = task = self.loop.create_task(cycle.run(self._config.loaded_app))
        self.tasks.add(task)

    def on_response_complete(self) -> None:
        """The next request of the pipeline, or else the connection is idle from now on."""
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
            self._say(self._last_words)
        elif self.cycle is not None and self.cycle.more_body:
            self.until = now + LINGER_S
        else:
            self.until = now + (HEAD_S if self.is_in_head else self._config.timeout_keep_alive)

    # the ends of a connection

    def note_known(self, has_key: bool) -> None:
        """Whoever is at the other end may come in."""
        self._is_known = self.is_trusted = True
        self._all.note_known(self)
        self._has_key = has_key
        if has_key:
            self._all.end_body(self)  # of which a part came with the head

    def is_idle(self) -> bool:
        return self.running is None and not self.outlet.is_waiting()

    def close_now(self) -> None:
        self.transport.abort()

    def look(self, now: float) -> None:
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
        cycle = self.running
        if self.has_ended:
            self.transport.abort()
        elif cycle is not None and self.flow.read_paused:
            self.until = now + BODY_S  # it is we who do not read
        elif cycle is not None or self.is_in_head:
            self._refuse(TooSlowError("the request did not arrive in time"))
        else:
            self.outlet.close()

    def _refuse(self, error: ProxyError | None = None) -> None:
        """The last reply of the connection; those before it are given first."""
        newest, running = self.cycle, self.running
        if newest is not None and newest.more_body:
            if newest.response_complete:
                self.has_ended = True  # it has its reply
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
        words = refusal(error)
        log.debug("request_refused", client=self.client, reply=words[:12].decode())
        self.has_ended, self.is_in_head = True, False
        if self.running is None:
            self._say(words)
        else:
            self._last_words = words

    def _say(self, words: bytes) -> None:
        """Says the last of this connection, and hangs up when the client has read it, or soon: with
        bytes unread that it sent, it would meet a reset and not read why."""
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
        """The server ends: the connection closes, after the reply that is under way."""
        if self.running is None:
            self.outlet.close()
        else:
            self.running.keep_alive = False


def _address(transport: asyncio.Transport, which: str) -> tuple[str, int] | None:
    """Host and port of one end; None for a socket of the file system."""
    found = transport.get_extra_info(which)
    return (str(found[0]), int(found[1])) if isinstance(found, tuple | list) else None


_METHODS = {name.encode(): name for name in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")}
_TOO_LARGE = f"the header has more than {HEAD_BYTES} bytes or {HEAD_FIELDS} fields"
