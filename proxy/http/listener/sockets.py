"""The socket and the settings of a server, and the memory of its process."""

from __future__ import annotations

import ctypes
import errno
import gc
import socket
import sys
from contextlib import suppress
from math import ceil
from typing import Protocol

import uvicorn

from proxy.errors import ExitStatus, StartupError
from proxy.http.listener.http_protocol import HttpProtocol
from proxy.http.listener.open_files import connections_for, raise_file_limit
from proxy.http.listener.websocket_settings import websocket_settings
from proxy.http.wire.http import ASGIApplication

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
KEPT_BYTES = 2**25
SWITCH_S = 0.001  # the event loop's wait for a busy thread, several times in each request
GC_THRESHOLDS = (
    50_000,
    20,
    50,
)  # no request leaves a cycle: tests/proxy/http/listener/test_garbage.py


def open_socket(host: str, port: int, backlog: int) -> socket.socket:
    """Return a TCP socket that listens on a host and port; 0 as port takes a free one.

    `backlog` is how many connections may wait to be accepted. Raises OSError where the address is
    taken or unusable, also for a host that is no name (`é..b`) or a port above 65535.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(backlog)
    except (OverflowError, TypeError, UnicodeError) as error:
        listening.close()
        raise OSError(errno.EINVAL, str(error)) from error
    except OSError:
        listening.close()
        raise
    return listening


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; raises StartupError where the address is taken or unusable."""
    try:
        return open_socket(host, port, 2_048)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} on {host} is taken; choose another with --port"
            raise StartupError(ExitStatus.PORT_TAKEN, message) from error
        raise StartupError(
            ExitStatus.UNUSABLE_INPUT, f"cannot listen on {host}:{port}: {error.strerror}"
        ) from error


class Limits(Protocol):
    """The limits of a server: connections, bytes of a body, and seconds until it has ended."""

    @property
    def max_connections(self) -> int | None: ...

    @property
    def max_body(self) -> int: ...

    @property
    def grace_s(self) -> int: ...


def server_settings(
    app: ASGIApplication, limits: Limits, grace_s: int | None = None, share: int = 1
) -> uvicorn.Config:
    """Return uvicorn's settings: it adds no header, no log line and no limit of its own.

    `share` workers divide the configured connections among them. `grace_s` replaces the configured
    time; None keeps it.
    """
    most = limits.max_connections
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=False,
        timeout_graceful_shutdown=limits.grace_s if grace_s is None else grace_s,
        limit_concurrency=ceil(most / share) if most else connections_for(raise_file_limit()),
        http=HttpProtocol,
        **websocket_settings(limits.max_body),
    )


def settle_memory() -> None:
    """Freeze all loaded objects, so that garbage collection skips them, and tune the process.

    Its collections become rarer, its threads switch faster, and glibc keeps freed memory.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_S)
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next large body instead of giving it to the kernel.

    Giving it back costs more than the copying: a reply of 1 MB takes a fifth less CPU without.
    """
    with suppress(OSError, AttributeError, TypeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def url_of(host: str, port: int) -> str:
    """Return the base URL of the API at an address, such as `http://[::1]:8000/v1`."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
