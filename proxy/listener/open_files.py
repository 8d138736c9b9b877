"""How many files the process may have open, and so how many connections it can serve.

The usual limit of 1,024 is for programs that use `select`; what the system allows beyond it is a
process's own choice.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any, Final

import structlog

log = structlog.get_logger(__name__)

WANTED_FILES: Final = 65_536
OTHER_FILES: Final = 128  # the store, the calibrator, the desk, logs
FILES_A_CONNECTION: Final = 2  # the client's, and one to upstream
MOST_CONNECTIONS: Final = 4_096
FEW_FILES: Final = 8
TELL_EVERY_S: Final = 10.0


def raise_file_limit() -> int:
    """Lets the process open as many files as it can use; returns how many it may."""
    if sys.platform == "win32":
        return WANTED_FILES
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return WANTED_FILES if soft == resource.RLIM_INFINITY else soft
    with suppress(OSError, ValueError):  # a sandbox
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def connections_for(files: int) -> int:
    """How many clients may be connected where so many files may be open."""
    return max(1, min(MOST_CONNECTIONS, (files - OTHER_FILES) // FILES_A_CONNECTION))


class FileWatch:
    """Says when nearly as many files are open as may be, at most every `TELL_EVERY_S`.

    Without a free one the kernel has connections wait, and this process hears of none.
    """

    def __init__(self) -> None:
        self._told_at = -TELL_EVERY_S

    def note(self, connection: Any) -> None:
        """Looks at the number of a new connection's file: numbers are the lowest that are free."""
        if sys.platform == "win32" or (its := connection.get_extra_info("socket")) is None:
            return
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit == resource.RLIM_INFINITY or its.fileno() < limit - FEW_FILES:
            return
        if time.monotonic() - self._told_at >= TELL_EVERY_S:
            self._told_at = time.monotonic()
            log.warning("files_run_out", limit=limit, hint="raise LimitNOFILE, or ulimit -n")
