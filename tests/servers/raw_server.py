r"""A server that plays a script, byte by byte: what no HTTP library would let a test send.

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\n", b"content-length: 0\r\n\r\n")

    with RawServer(script) as server:
        ...

Each connection runs the script on a thread of its own, so that nothing it does (blocking, waiting
for the client to leave) shares an event loop with what is tested. The connection is closed when the
script returns.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

PATIENCE_S = 5


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    head: bytes
    body: bytes

    @property
    def line(self) -> bytes:
        return self.head.partition(b"\r\n")[0]

    @property
    def fields(self) -> list[bytes]:
        return self.head.removesuffix(b"\r\n\r\n").split(b"\r\n")[1:]


class Peer:
    """The server's end of one connection; `number` counts the connections from 0."""

    def __init__(self, sock: socket.socket, server: RawServer, number: int) -> None:
        self.sock = sock
        self.number = number
        self._server = server
        self._rest = b""

    def head(self) -> bytes:
        """Return the next request's head, without reading its body; empty if the client is gone."""
        while b"\r\n\r\n" not in self._rest:
            if not (data := self.sock.recv(65536)):
                return b""
            self._rest += data
        end = self._rest.index(b"\r\n\r\n") + 4
        head, self._rest = self._rest[:end], self._rest[end:]
        return head

    def request(self) -> Seen | None:
        """Return the next request, whole, or None if the client is gone."""
        if not (head := self.head()):
            return None
        lengths = [line for line in head.split(b"\r\n") if line.startswith(b"content-length: ")]
        length = int(lengths[0].split()[1]) if lengths else 0
        parts = [self._rest]
        while (size := sum(map(len, parts))) < length:
            if not (data := self.sock.recv(min(2**18, length - size))):
                return None
            parts.append(data)
        whole = b"".join(parts)
        self._rest = whole[length:]
        seen = Seen(head, whole[:length])
        self._server.requests.append(seen)
        return seen

    def send(self, *pieces: bytes, pause_s: float = 0) -> None:
        """Send each piece with a write of its own."""
        for piece in pieces:
            self.sock.sendall(piece)
            time.sleep(pause_s)

    def send_for_ever(self, piece: bytes) -> int:
        """Send until the client is gone; return how many bytes the system took."""
        sent = 0
        try:
            while True:
                self.sock.sendall(piece)
                sent += len(piece)
        except OSError:
            return sent

    def finish_writing(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close with RST, as a crash or a firewall does."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def is_left_within(self, seconds: float) -> bool:
        """Return whether the client closes the connection in time; read what it sends before."""
        self.sock.settimeout(seconds)
        try:
            while self.sock.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True


Script = Callable[[Peer], None]


class RawServer:
    """Listens on loopback while its context lasts; a script that fails makes the context fail."""

    def __init__(
        self, script: Script, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> None:
        self.requests: list[Seen] = []
        self.connections = 0
        self._script = script
        self._tls = tls
        self._failures: list[Exception] = []
        self._peers: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=512)
        self.port: int = self._listener.getsockname()[1]
        authority = f"[{host}]" if ":" in host else host
        self.base_url = f"{'https' if tls else 'http'}://{authority}:{self.port}/v1"

    def __enter__(self) -> RawServer:
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # this ends accept()
        self._listener.close()
        self._accepting.join(PATIENCE_S)
        for sock in self._peers:
            with contextlib.suppress(OSError):  # it may be closed already
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a script does not end"
        if self._failures and kind is None:
            raise self._failures[0]

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers.append(sock)
            thread = threading.Thread(target=self._play, args=(sock, self.connections), daemon=True)
            self.connections += 1
            self._threads.append(thread)
            thread.start()

    def _play(self, sock: socket.socket, number: int) -> None:
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, True, do_handshake_on_connect=False)
                self._peers.append(sock)  # the other one has lost its descriptor to it
                sock.do_handshake()
            self._script(Peer(sock, self, number))
        except OSError:
            pass  # the client left, as many tests want it to
        except Exception as error:
            self._failures.append(error)
        finally:
            sock.close()
