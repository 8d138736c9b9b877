"""Applications on real servers on loopback, each on a thread of its own while its context lasts."""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Self

import uvicorn

Json = dict[str, Any]
Receive = Callable[[], Awaitable[Json]]
Send = Callable[[Json], Awaitable[None]]

END_TIMEOUT_S = 30


class Served:
    """A server with these settings."""

    def __init__(self, settings: uvicorn.Config, port: int = 0, *, backlog: int = 128) -> None:
        self._listening = socket.create_server(("127.0.0.1", port), backlog=backlog)
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._server = uvicorn.Server(settings)
        run = {"sockets": [self._listening]}
        self._thread = threading.Thread(target=self._server.run, kwargs=run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(END_TIMEOUT_S)
        self._listening.close()


class ServedUpstream(ABC):
    """An upstream whose `_app` answers at `base_url`."""

    def __enter__(self) -> Self:
        settings = uvicorn.Config(
            self._app, interface="asgi3", lifespan="off", log_config=None, access_log=False
        )
        self._served = Served(settings).__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._served.__exit__()

    @property
    def base_url(self) -> str:
        return f"{self._served.url}/v1"

    @abstractmethod
    async def _app(self, scope: Json, receive: Receive, send: Send) -> None:
        """Answer one request, as an ASGI application does."""


async def body_of(receive: Receive) -> bytes:
    """Return the whole body of a request."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body
