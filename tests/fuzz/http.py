"""A fuzzer of requests: our server, nginx and h11 must read the same bytes alike.

A stream of bytes goes to all three, and each returns the requests that it found, with their bodies.
Ours may refuse requests that the others accept. A finding is a request that ours reads in another
way than one of them, or one that neither of them reads at all.
"""

from __future__ import annotations

import random
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import h11

from proxy.http.listener.http_protocol import HttpProtocol
from tests.fuzz.fuzzing import Case
from tests.fuzz.http_requests import one_stream, pieces
from tests.proxy.http.listener.http_recorder import Recorder, Seen, connect, serving
from tests.running.nginx import Nginx

SILENT_S, SURELY_SILENT_S = 0.03, 1.0  # silence for so long means that nothing more follows


@contextmanager
def cases(http: Any = HttpProtocol) -> Iterator[Case]:
    """Open the servers; with `http`, ours uses this protocol instead of its own."""
    recorder = Recorder()
    with Nginx() as nginx, serving(recorder, http=http) as port:

        def ours(sent: list[bytes], patience_s: float) -> list[Seen]:
            return _read_by(port, recorder.seen_of, sent, patience_s)

        def theirs(sent: list[bytes], patience_s: float) -> list[Seen]:
            return _read_by(nginx.port, nginx.seen_of, sent, patience_s)

        yield lambda chance: _case(chance, ours, theirs)


Reader = Callable[[list[bytes], float], list[Seen]]


def _case(chance: random.Random, ours: Reader, theirs: Reader) -> str:
    stream = one_stream(chance)
    sent = pieces(chance, stream)
    by_h11 = read_by_h11(stream)
    found, by_nginx = ours(sent, SILENT_S), theirs([stream], SILENT_S)
    problem = _difference(found, by_nginx, by_h11)
    if problem is not None:  # perhaps one of them was slow
        found, by_nginx = ours(sent, SURELY_SILENT_S), theirs([stream], SURELY_SILENT_S)
        problem = _difference(found, by_nginx, by_h11)
    assert problem is None, (
        f"{problem}\nsent  {stream!r}\nours  {found!r}\nnginx {by_nginx!r}\nh11   {by_h11!r}"
    )
    if found == by_nginx == by_h11:
        return "read alike" if found else "refused by all"
    fewest = len(found) <= min(len(by_nginx), len(by_h11))
    return "ours stopped first" if fewest else "another stopped first"


def _difference(ours: list[Seen], nginx: list[Seen], h11: list[Seen]) -> str | None:
    for name, theirs in (("nginx", nginx), ("h11", h11)):
        for number, (a, b) in enumerate(zip(ours, theirs, strict=False)):
            if a != b:
                return f"request {number} is read differently by {name}"
    if len(ours) > max(len(nginx), len(h11)):
        return f"only ours reads request {max(len(nginx), len(h11))}"
    return None


def _read_by(
    port: int, seen_of: dict[int, list[Seen]], sent: list[bytes], patience_s: float
) -> list[Seen]:
    """Return the requests that a server has recorded once it hangs up or falls silent."""
    with connect(port) as sock:
        own_port = sock.getsockname()[1]
        seen_of.pop(own_port, None)
        for piece in sent:
            try:
                sock.sendall(piece)
            except OSError:
                break  # it has hung up already
            if len(sent) > 1:
                time.sleep(0.0005)
        _listen(sock, patience_s)
    return seen_of.pop(own_port, [])


def _listen(sock: socket.socket, patience_s: float) -> None:
    try:
        while select.select([sock], [], [], patience_s)[0] and sock.recv(2**16):
            pass
    except OSError:
        return


def read_by_h11(stream: bytes) -> list[Seen]:
    """Return the requests that h11 reads before it refuses to go on, or waits for more.

    Each gets its own connection, without line ends before it, which the other servers skip.
    """
    seen: list[Seen] = []
    while stream := stream.lstrip(b"\r\n"):
        server = h11.Connection(h11.SERVER)
        server.receive_data(stream)
        try:
            if (found := _request(server)) is None:
                break
            seen.append(found)
            server.send(h11.Response(status_code=200, headers=[(b"content-length", b"0")]))
            server.send(h11.EndOfMessage())
        except h11.ProtocolError:
            break
        if server.our_state is h11.MUST_CLOSE:
            break
        stream = bytes(server.trailing_data[0])
    return seen


def _request(server: h11.Connection) -> Seen | None:
    """Return the next request, or None if it is incomplete."""
    request, body = None, b""
    while True:
        event = server.next_event()
        if isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage) and request is not None:
            return request.method.decode(), _path(request.target), body
        else:
            return None


def _path(target: bytes) -> bytes:
    """Return the path of a target, which may have a host; the upstreams see only the path."""
    if not target.lower().startswith((b"http://", b"https://")):
        return target
    return b"/" + target.split(b"/", 3)[3] if target.count(b"/") > 2 else b"/"
