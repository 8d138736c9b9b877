"""A request leaves nothing behind that only the garbage collector finds.

Objects that keep each other wait for a collection, which then stops all requests while it frees
them; a flood of such requests would make others wait.
"""

from __future__ import annotations

import gc
import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.running.live_proxy import LiveProxy

REQUESTS = 3
HOST = b"host: localhost\r\n"
OURS = ("proxy.", "policies.", "calibrator.", "uvloop.")
OF_THREADS = "proxy.store."  # databases are opened and closed at times of their own
OF_SERVERS = ("proxy.http.listener.connections.Connections", "proxy.http.wire.outlet.Bursts")
LONGEST_S = 10


def posted(model: str, **fields: Any) -> bytes:
    asked = {"model": model, "messages": [{"role": "user", "content": "p=0.7"}], **fields}
    return with_body(json.dumps(asked).encode())


def with_body(body: bytes, path: bytes = b"/v1/chat/completions", fields: bytes = HOST) -> bytes:
    head = b"POST %b HTTP/1.1\r\n%bconnection: close\r\ncontent-length: %d\r\n\r\n"
    return head % (path, fields, len(body)) + body


REQUEST_OF = {
    "a completion": posted("ok"),
    "a stream": posted("ok", stream=True),
    "a relayed path": with_body(b"{}", b"/v1/embeddings"),
    "no JSON": with_body(b"{x}"),
    "no such place": b"GET /nothing HTTP/1.1\r\n%bconnection: close\r\n\r\n" % HOST,
    "another host": with_body(b"{}", fields=b"host: example.com\r\n"),
    "too large": b"POST /v1/chat/completions HTTP/1.1\r\n%bconnection: close\r\n"
    b"content-length: 99999999999\r\n\r\n" % HOST,
    "no HTTP": b"POST /v1/chat completions HTTP/1.1\r\n\r\n",
    "upstream breaks off": posted("cut"),
    "upstream breaks a stream off": posted("cut", stream=True),
    "upstream fails": posted("status-500"),
    "the client leaves": posted("slow"),
}


@contextmanager
def collected_by_hand() -> Iterator[list[Any]]:
    """Yield a list that gets the objects found unreachable after the block."""
    gc.collect()
    found: list[Any] = []
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def exchange(proxy: LiveProxy, request: bytes, *, leaves: bool) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=LONGEST_S) as client:
        client.sendall(request)
        if leaves:
            time.sleep(0.05)
            return
        while client.recv(65_536):
            pass


@pytest.mark.parametrize("kind", REQUEST_OF)
def test_no_request_leaves_what_keeps_itself(proxy: LiveProxy, kind: str) -> None:
    """No kind of request leaves objects of ours that refer to each other."""
    connections = proxy._server.server_state.connections
    exchange(proxy, REQUEST_OF[kind], leaves=kind == "the client leaves")
    with collected_by_hand() as garbage:
        for _ in range(REQUESTS):
            exchange(proxy, REQUEST_OF[kind], leaves=kind == "the client leaves")
        until = time.monotonic() + LONGEST_S
        while connections and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.2)  # for what ends after the connection

    kinds = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in garbage)
    ours = {name for name in kinds if name.startswith(OURS) and not name.startswith(OF_THREADS)}
    # A server has one of these; one that has ended may be found now, but not at every request.
    ours -= {name for name in OF_SERVERS if kinds[name] < REQUESTS}
    assert not {name: kinds[name] for name in ours}
