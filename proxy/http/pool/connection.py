"""An HTTP/1.1 connection to an upstream, and the replies that arrive over it, one at a time.

A `Connection` parses the event loop's data with llhttp; an `HttpReply` is the reply to one request
as far as it has arrived. Nothing here starts a task or a timer: the owner (`pool.py`) compares
`deadline` with the clock now and then to find silence.

Ambiguous framing is refused: two lengths, a length beside `chunked`, any coding but one `chunked`,
interim replies with either, folded fields, line ends before a reply, a status 101. Harmless faults
are accepted: lines of a head that end without CR, spaces after a chunk's size.
"""

from __future__ import annotations

import asyncio
import math
import select
import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast

import httptools

from proxy.errors import UpstreamBrokenError, UpstreamError, UpstreamTimeoutError
from proxy.http.pool.known_reply import KnownReply, known_reply
from proxy.http.wire.headers import HEADS_LEARNT, Headers, first_values
from proxy.http.wire.outlet import Bursts, Outlet
from proxy.http.wire.upstream import ReplyPieces, UpstreamReply, too_large

HEADER_LIMIT = 64 * 1024  # bytes of a reply's header, or in a row without any of its body
MAX_FIELDS = 512
FRAMING = (b"content-length", b"transfer-encoding")
HIGH_WATER = 256 * 1024  # unread bytes of a body above which reading pauses
JOINED = 64 * 1024  # bytes of a request body up to which it is joined with its head in one write
WRITTEN_AT_ONCE = 256 * 1024  # bytes
SURELY_OPEN_S = 0.5  # idle seconds in which a connection that was reused is hardly ever closed


class HttpReply(UpstreamReply, ReplyPieces):
    """The reply to one request, from before it begins; iteration yields its body as it arrives.

    Pieces that arrived together are joined. The connection writes into it and one reader takes out
    of it. It may outlive its use of the connection, which may serve the next request while the end
    of this body is still unread.
    """

    __slots__ = (
        *("_loop", "connection", "ends_with_connection", "error", "has_begun"),
        *("high_water", "is_complete", "is_head", "is_unsent", "parts", "size", "taker"),
        *("waiter", "wants_all"),
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, method: str) -> None:
        self._loop = loop
        self.is_head = method == "HEAD"
        self.connection: Connection | None = None  # None once the reply has ended or failed
        self.status = 0  # 0 until the head has arrived
        self.headers: Headers = []
        self.values: dict[bytes, bytes] = {}  # the first value of every header
        self.crossing: Headers | None = None
        self.parts: list[bytes] = []
        self.size = 0  # bytes of the parts
        self.is_unsent = False  # whether it failed before any byte of its request was sent
        self.has_begun = False  # whether any byte has arrived
        self.is_complete = False
        self.ends_with_connection = False
        self.error: UpstreamError | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.taker: Callable[[bytes], bool] | None = None
        self.wants_all = False
        self.high_water = HIGH_WATER

    def wait(self) -> asyncio.Future[None]:
        """Return a future that is done once there is something new: head, bytes, end or error."""
        self.waiter = waiter = self._loop.create_future()
        return waiter

    def wake(self) -> None:
        """Wake the reader that waits in `wait`, if any."""
        waiter = self.waiter
        if waiter is not None:
            self.waiter = None
            if not waiter.done():  # its task may have been cancelled
                waiter.set_result(None)

    def leave_to(self, taker: Callable[[bytes], bool]) -> None:
        if self.connection is not None:  # otherwise reply and taker would keep each other alive
            self.taker = taker

    def hand_on(self) -> None:
        """Give what has arrived to the taker, or wake the reader."""
        if self.taker is None or not self._is_taken(self.taker):
            self.wake()

    def _is_taken(self, taker: Callable[[bytes], bool]) -> bool:
        """Return whether a reader waits and `taker` took all bytes that have arrived."""
        waiter, parts = self.waiter, self.parts
        if waiter is None or waiter.done() or not parts:
            return False  # the reader may still be working on earlier bytes
        if not taker(parts[0] if len(parts) == 1 else b"".join(parts)):
            return False
        parts.clear()
        self.size = 0
        return True

    def __aiter__(self) -> HttpReply:
        return self

    async def __anext__(self) -> bytes:
        """Return the next bytes of the body; an error is raised after those that came before it."""
        while not self.parts:
            if self.error is not None:
                raise self.error
            if self.is_complete:
                raise StopAsyncIteration
            await self.wait()
        return self._take()

    def is_over(self) -> bool:
        """Return whether the reply has ended or failed: no connection is used for it."""
        return self.connection is None

    def whole(self, limit: int) -> bytes | None:
        """Return the whole body if it has arrived and has at most `limit` bytes, else None."""
        is_whole = self.connection is None and self.error is None and self.size <= limit
        return self._take() if is_whole else None

    async def read(self, limit: int = sys.maxsize) -> bytes:
        """Read the whole body; raises UpstreamBrokenError beyond `limit` or where it breaks off."""
        if self.connection is not None:
            self.wants_all, self.high_water = True, limit
            self.connection.resume()
        while self.connection is not None and self.size <= limit:
            await self.wait()
        if self.size > limit:
            self.abort()
            raise too_large(limit)
        if self.error is not None:
            raise self.error
        return self._take()

    def _take(self) -> bytes:
        """Return all bytes that have arrived, remove them, and let upstream send more."""
        parts = self.parts
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self.size = 0
        if self.connection is not None:
            self.connection.resume()
        return whole

    def abort(self) -> None:
        """Close the connection unless the reply is complete, so that upstream may stop its work."""
        if self.connection is not None:
            self.connection.fail(UpstreamBrokenError("the reply was closed before its end"))

    async def aclose(self) -> None:
        self.abort()

    @property
    def chunks(self) -> HttpReply:  # type: ignore[override]  # an attribute would keep it alive
        return self

    @property
    def on_close(self) -> Callable[[], Awaitable[None]]:  # type: ignore[override]  # likewise
        return self.aclose


class Connection(asyncio.Protocol):
    """A transport to upstream; `on_free` takes it back after a reply, `on_lost` learns of its end.

    `where` names the upstream in errors. `deadline` is the loop's time after which the owner should
    call `expire`, `idle_since` that of the end of its last reply.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        where: str,
        timeout_s: float,
        on_free: Callable[[Connection], None],
        on_lost: Callable[[Connection], None],
        bursts: Bursts,
    ) -> None:
        self._where = where
        self._timeout_s = timeout_s
        self._loop = loop
        self._clock = loop.time
        self._on_free = on_free
        self._on_lost = on_lost
        self._bursts = bursts
        self.deadline = math.inf
        self.reply: HttpReply | None = None
        self._fields: Headers = []
        self._body: list[bytes] = []  # the parts that the parser has found in the current data
        self.on_body = self._body.append  # called by the parser for many small parts
        self._overhead = 0  # bytes in a row without any of a body
        self._is_reusable = False
        self._replies = 0
        self.idle_since = 0.0
        self._is_read_paused = False
        self._is_write_paused = False
        self._unsent: memoryview | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._is_strict = False
        self._known: KnownReply | None = None  # the head of an earlier reply
        self._heads_to_learn = HEADS_LEARNT

    # Called by the owner

    def start(self, reply: HttpReply, head: bytes, body: bytes) -> None:
        """Send a request and direct what comes back to the reply."""
        self.reply = reply
        reply.connection = self
        self._overhead = 0
        self._fields = []
        if self._is_strict:
            self._demand_cr(False)
        self.deadline = self._clock() + self._timeout_s
        if len(body) <= JOINED:
            self._outlet.write_alone(head + body)
        else:
            self._transport.write(head)
            self._unsent = memoryview(body)
            self._write_on()

    def is_usable(self) -> bool:
        """Return whether the connection is open and has no unexpected data.

        A look at the socket finds an end that the event loop has not processed yet. It takes a
        seventh of a small request's CPU, so it is skipped where an end is unlikely: after two
        replies, and at most half a second idle.
        """
        if self._transport.is_closing():
            return False
        clock = self._clock
        is_proven = self._replies > 1 and clock() - self.idle_since < SURELY_OPEN_S
        return is_proven or not self._has_news()

    def expire(self) -> None:
        """End a silent reply with UpstreamTimeoutError; an idle connection is just closed."""
        self.fail(UpstreamTimeoutError(f"upstream {self._where} did not answer in time"))

    def fail(self, error: UpstreamError) -> None:
        """Close the connection at once; a reply that is on it ends with the error."""
        self.deadline = math.inf
        self._unsent = None
        self._transport.abort()
        reply = self.reply
        if reply is not None:
            reply.is_unsent = self._outlet.is_waiting()
            self.reply = reply.connection = reply.taker = None
            reply.error = error
            reply.wake()

    def resume(self) -> None:
        """Read from upstream again, if reading was paused until the reader caught up."""
        if self._is_read_paused:
            self._is_read_paused = False
            self.deadline = self._clock() + self._timeout_s
            self._transport.resume_reading()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._outlet = Outlet(self._transport, self._bursts)
        self._poll: select.poll | None = None
        if hasattr(select, "poll"):  # not on Windows
            self._poll = select.poll()
            self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Parse bytes of upstream into the reply; bytes without a request close the connection."""
        reply = self.reply
        if reply is None:  # unrequested data must not answer the next request
            self._transport.abort()
            return
        is_first = not reply.has_begun
        if is_first:
            if self._outlet.is_waiting():
                self._refuse("an answer before the request")
                return
            if self._known is not None and self._read_again(self._known, reply, data):
                return
            if data[:1] != b"H":  # the parser would skip line ends
                self._refuse("no status line")
                return
            reply.has_begun = True
        self._overhead += len(data)
        size = reply.size
        fault: httptools.HttpParserError | None = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._is_reusable = False
            fault = error
        if body := self._body:
            part = body[0] if len(body) == 1 else b"".join(body)
            reply.parts.append(part)
            reply.size += len(part)
            body.clear()
        if reply.is_complete:
            if is_first and self._heads_to_learn:
                self._learn(reply, data)
            self._finish(reply)
            return
        if fault is not None:
            self._refuse(fault.__context__ or fault)
            return
        self.deadline = self._clock() + self._timeout_s
        if reply.size != size:
            self._overhead = 0
        elif self._overhead > HEADER_LIMIT:
            self._refuse(f"more than {HEADER_LIMIT} bytes of header")
            return
        if reply.size > reply.high_water:
            if not reply.wants_all:
                self._pause()
            reply.wake()
        elif reply.status and not reply.wants_all:
            reply.hand_on()

    def _read_again(self, known: KnownReply, reply: HttpReply, data: bytes) -> bool:
        """Complete a reply with a known head and its whole body in `data`; False for other data."""
        head = known.head
        length = head.length_in(data)
        if length is None or reply.is_head:
            return False
        body = data[head.size + len(length) :]
        if len(body) != int(length):
            return False
        self._heads_to_learn = HEADS_LEARNT
        known.tell(reply, length)
        reply.has_begun = reply.is_complete = True
        reply.parts, reply.size = [body], len(body)
        self._finish(reply)
        return True

    def _learn(self, reply: HttpReply, data: bytes) -> None:
        """Remember the head of the single reply in `data`, if it has a body and others may come."""
        self._heads_to_learn -= 1
        if self._is_reusable and reply.size:
            self._known = known_reply(data, reply)

    def eof_received(self) -> None:
        self._end(None)
        self._transport.abort()  # `close` would wait until unsent data is written

    def connection_lost(self, exc: Exception | None) -> None:
        """End the reply and tell the pool; a reply without a declared length is complete now."""
        self._end(exc)
        self._on_lost(self)
        self._parser = self._known = None  # parser and connection refer to each other

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        """Write the rest of the request's body, since upstream accepts more of it."""
        self._is_write_paused = False
        if self.reply is not None and not self._is_read_paused:
            self.deadline = self._clock() + self._timeout_s
        if self._unsent is not None:
            self._write_after_reading()

    def _write_on(self) -> None:
        """Write the next slice of a large body, if upstream has accepted the one before.

        The reply is read meanwhile: upstream may refuse the body (413) before all of it is sent.
        """
        unsent = self._unsent
        if unsent is None or self._is_write_paused or self._transport.is_closing():
            return
        self._unsent = unsent[WRITTEN_AT_ONCE:] if len(unsent) > WRITTEN_AT_ONCE else None
        self._transport.write(unsent[:WRITTEN_AT_ONCE])
        if self._unsent is not None and not self._is_write_paused:
            self._write_after_reading()

    def _write_after_reading(self) -> None:
        """Write on after waiting data was read: a failed write would close the transport first."""
        if self._has_news():
            self._loop.call_soon(self._loop.call_soon, self._write_on)
        else:
            self._write_on()

    def _has_news(self) -> bool:
        """Return whether bytes, or the connection's end, wait in the socket."""
        return self._poll is not None and bool(self._poll.poll(0))

    def _pause(self) -> None:
        """Stop reading, without a deadline, because upstream is not silent while it has to wait."""
        self._is_read_paused = True
        self.deadline = math.inf
        self._transport.pause_reading()

    def _refuse(self, reason: object) -> None:
        """Close the connection; its reply fails with UpstreamBrokenError that names `reason`."""
        self.fail(UpstreamBrokenError(f"upstream {self._where} did not answer in HTTP ({reason})"))

    def _finish(self, reply: HttpReply) -> None:
        """Complete the reply, and free the connection, or close one that cannot be reused."""
        self.reply = reply.connection = reply.taker = None
        if reply.is_head:
            reply.parts.clear()
        if self._is_reusable and self._unsent is None:
            if self._is_read_paused:
                self.resume()
            self._replies += 1
            clock, on_free = self._clock, self._on_free
            self.idle_since = clock()
            on_free(self)
        else:
            self.deadline = math.inf
            self._unsent = None
            self._transport.abort()
        reply.wake()

    def _end(self, cause: Exception | None) -> None:
        """Handle the end of the connection: a body without a length ends well, others fail."""
        reply = self.reply
        if reply is None:
            return
        if reply.ends_with_connection and cause is None:
            reply.is_complete = True
            self._finish(reply)
        else:
            reason = "the connection was closed" if cause is None else type(cause).__name__
            self.fail(
                UpstreamBrokenError(f"upstream {self._where} broke off its answer ({reason})")
            )

    # Called by the parser; `feed_data` wraps an exception raised here as the context of its own.

    def on_message_begin(self) -> None:
        """Check that a reply is awaited; raises ValueError for a second one."""
        if self.reply is None or self.reply.is_complete:
            raise ValueError("more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Pass a checked head to the reply; raises ValueError for a bad one."""
        reply = self.reply
        assert reply is not None
        fields, self._fields = self._fields, []  # fields added from here on are trailers
        if len(fields) > MAX_FIELDS:
            raise ValueError(f"more than {MAX_FIELDS} header fields")
        if self._overhead > HEADER_LIMIT and _size(fields) > HEADER_LIMIT:
            raise ValueError(f"more than {HEADER_LIMIT} bytes of header")
        status = self._parser.get_status_code()
        if status < 200:
            if status < 100 or status == 101:
                raise ValueError(f"status {status}")
            if any(name in FRAMING for name, _ in fields):
                raise ValueError(f"an interim reply, {status}, that has a body")
            return
        values = first_values(fields)
        if is_chunked := b"transfer-encoding" in values:
            _check_coding(fields, values)
            self._demand_cr(True)  # or llhttp loses a byte after the bare LF of a chunk's size
        reply.status, reply.headers, reply.values = status, fields, values
        self._is_reusable = self._parser.should_keep_alive()
        if is_chunked and self._parser.get_http_version() == "1.0":
            self._is_reusable = False  # RFC 9112, 6.1: its framing is faulty
        if reply.is_head:  # the parser cannot know that there is no body
            reply.is_complete = True
            self._is_reusable = False
        elif not self._is_reusable:
            reply.ends_with_connection = not (is_chunked or b"content-length" in values)

    def _demand_cr(self, is_strict: bool) -> None:
        self._is_strict = is_strict
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=not is_strict)

    def on_message_complete(self) -> None:
        """Mark the reply as complete; the end of an interim reply is ignored."""
        reply = self.reply
        assert reply is not None
        if reply.status:  # otherwise an interim reply has ended and the final one follows
            reply.is_complete = True


def _size(fields: Headers) -> int:
    """Return the bytes that fields take in a head, with colon, blank and line end."""
    return sum(len(name) + len(value) + 4 for name, value in fields)


def _check_coding(fields: Headers, values: dict[bytes, bytes]) -> None:
    """Raise ValueError for any transfer coding but a single `chunked`: parsers disagree on them."""
    if values[b"transfer-encoding"] == b"chunked" and len(values) == len(fields):
        return  # nearly all replies
    codings = [value for name, value in fields if name == b"transfer-encoding"]
    if len(codings) > 1 or codings[0].lower() != b"chunked":
        raise ValueError("its transfer coding is not 'chunked' alone")
