"""Requests and replies of HTTP as plain values, and the types of ASGI."""

from __future__ import annotations

import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from proxy.errors import ProxyError
from proxy.wire import headers as names
from proxy.wire.bounded_cache import remembers
from proxy.wire.caller import ANYONE, CALLER, Caller
from proxy.wire.headers import Headers, KeptHeaders, WithHeaders, first_values
from proxy.wire.json_splice import Pieces

JSON: Final[Headers] = [(b"content-type", b"application/json")]


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
KNOWN = "pinocchio.known"
"""Where our own server puts what is known of a head that a connection has sent before (`Known`)."""
METRICS = "pinocchio.metrics"
"""Where the application puts what counts a request."""
CLIENT = "pinocchio.client"
"""Where our own server puts the `Client` of a request into its scope. Whoever uses it takes it out,
or it would keep the scope, and the scope it."""


_new: Final = object.__new__


class Watch(Protocol):
    """Cancels the task that answers a client when the client leaves."""

    has_left: bool

    def watch(self) -> None:
        """The current task is answering from now on."""

    def unwatch(self) -> None:
        """It is no longer to be cancelled."""


class Client(Watch, Protocol):
    """Who asked, without the messages of ASGI between."""

    status: int  # of the reply; 0 until one has begun
    length: int | None  # of the body, where no header of the request needs to say it
    is_old: bool  # it speaks HTTP/1.0

    @property
    def scope(self) -> Scope:
        """What the head says, for ASGI; it has `CLIENT` where nobody has taken it out."""

    async def receive(self) -> Message:
        """The next part of the body, or that the client has left."""

    async def send(self, message: Message) -> None:
        """Sends a part of the reply, in its order; waits where the client is slow."""

    def whole_body(self, limit: int) -> bytes | None:
        """The request's body, if all of it is there and has at most `limit` bytes; else it has to
        be `receive`d."""

    def note_known(self, has_key: bool) -> None:
        """Who asks may come in; connections of those who may not have only a share of the room, and
        bodies of those without a key a bound."""

    def hang_up(self) -> None:
        """Ends the connection; a reply that is not whole stays so."""

    def takes_parts(self) -> bool:
        """Whether `write_part` may be called now; else a part has to wait in `send`, for the client
        is slow or has left, or the reply is none in parts whose head is out."""

    def write_part(self, part: bytes) -> None:
        """Sends a part of a reply, before those that are given to `send` later."""

    def add_part(self, part: bytes) -> bool:
        """As `write_part`, for a part that others may follow at once: they leave together. False
        where it has to wait in `send`."""

    def begin(self, status: int, headers: Headers) -> bool:
        """Sends the head of a reply in parts; False if the client is slow, or has left, so that the
        head has to go to `send`."""

    def end(self) -> bool:
        """Sends the end of a reply in parts; False as `begin`."""

    def write_whole(self, status: int, headers: Headers, body: Pieces) -> bool:
        """Sends a whole reply, with its length; False if the client is slow, so that the reply has
        to wait in `send`."""


class Writer(Protocol):
    """Where a body that is made while it is sent puts its parts."""

    client: Client | None  # who gets them, where our own server sends them as they are

    async def write(self, part: bytes) -> None:
        """Sends a part; waits where the client is slow."""


WriteBody = Callable[[Writer], Awaitable[None]]


class Counts(Protocol):
    """What counts requests that end."""

    def note(self, exchange: Any, passed_s: float) -> None: ...


@dataclass(slots=True)
class Request(WithHeaders):
    """A client's request: names of headers in lower case, the body as it came."""

    method: str
    path: str
    query: str
    headers: Headers
    body: bytes = b""
    caller: Caller = ANYONE
    metrics: Counts | None = None
    started: float = field(default_factory=time.perf_counter)
    values: dict[bytes, bytes] = field(init=False)  # the first value of every header
    presented: bytes | None = field(init=False, default=None)  # a key, see gate/key_hash.py

    def __post_init__(self) -> None:
        self.values = first_values(self.headers)

    def keep(self) -> None:
        """Makes this the model of those that come `again`: each has a length of its own, which is
        that of its body."""
        self.headers = KeptHeaders(names.without(self.headers, b"content-length"))
        self.values = first_values(self.headers)

    def again(self) -> Request:
        """Another one with the same head, of now, without its body."""
        new = _new(Request)
        new.method, new.path, new.query = self.method, self.path, self.query
        new.headers, new.values, new.body = self.headers, self.values, b""
        new.caller, new.presented, new.metrics = self.caller, self.presented, self.metrics
        new.started = time.perf_counter()
        return new


class Known:
    """A head that a connection has sent before.

    Once a request with it was let in, `again` begins to answer the next one, whose scope nobody
    needs; it gives None for one that has to come in as the first did.
    """

    __slots__ = ("again",)

    def __init__(self) -> None:
        self.again: Callable[[Client], Awaitable[None] | None] | None = None

    def begin(self, client: Client) -> Awaitable[None] | None:
        """What answers the client's request; None where it has to come in."""
        again = self.again
        if again is None:
            return None
        work = again(client)
        if work is None:
            self.again = None
        return work


@dataclass(slots=True)
class Reply:
    """What the client gets: a whole body, one that is still arriving, or what writes one.

    Whoever is given a reply calls `on_close` at its end, whether the body was sent or not.
    """

    status: int
    headers: Headers
    body: bytes | Pieces | AsyncIterator[bytes] | WriteBody = b""
    on_close: Callable[[], Awaitable[None]] | None = None

    def pieces(self) -> Pieces | None:
        """The body; None while it is still arriving."""
        if isinstance(self.body, bytes):
            return (self.body,)
        return self.body if isinstance(self.body, tuple) else None

    def whole(self) -> bytes:
        """The body of a reply that is not still arriving."""
        pieces = self.pieces()
        assert pieces is not None
        return b"".join(pieces)


Handler = Callable[[Request], Awaitable[Reply]]
ErrorBody = Callable[[ProxyError], bytes]


def error_reply(error: ProxyError, body: ErrorBody = ProxyError.body) -> Reply:
    """The envelope of the client's format, marked as ours."""
    fields = [
        (b"content-type", b"application/json"),
        (names.ERROR, b"true"),
        *error.headers,
    ]
    return Reply(error.status, fields, body(error))


def place(error: BaseException) -> dict[str, str]:
    """What failed and where; never the message, which may hold what a client sent."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "never raised"
    return {"kind": type(error).__name__, "at": at}


def request_of(scope: Scope) -> Request:
    """The request without its body."""
    path = raw_path_of(scope)
    query = scope["query_string"].decode("latin-1")
    told = scope.get(CALLER, ANYONE), scope.get(METRICS)
    return Request(scope["method"], path, query, scope["headers"], b"", *told)


def raw_path_of(scope: Scope) -> str:
    """The path as it came over the wire."""
    return _path_of(scope.get("raw_path") or scope["path"].encode())


@remembers(1_024)
def _path_of(raw: bytes) -> str:
    return raw.partition(b"?")[0].decode("latin-1")


ASGIApplication = Callable[[Scope, Receive, Send], Awaitable[None]]
