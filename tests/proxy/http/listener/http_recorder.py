"""Our HTTP server around an application that records what reaches it.

`serving` runs it as `pinocchio serve` does, on a socket of its own.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from proxy.http.listener.http_protocol import HttpProtocol
from proxy.http.listener.websocket_settings import websocket_settings
from proxy.http.wire.http import CLIENT
from tests.running.served import Served

Seen = tuple[str, bytes, bytes]
"""Method, target and body of a request."""


@dataclass
class Recorder:
    """An ASGI application; answers 200 once it has read the body."""

    seen: list[Seen] = field(default_factory=list)
    seen_of: defaultdict[int, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    """The same by the port of the client."""
    fields: list[tuple[bytes, bytes]] = field(default_factory=list)  # of the last request
    is_known: bool = False  # whether each client counts as one that may come in
    has_key: bool = False  # and came with a key
    status: int = 200

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        client = scope.pop(CLIENT, None)
        if (self.is_known or self.has_key) and client is not None:
            client.note_known(self.has_key)
        if scope["type"] == "websocket":
            self.seen.append(("websocket", scope["raw_path"], b""))
            await receive()
            await send({"type": "websocket.close"})
            return
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            if not message["more_body"]:
                break
        query = scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        self.seen.append((scope["method"], target, body))
        self.seen_of[scope["client"][1]].append(self.seen[-1])
        self.fields = scope["headers"]
        length = (b"content-length", b"2")
        await send({"type": "http.response.start", "status": self.status, "headers": [length]})
        await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def serving(app: Any, **more: Any) -> Iterator[int]:
    """Serve the application and yield the server's port."""
    settings: Any = {"log_config": None, "lifespan": "off", "server_header": False}
    settings |= {"http": HttpProtocol, "date_header": False, **websocket_settings(2**20)}
    settings |= {"loop": "asyncio"}
    with Served(uvicorn.Config(app, **(settings | more)), backlog=1_024) as served:
        yield served.port


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def everything(sock: socket.socket) -> bytes:
    """Return all that arrives until the server closes, by a reset too."""
    parts = []
    try:
        while part := sock.recv(2**20):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)
