"""The connections to an upstream that speaks the client's format; they are kept and reused.

This is an HTTP/1.1 client for one origin and for the hot path: it sends the request's bytes and
returns the reply's, and does nothing else. No redirects, no cookies, no decoding, no header of its
own besides `host` and `content-length`. It connects to the origin itself, or through the forward
proxy that HTTPS_PROXY names (`forward_proxy.py`).

**A request that may have been executed is not sent twice.** A server may close a kept connection at
the very moment at which a request is written to it. A connection that was closed while idle is
never used, not even if the event loop has not noticed yet (`Connection.is_usable`). If it happens
all the same, on a reused connection and before any byte has come back, a request with an idempotent
method (RFC 9110, 9.2.2) is sent once more, on a new connection. A POST is not, because a model may
already be working on it, at a price: the client gets a 502 and decides. A request of any method is
sent once more if it still waited to be written with others, so that no byte of it had left.
"""

from __future__ import annotations

import asyncio
import re
import socket
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import structlog
from aiohappyeyeballs import start_connection

from proxy.errors import (
    ExitStatus,
    StartupError,
    UpstreamBrokenError,
    UpstreamError,
    UpstreamTimeoutError,
)
from proxy.http.pool.connection import Connection, HttpReply
from proxy.http.pool.forward_proxy import forward_proxy_for, open_tunnel
from proxy.http.wire.headers import Headers, KeptHeaders, name_of, serialize_fields
from proxy.http.wire.outlet import Bursts
from proxy.http.wire.upstream import UpstreamReply, UpstreamRequest

if TYPE_CHECKING:
    import ssl

log = structlog.get_logger(__name__)

UNAUTHORIZED = 401
NOT_FOUND = 404
CONNECT_TIMEOUT_S = 15  # name, TCP and TLS together
KEEP_ALIVE_S = 15  # shorter than common servers use, so that a kept connection is rarely stale
MAX_IDLE = 256  # connections
SWEEP_S = 1.0  # how late a timeout may be noticed, in seconds
NEXT_ADDRESS_S = 0.25  # RFC 8305: seconds until a name's next address is tried in parallel
MAX_OPENINGS = 256
LONGEST_OPENING = 4_096  # bytes of an opening that is cached

IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
WRITTEN_HERE = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection"})

_OF_REQUESTS = ("/chat/completions", "/completions", "/responses", "/embeddings", "/messages")
_METHOD = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET = re.compile(r"/[!-~\x80-\xff]*")


class Pool:
    """An upstream at `base_url` (with its `/v1`); if `api_key` is empty, it gets the client's key.

    `timeout_s` bounds the silence before and between bytes, not the whole reply. `has_key` says
    that requests come with a configured key although `api_key` is empty. Raises StartupError for a
    `base_url` or an `api_key` that cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str = "",
        timeout_s: float = 600,
        *,
        ssl_context: ssl.SSLContext | None = None,
        has_key: bool = False,
    ) -> None:
        self._origin = origin_of(base_url)
        self._where = f"{self._origin.scheme}://{self._origin.authority}"
        self.forward_proxy = forward_proxy_for(self._origin.scheme, self._origin.host)
        self._suggested_url = meant_address(self._where + self._origin.path)
        self._timeout_s = timeout_s
        self._ssl_context = ssl_context
        self._common = b"host: " + self._origin.authority.encode("ascii") + b"\r\n"
        self._replaced = WRITTEN_HERE
        self._sends_key, self._is_key_refused = has_key or bool(api_key), False
        if api_key:
            self._common += b"authorization: Bearer " + _key_bytes(api_key) + b"\r\n"
            self._replaced |= {b"authorization"}
        self._openings: dict[tuple[str, str, str], bytes] = {}
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # the most recently used one is last
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bursts = Bursts()
        self._sweeping: asyncio.TimerHandle | None = None
        self._sweep_s = min(SWEEP_S, timeout_s / 4)
        self._is_closed = False

    async def send(self, request: UpstreamRequest) -> UpstreamReply:
        """Send a request over a kept or a new connection and return the reply once it begins.

        Raises UpstreamError where no answer begins; an error status is an answer.
        """
        head = self._head(request)
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        method = request.method
        idle = self._idle_connection()
        while True:
            connection = idle or await self._connect(loop)
            reply = HttpReply(loop, method)
            connection.start(reply, head, request.body)
            try:
                await reply.wait()
            except BaseException:
                reply.abort()
                raise
            if status := reply.status:
                if self._sends_key and (status == UNAUTHORIZED or self._is_key_refused):
                    self._note_key(status)
                if status == NOT_FOUND and self._suggested_url:
                    self._note_path(self._suggested_url)
                return reply
            assert reply.error is not None
            is_safe = method in IDEMPOTENT or reply.is_unsent
            is_broken = isinstance(reply.error, UpstreamBrokenError)
            if idle is None or reply.has_begun or not (is_broken and is_safe):
                raise reply.error
            idle = None

    def _note_key(self, status: int) -> None:
        """Log once that upstream answered 401 to the configured key; another status resets that."""
        is_refused = status == UNAUTHORIZED
        if is_refused and not self._is_key_refused:
            hint = "the api_key of the configuration was refused, not that of a client"
            log.warning("upstream_refused_key", upstream=self._where, status=status, hint=hint)
        self._is_key_refused = is_refused

    async def aclose(self) -> None:
        """Close all connections; replies on them end with UpstreamBrokenError."""
        self._is_closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in list(self._open):
            connection.fail(UpstreamBrokenError("the proxy has closed its connections"))
        for _ in range(100):  # let the transports notice that they are closed
            if not self._open:
                break
            await asyncio.sleep(0)

    def _note_path(self, base_url: str) -> None:
        """Log once which base_url may be meant, after upstream answered 404 to a path."""
        self._suggested_url = None
        hint = f"did you mean base_url: {base_url} ?"
        log.warning("upstream_knows_no_path", upstream=self._where, hint=hint)

    # The request's head

    def _head(self, request: UpstreamRequest) -> bytes:
        """Return a request's whole head as bytes; the result for shared headers is cached in them.

        Raises UpstreamError for fields, a method or a path that would break the head.
        """
        key = (request.method, request.path, request.query)
        opening = self._openings.get(key) or self._opening(*key)
        headers, body = request.headers, request.body
        if type(headers) is not KeptHeaders:
            head = self._begin_head(opening, headers)
        elif headers.opening is opening:
            head = headers.written
        else:
            head = headers.written = self._begin_head(opening, headers)
            headers.opening = opening
        if body or request.method in WITH_BODY:
            return b"%bcontent-length: %d\r\n\r\n" % (head, len(body))
        return head + b"\r\n"

    def _begin_head(self, opening: bytes, headers: Headers) -> bytes:
        """Return a head without the body's length and the final line end.

        Raises UpstreamError for a field with a line break or a NUL.
        """
        replaced = self._replaced
        if not replaced.isdisjoint(map(name_of, headers)):
            headers = [field for field in headers if field[0] not in replaced]
        try:
            fields = serialize_fields(headers)
        except ValueError:
            fields = b"\0"
        if fields.find(b"\0") >= 0:
            raise UpstreamError("a header field with a line break or a NUL in it is not sent")
        return opening + fields

    def _opening(self, method: str, path: str, query: str) -> bytes:
        """Return the request line and the constant fields, cached because few paths are common.

        Raises UpstreamError for a method or path with a space or a control character.
        """
        target = f"{self._origin.path}{path}?{query}" if query else self._origin.path + path
        if not (_METHOD.fullmatch(method) and _TARGET.fullmatch(target)):
            raise UpstreamError("a method or path with a space or a control character is not sent")
        opening = f"{method} {target} HTTP/1.1\r\n".encode("latin-1") + self._common
        if len(self._openings) >= MAX_OPENINGS:
            self._openings.clear()
        if len(opening) <= LONGEST_OPENING:
            self._openings[method, path, query] = opening
        return opening

    # Connections
    def _idle_connection(self) -> Connection | None:
        """Return the most recently used connection that is still usable, or None.

        Connections that are not usable are closed.
        """
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.is_usable():
                return connection
            connection.fail(UpstreamBrokenError("closed by upstream"))
        return None

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> Connection:
        """Open a connection to the origin, through a forward proxy if one is configured.

        Raises UpstreamTimeoutError after 15 s, and UpstreamError where it fails or the pool is
        closed.
        """
        if self._is_closed:
            raise UpstreamError("the proxy has closed its connections")
        origin, tls = self._origin, self._tls()
        name = origin.host if tls else None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                sock = await self._connect_socket(loop)
                transport, connection = await loop.create_connection(
                    self._new_connection, sock=sock, ssl=tls, server_hostname=name
                )
        except TimeoutError as error:
            raise UpstreamTimeoutError(
                f"could not connect to upstream {self._where} in time"
            ) from error
        except (OSError, RuntimeError, ValueError) as error:
            reason = type(error).__name__
            raise UpstreamError(
                f"could not connect to upstream {self._where} ({reason})"
            ) from error
        if self._is_closed or transport.is_closing():
            transport.abort()
            raise UpstreamError(f"could not connect to upstream {self._where}")
        self._open.add(connection)
        if self._sweeping is None:
            self._sweeping = loop.call_later(self._sweep_s, self._sweep)
        return connection

    async def _connect_socket(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        """Return a socket that is connected to the origin, through the forward proxy if any."""
        origin, between = self._origin, self.forward_proxy
        host, port = (between.host, between.port) if between else (origin.host, origin.port)
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        sock = await start_connection(
            addresses, happy_eyeballs_delay=NEXT_ADDRESS_S, socket_factory=_new_socket
        )
        if between is not None:
            try:
                await open_tunnel(
                    loop, sock, between, f"{_bracket_host(origin.host)}:{origin.port}"
                )
            except BaseException:
                sock.close()
                raise
        return sock

    def _new_connection(self) -> Connection:
        """Return a new Connection of this pool without a transport, for `create_connection`."""
        assert self._loop is not None
        return Connection(
            self._loop, self._where, self._timeout_s, self._keep, self._forget, self._bursts
        )

    def _tls(self) -> ssl.SSLContext | None:
        """Return the TLS context, made on first use because it reads the system's certificates.

        Returns None for an origin under http://.
        """
        if self._origin.scheme == "http":
            return None
        if self._ssl_context is None:
            import ssl

            self._ssl_context = ssl.create_default_context()
            self._ssl_context.set_alpn_protocols(["http/1.1"])
        return self._ssl_context

    def _keep(self, connection: Connection) -> None:
        """Take an idle connection back for 15 s; close it if 256 are idle or the pool is closed."""
        if self._is_closed or len(self._idle) >= MAX_IDLE:
            connection.fail(UpstreamBrokenError("not needed any more"))
            return
        connection.deadline = connection.idle_since + KEEP_ALIVE_S
        self._idle[connection] = None

    def _forget(self, connection: Connection) -> None:
        """Remove a connection that has ended from the open and the idle ones."""
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def _sweep(self) -> None:
        """End silent replies and connections that were idle for too long, and restart the timer.

        This is the pool's only timer; it runs while connections are open.
        """
        assert self._loop is not None
        now = self._loop.time()
        for connection in [each for each in self._open if each.deadline < now]:
            self._idle.pop(connection, None)
            connection.expire()
        self._sweeping = None
        if self._open:
            self._sweeping = self._loop.call_later(self._sweep_s, self._sweep)


class Origin(NamedTuple):
    """The location of an upstream: `authority` as in a URL, `path` as a prefix of request paths."""

    scheme: str
    host: str
    port: int
    authority: str
    path: str


def origin_of(base_url: str) -> Origin:
    """Parse a base URL.

    Raises StartupError where it cannot be used. Messages do not quote the URL, because a password
    in it would end up in a log.
    """
    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname or "", parts.port
        ascii_host = host if host.isascii() else host.encode("idna").decode("ascii")
    except ValueError as error:
        raise StartupError(ExitStatus.UNUSABLE_INPUT, f"base_url is no URL: {error}") from error
    path = parts.path.rstrip("/")
    if parts.scheme not in ("http", "https") or not re.fullmatch(r"[!-~]+", ascii_host):
        problem = "must begin with http:// or https:// and a host"
    elif parts.username is not None or parts.password is not None:
        problem = "may not hold a user name or password; a key belongs in api_key"
    elif parts.query or parts.fragment or (path and not _TARGET.fullmatch(path)):
        problem = "ends with a path, without '?', '#', spaces or control characters"
    else:
        standard = 443 if parts.scheme == "https" else 80
        authority = _bracket_host(ascii_host)
        if port is not None and port != standard:
            authority += f":{port}"
        return Origin(parts.scheme, ascii_host, port or standard, authority, path)
    raise StartupError(ExitStatus.UNUSABLE_INPUT, f"an upstream's base_url {problem}")


def meant_address(base_url: str) -> str | None:
    """Return the base URL that was probably meant, or None for one that looks right.

    `.../v1/v1` loses a `/v1`, `.../v1/chat/completions` the path of a request, and a URL without a
    path gets `/v1`.
    """
    address = base_url.rstrip("/")
    if address.endswith("/v1/v1"):
        return address.removesuffix("/v1")
    for path in _OF_REQUESTS:
        if address.endswith(path):
            return address.removesuffix(path)
    return None if urlsplit(address).path else f"{address}/v1"


def _bracket_host(host: str) -> str:
    """Return a host as URLs have it, with an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def _key_bytes(api_key: str) -> bytes:
    """Encode an API key in latin-1; raises StartupError if it has other characters or line ends."""
    if not re.fullmatch(r"[ -~\x80-\xff]*", api_key):
        raise StartupError(ExitStatus.UNUSABLE_INPUT, "an api_key fits on one line of latin-1")
    return api_key.encode("latin-1")


def _new_socket(address: tuple[Any, ...]) -> socket.socket:
    """Open a socket with the keep-alive probes of OpenAI's own client.

    They keep a NAT's entry alive while a model thinks for minutes.
    """
    family, kind, protocol = address[:3]
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 60)
    return sock
