"""The desk's own listener: a second server in the proxy's process and event loop.

Its application is imported by the first request; until then it is a socket and a timer. It stops
after the proxy's listener, so that replies whose clients wait can still be released.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from calibrator import install_command
from proxy.config.sections import Config
from proxy.config.settings.admin import AdminConfig
from proxy.desk.access.local_token import write_local_token
from proxy.errors import ExitStatus, StartupError
from proxy.gate.host_check import is_loopback
from proxy.generations.generation import Parts
from proxy.generations.reloading import Generations
from proxy.http.listener.server import SecondServer
from proxy.http.listener.sockets import open_socket
from proxy.http.wire.http import Receive, Scope, Send

if TYPE_CHECKING:
    from starlette.routing import Route

    from proxy.desk.access.single_sign_on import SingleSignOn
    from proxy.desk.decisions.desk import Desk

log = structlog.get_logger(__name__)

DEFAULT_PORT = 8_001
BACKLOG: Final = 128  # connections that wait to be accepted
GRACE_S = 3
MOST_CONNECTIONS = 256
SHORTEST_TOKEN = 16  # characters, where other machines can connect


@dataclass(frozen=True, slots=True)
class AdminSocket:
    """The socket of the desk, with the secrets that open it where no token is configured.

    `login_code` opens the desk once; `local_token` is for commands of the same user. Both are None
    where a token is configured.
    """

    listening: socket.socket
    login_code: str | None
    local_token: str | None = None

    @property
    def url(self) -> str:
        """The desk's address without a slash at its end, such as `http://127.0.0.1:4000`."""
        host, port = self.listening.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def greeting(self, *, is_terminal: bool) -> str:
        """Return the line that the start prints about the desk.

        With `is_terminal` it has the one-time login link, if there is one. Otherwise the output may
        be a log that others read. So the link is written to a file of its own, which is removed at
        exit, and the line names it.
        """
        if self.login_code is None:
            return f"  review desk {self.url}"
        link = f"{self.url}/pinocchio/login?token={self.login_code}"
        if is_terminal:
            return f"  review desk {link} (one-time login link)"
        handle, path = tempfile.mkstemp(prefix="pinocchio-login-", text=True)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(f"{link}\n")
        _remove_at_exit(Path(path))
        return f"  review desk {self.url} (one-time login link: in {path}, which only you can read)"


_made: Final[dict[Path, int]] = {}  # files with secrets, and the processes that made them


def _remove_at_exit(file: Path) -> None:
    """Let this process remove a file with a secret when it exits, unlike workers that it forks."""
    if not _made:
        atexit.register(remove_secret_files)
    _made[file] = os.getpid()


def remove_secret_files() -> None:
    """Remove the files with secrets that this process made; call it where a signal will end it."""
    for file, maker in [*_made.items()]:
        if maker == os.getpid():
            file.unlink(missing_ok=True)
            del _made[file]


def check_admin(config: AdminConfig) -> None:
    """Refuse a desk on another address than loopback without a token that is long enough.

    A short token on loopback is logged as a warning, and nothing is checked where the desk is
    disabled. Raises StartupError, also for an unusable `oidc`.
    """
    if not config.enabled:
        return
    if config.oidc is not None:
        _check_oidc(config)
    if is_loopback(config.host):
        if 0 < len(config.token.get_secret_value()) < SHORTEST_TOKEN:
            hint = f"use {SHORTEST_TOKEN} characters or more: openssl rand -hex 32"
            log.warning("admin_token_is_short", hint=hint)
        return
    if 0 < len(config.token.get_secret_value()) < SHORTEST_TOKEN:
        raise StartupError(
            ExitStatus.UNSAFE,
            f"the review desk on {config.host} is reached from other machines, and admin.token "
            f"could be guessed: it needs at least {SHORTEST_TOKEN} characters",
        )
    if not config.has_token:
        raise StartupError(
            ExitStatus.UNSAFE,
            f"the review desk on {config.host} is reached from other machines: set admin.token in "
            "proxy.yaml (or PINOCCHIO_ADMIN_TOKEN, where the file refers to it), or listen on "
            "127.0.0.1",
        )


def _check_oidc(config: AdminConfig) -> None:
    """Refuse `admin.oidc` without a usable `admin.url` or without its libraries.

    The issuer itself is asked later. Raises StartupError.
    """
    if not is_loopback(config.host) and config.url is None:
        raise StartupError(
            ExitStatus.UNUSABLE_INPUT,
            "with admin.oidc, set admin.url to the address under which people reach the desk: "
            "the issuer sends them back there",
        )
    if config.url is not None and not config.url.startswith(("https://", "http://")):
        raise StartupError(ExitStatus.UNUSABLE_INPUT, "admin.url begins with https:// or http://")
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        command = install_command("oidc")
        text = f"admin.oidc needs a library that is not installed: {command}"
        raise StartupError(ExitStatus.UNUSABLE_INPUT, text)


def bind_admin(config: AdminConfig) -> AdminSocket | None:
    """Open the desk's socket and return it, or None where the desk is disabled.

    A port that was set must be free; instead of the default one any free port is used. Without a
    token in the configuration, a login code is made, and on loopback a local token with its file.
    Raises StartupError.
    """
    if not config.enabled:
        return None
    check_admin(config)
    try:
        listening = open_socket(
            config.host, DEFAULT_PORT if config.port is None else config.port, BACKLOG
        )
    except OSError as error:
        if config.port is not None or error.errno != errno.EADDRINUSE:
            raise _cannot_listen(config, error) from error
        listening = open_socket(config.host, 0, BACKLOG)
    if config.has_token:
        return AdminSocket(listening, None)
    token_file = write_local_token(listening.getsockname()[1]) if is_loopback(config.host) else None
    if token_file is not None:
        _remove_at_exit(token_file[1])
    return AdminSocket(listening, secrets.token_urlsafe(32), token_file[0] if token_file else None)


def _cannot_listen(config: AdminConfig, error: OSError) -> StartupError:
    """Return the error for a socket that could not be opened."""
    if error.errno == errno.EADDRINUSE:
        message = f"admin.port {config.port} on {config.host} is taken; choose another, or none"
        return StartupError(ExitStatus.PORT_TAKEN, message)
    message = f"the review desk cannot listen on {config.host}: {error.strerror or error}"
    return StartupError(ExitStatus.UNUSABLE_INPUT, message)


class LinkPagesOf(Protocol):
    """Makes the routes of the pages where a link in a chat message leads."""

    def __call__(self, desk: Desk, on_link: Callable[[str], None]) -> list[Route]: ...


class ListenerApplication(Protocol):
    """The application that the listener serves."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    async def end_streams(self) -> None:
        """End replies that would go on forever."""
        ...

    def close(self) -> None:
        """Release what it holds; call it when no request is answered any more."""
        ...


class DeskServer:
    """The server of the desk's socket; `holder` has the configuration in force.

    `links` makes the pages of links in chat messages, if there are any.
    """

    def __init__(
        self,
        admin: AdminSocket,
        config: Config,
        parts: Parts,
        holder: Generations,
        drain: Callable[[], None],
        links: LinkPagesOf | None = None,
    ) -> None:
        self._drain = drain
        self._links = links
        self._admin = admin
        self._config = config
        self._parts = parts
        self._holder = holder
        self._loading: asyncio.Task[ListenerApplication] | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start serving in a task of the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._server = SecondServer(self._answer, MOST_CONNECTIONS, GRACE_S)
        self._serving = asyncio.create_task(self._server.serve([self._admin.listening]))

    async def stop(self) -> None:
        """End the streams, stop the server, wait until it has ended, and close the store.

        Does nothing if it was not started.
        """
        if self._serving is None:
            return
        self._server.should_exit = True
        application = None if self._loading is None else await self._loading
        if application is not None:
            await application.end_streams()
        await self._serving
        if application is not None:
            application.close()
        self._serving = None

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with the application, which the first request loads on a thread."""
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(self._load))
        application = await asyncio.shield(self._loading)
        await application(scope, receive, send)

    def _load(self) -> ListenerApplication:
        """Make the application; called once, by the first request, on another thread.

        It opens the store, and reads the desk's keys into memory.
        """
        from proxy.desk.access.sessions import Door
        from proxy.desk.application import DeskApplication, drain_route, metrics_route
        from proxy.desk.decisions.desk import Desk, Verdict
        from proxy.desk.feed import Feed
        from proxy.desk.gauges import DecisionCounters, Gauges
        from proxy.store.database.client_keys import KeyStore
        from proxy.store.queue import ReviewQueue
        from proxy.store.reviews.held_replies import HELD, HeldReply

        config, admin = self._config, self._config.admin
        token = admin.token.get_secret_value() or self._admin.local_token or ""
        queue = ReviewQueue(config.store)
        queue.rehearse()
        feed = Feed(queue)

        holder, parts, counters, loop = self._holder, self._parts, DecisionCounters(), self._loop

        def on_decision(held: HeldReply, verdict: Verdict) -> None:
            """Count a decision, and notify waiting clients, other workers and browsers.

            Called on a thread.
            """
            waited_s = time.time() - held.created_at
            if held.state == HELD:  # other people have to approve it too
                loop.call_soon_threadsafe(counters.note_approval, held.queue)
                feed.wake()
                return
            noted = held.queue, verdict.verdict, waited_s
            loop.call_soon_threadsafe(parts.verdicts.wake, held.id)
            if parts.peers is not None:
                parts.peers.tell_others("decided", held.id)
            loop.call_soon_threadsafe(counters.note, *noted)
            feed.wake()

        def on_link(outcome: str) -> None:
            loop.call_soon_threadsafe(counters.note_link, outcome)

        desk = Desk(queue, lambda: holder.current.setup, on_decision, lambda: holder.refusal)
        door = Door(token, self._admin.login_code, KeyStore(config.store))
        door.remember_keys()
        return DeskApplication(
            desk,
            door,
            feed,
            [
                metrics_route(counters, Gauges(desk, parts, holder)),
                drain_route(lambda: loop.call_soon_threadsafe(self._drain)),
                *(self._links(desk, on_link) if self._links else ()),
            ],
            is_loopback=is_loopback(admin.host),
            max_body=config.limits.max_body,
            sign_on=_sign_on(admin),
        )


def _sign_on(config: AdminConfig) -> SingleSignOn | None:
    """Return the login at the configured issuer, or None where the configuration names none."""
    if config.oidc is None:
        return None
    from proxy.desk.access.issuer import Issuer
    from proxy.desk.access.single_sign_on import SingleSignOn

    return SingleSignOn(Issuer(config.oidc), config.url)
