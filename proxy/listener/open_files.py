"""How many files the process may have open, and so how many connections it can serve.

The usual limit of 1,024 is for programs that use `select`; what the system allows beyond it is a
process's own choice.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Final

WANTED_FILES: Final = 65_536
OTHER_FILES: Final = 128  # the store, the calibrator, the desk, logs
FILES_A_CONNECTION: Final = 2  # the client's, and one to upstream
MOST_CONNECTIONS: Final = 4_096


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
