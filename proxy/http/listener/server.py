"""The server of the proxy's own port, and how it ends.

On SIGTERM the application reports at `/readyz` that it will end, and goes on answering for
`drain_s` seconds. Load balancers notice, and connections are closed after their next reply. Then no
new connection is accepted, and requests in progress have `grace_s` seconds. Clients that wait for a
reviewer are told a few seconds before that time is up where they can fetch the reply. SIGINT, sent
by a person, skips the first step. A second signal ends the process at once. SIGHUP says that the
terminal was closed, or asks for a reload.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from types import FrameType
from typing import Protocol

import uvicorn

from proxy.http.listener.connections import connections_of
from proxy.http.listener.http_protocol import HttpProtocol
from proxy.http.wire.http import ASGIApplication

LAST_S = 5.0  # seconds before the end at which clients that wait for a reviewer get an answer
LAST_SHARE = 0.5  # of the grace, where that is shorter


class Application(Protocol):
    """The application that is served."""

    is_draining: bool

    def drain(self) -> None:
        """Report from now on that it is about to end."""

    def end_waits(self) -> None:
        """End all waits for reviewers."""


class Server(uvicorn.Server):
    """A uvicorn server that lets requests in progress finish."""

    def __init__(
        self, settings: uvicorn.Config, application: Application, drain_s: float = 0
    ) -> None:
        """Create a server; on SIGTERM it reports draining for `drain_s` seconds before it ends."""
        super().__init__(settings)
        self._application = application
        self._drain_s = drain_s
        self._leaves_at: float | None = None  # by time.monotonic, once a signal has come

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note a signal and when to end: at once, or after `drain_s` for SIGTERM.

        The event loop acts on it within a tenth of a second. A second signal breaks off requests in
        progress.
        """
        if self._leaves_at is not None:
            self._leaves_at = 0.0
            self.force_exit = True
        else:
            wait_s = self._drain_s if sig == signal.SIGTERM else 0.0
            self._leaves_at = time.monotonic() + wait_s
        self._captured_signals.append(sig)

    async def on_tick(self, counter: int) -> bool:
        """Tell the application to drain once a signal came, and return whether to end now.

        uvicorn calls this ten times a second. Connections of a draining application are closed
        after their next reply.
        """
        if self._leaves_at is not None:
            self._application.drain()
            self.should_exit = self.should_exit or time.monotonic() >= self._leaves_at
        if self._application.is_draining:  # also where somebody asked for it at the desk
            connections_of(self.server_state, self.config.limit_concurrency).is_draining = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish the requests in progress within `grace_s`, or at once after a second signal.

        Shortly before that time is over, clients that wait for reviewers get their answer.
        """
        self._application.drain()
        grace_s = self.config.timeout_graceful_shutdown or 0
        wait_s = max(grace_s - LAST_S, grace_s * (1 - LAST_SHARE))
        timer = asyncio.get_running_loop().call_later(wait_s, self._application.end_waits)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()


class Terminal:
    """The terminal of this process's standard streams, if they have one."""

    def __init__(self) -> None:
        self._fd = next((fd for fd in (0, 1, 2) if _is_terminal(fd)), None)

    def is_closed(self) -> bool:
        """Return whether the process began at a terminal that is gone now."""
        return self._fd is not None and not _is_terminal(self._fd)


def _is_terminal(fd: int) -> bool:
    """Return whether a file descriptor is an open terminal."""
    try:
        return os.isatty(fd)
    except OSError:
        return False


class SecondServer(uvicorn.Server):
    """A server beside the proxy's own, which leaves the process's signals to that one."""

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
        """Leave the process's signals to the proxy's own server."""
        yield
