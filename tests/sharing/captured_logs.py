"""Log lines for tests of programs whose threads log at any time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from structlog.testing import LogCapture
from structlog.types import EventDict


@contextmanager
def capture_logs() -> Iterator[list[EventDict]]:
    """Yield a list that collects all log lines while the context lasts, in place of printing them.

    `structlog.testing.capture_logs` empties the list of processors for a moment, and a thread that
    logs in that moment fails. Here each processor is replaced by one that collects the line, so a
    thread in the midst of the list finds one as well.
    """
    capture = LogCapture()
    processors = structlog.get_config()["processors"]
    before = processors.copy()
    processors[:] = [capture] * len(before)
    try:
        yield capture.entries
    finally:
        processors[:] = before
