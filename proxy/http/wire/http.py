"""HTTP requests and replies as plain values, and the types of ASGI."""

from __future__ import annotations

import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from proxy.errors import ProxyError
from proxy.http.wire import headers as names
from proxy.http.wire.bounded_cache import remembers
from proxy.http.wire.caller import ANYONE, CALLER, Caller
from proxy.http.wire.headers import Headers, KeptHeaders, WithHeaders, first_values
from proxy.http.wire.json_splice import Pieces

JSON: Final[Headers] = [(b"content-type", b"application/json")]


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
KNOWN = "pinocchio.known"
"""The key of an ASGI scope under which our own server puts a head that its connection has sent
before (`KnownHead`)."""
METRICS = "pinocchio.metrics"
"""The key of an ASGI scope under which the application puts the object that counts requests."""
CLIENT = "pinocchio.client"
"""The key of an ASGI scope under which our own server puts the `Client` of a request. Whoever uses
it removes it, because scope and client would keep each other alive."""


_new: Final = object.__new__


class BodyWriter(Protocol):
    """The receiver of a body that is produced while it is sent."""

    async def write(self, part: bytes) -> None:
        """Send a part of the body; waits while the client is slow, and drops it if it has left."""

    def takes_parts(self) -> bool:
        """Return whether `write_part` may be called now: False while the client is slow or gone."""

    def write_part(self, part: bytes) -> None:
        """Send a part without waiting; it goes out before all parts that are written later."""


class Client(BodyWriter, Protocol):
    """The sender of a request and the receiver of the reply: one head, then parts, then an end.

    The methods that send wait while the client is slow, and do nothing once it has left.
    """

    status: int  # the reply's status; 0 until the reply has begun
    length: int | None  # bytes of the request's body, if no header has to state them
    is_old: bool  # whether the client speaks HTTP/1.0, which has no chunks
    has_left: bool  # whether the client has left, or its connection was ended here

    @property
    def scope(self) -> Scope:
        """The request's head as an ASGI scope; it has `CLIENT` unless somebody has removed it."""

    def receive(self) -> Awaitable[Message]:
        """Return the next part of the body, or a message that the client has left."""

    def whole_body(self, limit: int) -> bytes | None:
        """Return the request's body if it has arrived completely and has at most `limit` bytes.

        Otherwise returns None, and the body has to be read with `receive`.
        """

    def watch(self) -> None:
        """Cancel the current task from now on if the client leaves."""

    def unwatch(self) -> None:
        """Stop watching: the task is no longer cancelled if the client leaves."""

    def note_known(self, has_key: bool) -> None:
        """Admit the client; `has_key` says whether it presented a valid key.

        Connections of clients that were not admitted share a limited number of places, and bodies
        of clients without a key are bounded.
        """

    def hang_up(self) -> None:
        """Close the connection; an incomplete reply stays incomplete."""

    async def write_whole(self, status: int, headers: Headers, body: Pieces) -> None:
        """Send a whole reply, with its length added to the headers or corrected in them."""

    async def begin(self, status: int, headers: Headers) -> None:
        """Send the head of a reply whose body follows in parts, by `write` or `write_part`."""

    async def end(self) -> None:
        """Send the end of a reply in parts."""


WriteBody = Callable[[BodyWriter], Awaitable[None]]


class Counts(Protocol):
    """The counter of finished requests."""

    def note(self, exchange: Any, passed_s: float) -> None:
        """Count a finished request, an `Exchange`, that took `passed_s` seconds."""
        ...


@dataclass(slots=True)
class Request(WithHeaders):
    """A client's request: header names in lower case, the body unchanged."""

    method: str
    path: str
    query: str
    headers: Headers
    body: bytes = b""
    caller: Caller = ANYONE
    metrics: Counts | None = None
    started: float = field(default_factory=time.perf_counter)
    values: dict[bytes, bytes] = field(init=False)  # the first value of every header
    presented: bytes | None = field(init=False, default=None)  # the client's key, gate/key_hash.py

    def __post_init__(self) -> None:
        self.values = first_values(self.headers)

    def keep(self) -> None:
        """Make this request a template for `again`: its headers lose the content length."""
        self.headers = KeptHeaders(names.without(self.headers, b"content-length"))
        self.values = first_values(self.headers)

    def again(self) -> Request:
        """Return a new request with the same head, started now, without a body."""
        new = _new(Request)
        new.method, new.path, new.query = self.method, self.path, self.query
        new.headers, new.values, new.body = self.headers, self.values, b""
        new.caller, new.presented, new.metrics = self.caller, self.presented, self.metrics
        new.started = time.perf_counter()
        return new


@dataclass(slots=True)
class Reply:
    """A reply to a client: a whole body, one that is still arriving, or a function that writes it.

    Whoever receives a reply calls `on_close` at its end, whether the body was sent or not.
    """

    status: int
    headers: Headers
    body: bytes | Pieces | AsyncIterator[bytes] | WriteBody = b""
    on_close: Callable[[], Awaitable[None]] | None = None

    def pieces(self) -> Pieces | None:
        """Return the body as a tuple of byte strings, or None if it is still being produced."""
        if isinstance(self.body, bytes):
            return (self.body,)
        return self.body if isinstance(self.body, tuple) else None

    def whole(self) -> bytes:
        """Return the body as one byte string; the reply must not be one still being produced."""
        pieces = self.pieces()
        assert pieces is not None
        return b"".join(pieces)


Handler = Callable[[Request], Awaitable[Reply]]
ErrorBody = Callable[[ProxyError], bytes]


def error_reply(error: ProxyError, body: ErrorBody = ProxyError.body) -> Reply:
    """Return the reply to an error, in the client's format and marked as ours."""
    fields = [
        (b"content-type", b"application/json"),
        (names.ERROR, b"true"),
        *error.headers,
    ]
    return Reply(error.status, fields, body(error))


def place(error: BaseException) -> dict[str, str]:
    """Return an error's type and the place where it was raised, for logs.

    The message is left out, because it may quote what a client sent.
    """
    frames = traceback.extract_tb(error.__traceback__)
    at = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "never raised"
    return {"kind": type(error).__name__, "at": at}


def request_of(scope: Scope) -> Request:
    """Build the request from an ASGI scope, without its body."""
    path = raw_path_of(scope)
    query = scope["query_string"].decode("latin-1")
    context = scope.get(CALLER, ANYONE), scope.get(METRICS)
    return Request(scope["method"], path, query, scope["headers"], b"", *context)


def raw_path_of(scope: Scope) -> str:
    """Return the path exactly as it was sent, without the query."""
    return _path_of(scope.get("raw_path") or scope["path"].encode())


@remembers(1_024)
def _path_of(raw: bytes) -> str:
    """Decode a raw path in latin-1, without its query."""
    return raw.partition(b"?")[0].decode("latin-1")


ASGIApplication = Callable[[Scope, Receive, Send], Awaitable[None]]
