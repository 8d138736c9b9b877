"""The server of the proxy's own port, and how it ends.

On SIGTERM the application says at `/readyz` that it will end, and goes on to answer for `drain_s`
seconds: whoever balances load notices, and connections are closed after their next reply. Then
nobody is let in any more, and what goes on has `grace_s` seconds. Whoever waits for a reviewer
hears where to fetch the reply a few seconds before that time is up. SIGINT, a person's, skips the
first step. A second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Iterator
from types import FrameType
from typing import Protocol

import uvicorn

from proxy.listener.connections import connections_of
from proxy.listener.http_protocol import HttpProtocol
from proxy.wire.http import ASGIApplication

LAST_S = 5.0  # before the end, in which those who wait are told
LAST_SHARE = 0.5  # of a shorter grace


class Application(Protocol):
    """What is served."""

    is_draining: bool

    def drain(self) -> None:
        """Says from now on that it is about to end."""

    def end_waits(self) -> None:
        """Lets nobody wait for a reviewer any longer."""


class Server(uvicorn.Server):
    """Lets what goes on come to its end."""

    def __init__(
        self, settings: uvicorn.Config, application: Application, drain_s: float = 0
    ) -> None:
        super().__init__(settings)
        self._application = application
        self._drain_s = drain_s
        self._leaves_at: float | None = None  # by time.monotonic, once a signal has come

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Notes a signal: the event loop acts on it, a tenth of a second later at most."""
        if self._leaves_at is not None:
            self._leaves_at = 0.0
            self.force_exit = True
        else:
            wait_s = self._drain_s if sig == signal.SIGTERM else 0.0
            self._leaves_at = time.monotonic() + wait_s
        self._captured_signals.append(sig)

    async def on_tick(self, counter: int) -> bool:
        """Whether it is time to end."""
        if self._leaves_at is not None:
            self._application.drain()
            self.should_exit = self.should_exit or time.monotonic() >= self._leaves_at
        if self._application.is_draining:  # somebody may have asked it to, at the desk
            connections_of(self.server_state, self.config.limit_concurrency).is_draining = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends what goes on, in `grace_s`; at once after a second signal."""
        self._application.drain()
        grace_s = self.config.timeout_graceful_shutdown or 0
        wait_s = max(grace_s - LAST_S, grace_s * (1 - LAST_SHARE))
        telling = asyncio.get_running_loop().call_later(wait_s, self._application.end_waits)
        try:
            await super().shutdown(sockets)
        finally:
            telling.cancel()


class SecondServer(uvicorn.Server):
    """Serves beside the proxy's own server, and leaves the process's signals to that one."""

    def __init__(self, application: ASGIApplication, most_connections: int, grace_s: int) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                interface="asgi3",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=grace_s,
                limit_concurrency=most_connections,
                http=HttpProtocol,
                ws="none",
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
