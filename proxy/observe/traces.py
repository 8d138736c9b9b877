"""A request's place in its client's trace, and a span for each call of an upstream.

W3C Trace Context: the client's `traceparent` is continued, each call has its own span below it, and
the upstream gets the call's. Nothing here uses OpenTelemetry's libraries.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from proxy.config.settings.upstreams import UpstreamConfig
from proxy.errors import ProxyError
from proxy.http.wire.headers import Headers, without
from proxy.http.wire.upstream import Upstream, UpstreamReply, UpstreamRequest
from proxy.observe.names import OPERATIONS, PROVIDERS

TRACEPARENT: Final = b"traceparent"
_TRACEPARENT: Final = re.compile(
    rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
SAMPLED: Final = 1
HEAD, TAIL = 64 * 1024, 8 * 1024  # bytes kept of a reply's beginning and of its end


@dataclass(slots=True)
class Trace:
    """A request's trace: the client's trace and span, or a new trace without a parent."""

    trace_id: bytes
    parent_id: bytes | None
    is_sampled: bool
    calls: list[CallSpan] = field(default_factory=list)

    @property
    def is_clients(self) -> bool:
        """Whether the trace is the client's, and not one that began here."""
        return self.parent_id is not None

    def child(self, request: UpstreamRequest, place: SpanUpstream) -> CallSpan:
        """Begin the span of a call to an upstream now, add it to `calls` and return it."""
        span = CallSpan(self, os.urandom(8), place, request.path, request.model)
        self.calls.append(span)
        return span


CURRENT: ContextVar[Trace | None] = ContextVar("trace", default=None)
"""The trace of the request that the current task works for."""


def trace_of(headers: Headers, sample: float) -> Trace:
    """Return the client's trace, read from `traceparent`, else a new one with random id.

    `sample` is the share of new traces, 0 to 1, that are sampled. An unusable header is ignored.
    """
    header = next((value for name, value in headers if name == TRACEPARENT), None)
    if header is not None and (match := _TRACEPARENT.fullmatch(header.strip().lower())):
        version, trace_id, parent_id, flags, more = match.groups()
        is_usable = version != b"ff" and not (version == b"00" and more)
        if is_usable and trace_id.strip(b"0") and parent_id.strip(b"0"):
            is_sampled = bool(int(flags, 16) & SAMPLED)
            ids = bytes.fromhex(trace_id.decode()), bytes.fromhex(parent_id.decode())
            return Trace(*ids, is_sampled)
    return Trace(os.urandom(16), None, random.random() < sample)


@dataclass(frozen=True, slots=True)
class SpanUpstream:
    """An upstream as spans describe it."""

    name: str
    provider: str
    address: str | None
    port: int | None


def place_of(name: str, section: UpstreamConfig) -> SpanUpstream:
    """Return an upstream's name, provider, host and port, as far as its section says.

    The provider is known by the host's name, or is litellm's, `anthropic`, or else the upstream's
    name.
    """
    url = urlsplit(section.base_url or "")
    host = url.hostname
    providers = (p for end, p in PROVIDERS.items() if host and f".{host}".endswith(f".{end}"))
    named = section.litellm if section.litellm not in (None, "auto") else None
    own = "anthropic" if section.speaks == "anthropic" else name
    port = url.port or ({"https": 443, "http": 80}.get(url.scheme))
    return SpanUpstream(name, next(providers, named or own), host, port if host else None)


@dataclass(slots=True)
class CallSpan:
    """One call of an upstream; `head` and `tail` are the first and last bytes of its reply."""

    trace: Trace
    span_id: bytes
    place: SpanUpstream
    path: str
    model: str | None
    began_ns: int = field(default_factory=time.time_ns)
    first_ns: int | None = None  # when the first bytes of the reply arrived
    ended_ns: int | None = None
    status: int | None = None
    error: str | None = None
    is_stream: bool = False
    is_encoded: bool = False
    head: bytearray = field(default_factory=bytearray)
    tail: bytes = b""
    size: int = 0

    @property
    def operation(self) -> str | None:
        """The operation's name in the conventions, or None for a path without one."""
        return OPERATIONS.get(self.path)

    @property
    def traceparent(self) -> bytes:
        """The header's value that upstream gets: this span, in the client's trace."""
        flags = b"01" if self.trace.is_sampled else b"00"
        ids = self.trace.trace_id.hex().encode(), self.span_id.hex().encode()
        return b"00-%b-%b-%b" % (*ids, flags)

    def see(self, chunk: bytes) -> None:
        """Note the first chunk's time, add to the size, and keep the reply's beginning and end."""
        if self.first_ns is None:
            self.first_ns = time.time_ns()
        self.size += len(chunk)
        if (room := HEAD - len(self.head)) > 0:
            self.head += chunk[:room]
        if len(chunk) > room:  # otherwise all of it is in the head
            self.tail = (self.tail + chunk)[-TAIL:]


class TracedUpstream:
    """An upstream whose calls are recorded as spans; `on_end` gets each span once, when it ends."""

    def __init__(
        self, upstream: Upstream, place: SpanUpstream, on_end: Callable[[CallSpan], None]
    ) -> None:
        self._upstream, self._place, self._on_end = upstream, place, on_end

    async def send(self, request: UpstreamRequest) -> UpstreamReply:
        """Send a request with this call's `traceparent`, and return the reply, observed by a span.

        Requests outside a trace, and paths without an operation, are sent unchanged. Raises what
        the upstream raises.
        """
        trace = CURRENT.get()
        if trace is None or request.path not in OPERATIONS:
            return await self._upstream.send(request)
        span = trace.child(request, self._place)
        headers = without(request.headers, TRACEPARENT)
        request.headers = [*headers, (TRACEPARENT, span.traceparent)]
        try:
            reply = await self._upstream.send(request)
        except ProxyError as error:
            self._end(span, error.machine_code)
            raise
        except BaseException:  # the client has left, or the call was cancelled
            self._end(span, "cancelled")
            raise
        span.status = reply.status
        values = reply.values
        span.is_stream = values.get(b"content-type", b"").startswith(b"text/event-stream")
        span.is_encoded = values.get(b"content-encoding", b"identity") != b"identity"
        if reply.status >= 400:
            span.error = str(reply.status)
        watched = _ObservedBody(reply.chunks, span, self._end)

        async def close() -> None:
            """End the span as cancelled, if it has not ended, and close the reply."""
            self._end(span, "cancelled")
            await reply.aclose()

        return UpstreamReply(reply.status, reply.headers, watched, close)

    def _end(self, span: CallSpan, error: str | None = None) -> None:
        """End a span with an error, if any, and pass it to `on_end`; only the first time."""
        if span.ended_ns is None:
            span.ended_ns = time.time_ns()
            span.error = span.error or error
            self._on_end(span)

    async def aclose(self) -> None:
        await self._upstream.aclose()


class _ObservedBody:
    """The bytes of a reply, which its span sees as they pass."""

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        span: CallSpan,
        end: Callable[[CallSpan, str | None], None],
    ) -> None:
        self._chunks, self._span, self._end = aiter(chunks), span, end

    def __aiter__(self) -> _ObservedBody:
        return self

    async def __anext__(self) -> bytes:
        """Return the next chunk and show it to the span, which ends with the body or its error."""
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._end(self._span, None)
            raise
        except ProxyError as error:
            self._end(self._span, error.machine_code)
            raise
        self._span.see(chunk)
        return chunk
