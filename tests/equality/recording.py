"""Both ends of the equality suite, on bare sockets: nothing is decoded, added or put in order.

    with RecordingUpstream() as upstream:
        upstream.reply = Reply(writes=(b'{"a":', b"1.0}"))
        reply = ask(upstream.port, Sent("POST", "/v1/x", body=b"{}"))

`RecordingUpstream` answers every request with its `reply` and keeps the requests; `Connection` is a
client that sends the given bytes and reads one reply. Header names come in lower case.
"""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from dataclasses import dataclass, field
from typing import Literal

Field = tuple[bytes, bytes]
Framing = Literal["length", "chunked", "close", "none"]

PING = "/v1/models/ping"  # answered by itself and not recorded: is the connection still in order?
PONG = b'{"pong":true}'
SILENCE_S = 60  # longer than anything takes, even on a busy machine
WITHOUT_BODY = (204, 304)
JSON: Field = (b"Content-Type", b"application/json")


@dataclass(frozen=True)
class Sent:
    """A request as it is sent; `Host` is added where `headers` have none."""

    method: str
    target: str
    headers: tuple[Field, ...] = ()
    body: bytes = b""
    framing: Framing = "length"
    version: str = "HTTP/1.1"

    def head(self, port: int) -> bytes:
        first = f"{self.method} {self.target} {self.version}".encode()
        fields: list[Field] = [(b"Host", b"127.0.0.1:%d" % port), *self.headers]
        if self.framing == "chunked":
            fields.append((b"Transfer-Encoding", b"chunked"))
        elif self.framing == "length" and (self.body or self.method in ("POST", "PUT", "PATCH")):
            fields.append((b"Content-Length", b"%d" % len(self.body)))
        return _lines(first, fields)


@dataclass(frozen=True)
class Reply:
    """A reply as it is sent: its body in these TCP writes.

    After each write it waits for `pause_s`. `interim` comes before the head and `after` behind the
    body; without a pause the whole reply is one write. With `length` a Content-Length is added
    where `headers` have none.
    """

    writes: tuple[bytes, ...] = ()
    status: int = 200
    headers: tuple[Field, ...] = (JSON,)
    framing: Framing = "length"
    pause_s: float = 0.0
    interim: bytes = b""
    after: bytes = b""
    version: bytes = b"HTTP/1.1"

    @property
    def body(self) -> bytes:
        return b"".join(self.writes)

    def head(self) -> bytes:
        fields = list(self.headers)
        names = {name.lower() for name, _ in fields}
        if self.framing == "chunked":
            fields.append((b"Transfer-Encoding", b"chunked"))
        elif self.framing == "close":
            fields.append((b"Connection", b"close"))
        elif self.framing == "length" and b"content-length" not in names:
            fields.append((b"Content-Length", b"%d" % len(self.body)))
        return _lines(b"%b %d Told" % (self.version, self.status), fields)


def _lines(first: bytes, fields: list[Field]) -> bytes:
    return b"\r\n".join([first, *(b"%b: %b" % field for field in fields), b"", b""])


@dataclass(frozen=True)
class Message:
    """What arrived: the start line, the fields in their order, the body without its framing."""

    start: bytes
    headers: tuple[Field, ...]
    body: bytes = b""
    framing: Framing = "none"

    @property
    def status(self) -> int:
        return int(self.start.split()[1])

    @property
    def method(self) -> bytes:
        return self.start.split()[0]

    @property
    def target(self) -> bytes:
        return self.start.split()[1]

    def header(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.headers if key == name), None)


class BrokenOffError(Exception):
    """The other side closed the connection in the middle of a message."""


class _Wire:
    """Reads messages from a socket, one after the other."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.rest = b""

    def _more(self) -> bool:
        try:
            part = self.connection.recv(2**18)
        except ConnectionError:
            part = b""
        self.rest += part
        return bool(part)

    def _until(self, end: bytes) -> bytes:
        while end not in self.rest:
            if not self._more():
                raise BrokenOffError(self.rest[:200])
        found, _, self.rest = self.rest.partition(end)
        return found

    def _exactly(self, size: int) -> bytes:
        parts, missing = [self.rest[:size]], size - len(self.rest)
        self.rest = self.rest[size:]
        while missing > 0:
            part = self.connection.recv(min(missing, 2**18))
            if not part:
                raise BrokenOffError(f"{missing} of {size} bytes are missing")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def head(self) -> Message:
        first, *lines = self._until(b"\r\n\r\n").split(b"\r\n")
        pairs = (line.partition(b":") for line in lines)
        return Message(first, tuple((name.lower(), value.strip()) for name, _, value in pairs))

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self._until(b"\r\n").split(b";")[0], 16):
            parts.append(self._exactly(size))
            assert self._exactly(2) == b"\r\n"
        while self._until(b"\r\n"):  # trailers
            pass
        return b"".join(parts)

    def body_of(self, head: Message, *, is_reply: bool) -> tuple[bytes, Framing]:
        if b"chunked" in (head.header(b"transfer-encoding") or b""):
            return self._chunks(), "chunked"
        if (length := head.header(b"content-length")) is not None:
            return self._exactly(int(length)), "length"
        if not is_reply:
            return b"", "none"
        while self._more():
            pass
        rest, self.rest = self.rest, b""
        return rest, "close"

    def with_body(self, head: Message, *, is_reply: bool) -> Message:
        body, framing = self.body_of(head, is_reply=is_reply)
        return Message(head.start, head.headers, body, framing)


# The client


class Connection:
    """One connection of a client; a context that closes it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket = socket.create_connection(("127.0.0.1", port), SILENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wire = _Wire(self._socket)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, sent: Sent) -> Message:
        """Send one request and read its reply; raise BrokenOffError if it breaks off."""
        waits = any(name.lower() == b"expect" for name, _ in sent.headers)
        self._socket.sendall(sent.head(self._port))
        if waits:
            assert self._wire.head().status == 100
        self._socket.sendall(_framed(sent))
        return self.read(sent.method)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self, method: str = "GET") -> Message:
        """Return the next reply that is not an interim one."""
        while (head := self._wire.head()).status < 200:
            pass
        if method == "HEAD" or head.status in WITHOUT_BODY:
            return head
        return self._wire.with_body(head, is_reply=True)

    def is_in_order(self) -> bool:
        """Whether another request on the same connection gets its own reply, and all of it."""
        return self._wire.rest == b"" and self.ask(Sent("GET", PING)).body == PONG


def _framed(sent: Sent) -> bytes:
    if sent.framing != "chunked":
        return sent.body
    middle = len(sent.body) // 2
    parts = [part for part in (sent.body[:middle], sent.body[middle:]) if part]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def ask(port: int, sent: Sent) -> Message:
    """Send one request on a connection of its own; return the reply."""
    with Connection(port) as connection:
        return connection.ask(sent)


# The upstream


class _Handler(socketserver.BaseRequestHandler):
    """One connection, on which request after request is answered."""

    server: _Server

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire = _Wire(self.request)
        try:
            while self._answer(wire):
                pass
        except (BrokenOffError, OSError):
            pass  # the client has disconnected

    def _answer(self, wire: _Wire) -> bool:
        """Answer one request; return whether the connection stays open."""
        head = wire.head()
        if head.header(b"expect"):
            self.request.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        request = wire.with_body(head, is_reply=False)
        if request.target.decode().endswith(PING.removeprefix("/v1")):
            return self._play(Reply((PONG,)), request)
        upstream = self.server.upstream
        with upstream._lock:
            upstream._requests.append(request)
        try:
            return self._play(upstream.reply, request)
        finally:
            with upstream._lock:
                upstream.played += 1

    def _play(self, reply: Reply, request: Message) -> bool:
        if reply.after and not reply.pause_s:
            self.request.sendall(reply.head() + reply.body + reply.after)
            return True
        self.request.sendall(reply.interim + reply.head())
        if request.method != b"HEAD" and reply.status not in WITHOUT_BODY:
            for write in filter(None, reply.writes):
                chunk = b"%x\r\n%b\r\n" % (len(write), write)
                self.request.sendall(chunk if reply.framing == "chunked" else write)
                time.sleep(reply.pause_s)
            if reply.framing == "chunked":
                self.request.sendall(b"0\r\n\r\n")
        if reply.after:
            time.sleep(reply.pause_s)
            self.request.sendall(reply.after)
        return reply.framing != "close"


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, upstream: RecordingUpstream) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream


@dataclass
class RecordingUpstream:
    """Serves on its own thread while it is a context; `take` returns the requests.

    `played` counts the replies that have been sent with everything that follows them.
    """

    reply: Reply = Reply()
    played: int = field(default=0, init=False)
    _requests: list[Message] = field(default_factory=list, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __enter__(self) -> RecordingUpstream:
        self._server = _Server(self)
        thread = threading.Thread(target=self._server.serve_forever, args=[0.05], daemon=True)
        thread.start()
        self._thread = thread
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def wait_until_played(self, count: int) -> None:
        """Wait until `count` replies are sent; fail if they are not within `SILENCE_S`."""
        deadline = time.monotonic() + SILENCE_S
        while self.played < count:
            assert time.monotonic() < deadline, "the reply was never played to its end"
            time.sleep(0.001)

    def take(self) -> list[Message]:
        """Return the requests since the last call, as they arrived."""
        with self._lock:
            taken, self._requests = self._requests, []
        return taken
