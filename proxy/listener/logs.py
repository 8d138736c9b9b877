"""Log lines: JSON for machines, readable on a terminal. No message text, no key ever gets here."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog


def configure_logs(level: str = "info") -> None:
    """Sends structlog's lines to stderr; other libraries only say warnings."""
    is_terminal = sys.stderr.isatty()
    renderers: list[structlog.types.Processor] = [structlog.processors.JSONRenderer()]
    if is_terminal:
        renderers = [without_escapes, structlog.dev.ConsoleRenderer()]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Unfailing(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")


def without_escapes(
    _: object, __: str, event: structlog.types.EventDict
) -> structlog.types.EventDict:
    """The event as a terminal may show it: what would move its cursor is told as its escape."""
    return {name: _plain(value) for name, value in event.items()}


def _plain(value: object) -> object:
    if not isinstance(value, str) or value.isprintable():
        return value
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode()
        for each in value
    )


def note_worker(index: int) -> None:
    """From now on each line of this process says which of several workers wrote it.

    Loggers in use keep their list of processors, so that it is changed in place.
    """

    def add_worker(
        _: object, __: str, event: structlog.types.EventDict
    ) -> structlog.types.EventDict:
        return {"worker": index, **event}

    structlog.get_config()["processors"].insert(0, add_worker)


class _Unfailing:
    """A file for log lines: one that cannot be written, on a full disk, ends nobody's request."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        try:
            return self._file.write(text)
        except (OSError, ValueError):  # ValueError: it is closed
            return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._file.flush()
