"""The number of files that the process may open, and of connections that it can serve.

The usual limit of 1,024 is meant for programs that use `select`; a process may raise it itself up
to the system's hard limit.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any, Final

import structlog

log = structlog.get_logger(__name__)

WANTED_FILES: Final = 65_536
OTHER_FILES: Final = 128  # of the store, the calibrator, the desk and logs
FILES_A_CONNECTION: Final = 2  # the client's socket, and one to the upstream
MOST_CONNECTIONS: Final = 4_096
FEW_FILES: Final = 8
LOG_EVERY_S: Final = 10.0


def raise_file_limit() -> int:
    """Raise the process's limit of open files to WANTED_FILES if allowed, and return the limit."""
    if sys.platform == "win32":
        return WANTED_FILES
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return WANTED_FILES if soft == resource.RLIM_INFINITY else soft
    with suppress(OSError, ValueError):  # a sandbox may forbid it
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def connections_for(files: int) -> int:
    """Return how many clients may be connected where `files` files may be open."""
    return max(1, min(MOST_CONNECTIONS, (files - OTHER_FILES) // FILES_A_CONNECTION))


class FileWatch:
    """Logs a warning when few files are left, at most every `LOG_EVERY_S`.

    Without a free file the kernel keeps connections waiting, and this process does not notice them.
    """

    def __init__(self) -> None:
        self._logged_at = -LOG_EVERY_S

    def note(self, connection: Any) -> None:
        """Log a warning if a new connection's file number is near the limit of open files.

        Warns at most every `LOG_EVERY_S` seconds, and never on Windows or without a limit.
        """
        if sys.platform == "win32" or (sock := connection.get_extra_info("socket")) is None:
            return
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit == resource.RLIM_INFINITY or sock.fileno() < limit - FEW_FILES:
            return
        if time.monotonic() - self._logged_at >= LOG_EVERY_S:
            self._logged_at = time.monotonic()
            log.warning("files_run_out", limit=limit, hint="raise LimitNOFILE, or ulimit -n")
