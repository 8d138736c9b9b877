"""Log lines: JSON for machines, readable on a terminal. They never hold message text or keys."""

from __future__ import annotations

import logging
import os
import random
import sys
from contextlib import suppress
from typing import Final, TextIO, cast

import structlog

from proxy.errors import ExitStatus, StartupError

LEVEL_VARIABLE: Final = "PINOCCHIO_LOG_LEVEL"
SHARE_VARIABLE: Final = "PINOCCHIO_LOG_SHARE"
_LEVELS: Final = ("debug", "info", "warning", "error", "critical")


def configure_logs(level: str | None = None) -> None:
    """Send structlog's lines to stderr; other libraries only log warnings.

    Without `level` the environment has the least level of a line (`PINOCCHIO_LOG_LEVEL`, info) and
    the share of plain requests that are logged (`PINOCCHIO_LOG_SHARE`, 1). Raises StartupError for
    values that are none.
    """
    share = 1.0 if level else _share(os.environ.get(SHARE_VARIABLE) or "1")
    level = (level or os.environ.get(LEVEL_VARIABLE) or "info").lower()
    if level not in _LEVELS:
        problem = f"{LEVEL_VARIABLE} is {level[:64]!r}; it may be {', '.join(_LEVELS)}"
        raise StartupError(ExitStatus.UNUSABLE_INPUT, problem)
    is_terminal = sys.stderr.isatty()
    renderers: list[structlog.types.Processor] = [structlog.processors.JSONRenderer()]
    if is_terminal:
        renderers = [without_escapes, TerminalLines()]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            *([PlainRequests(share)] if share < 1 else []),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _SafeFile(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")


def _share(text: str) -> float:
    """Return the share that a text states, 0 to 1; raises StartupError."""
    with suppress(ValueError):
        if 0 <= (share := float(text)) <= 1:
            return share
    problem = f"{SHARE_VARIABLE} is {text[:64]!r}; it is a share of requests, 0 to 1"
    raise StartupError(ExitStatus.UNUSABLE_INPUT, problem)


class PlainRequests:
    """A processor that drops plain requests, but for a random share of them.

    Plain is what was answered below 400 and delivered, scored or for a known reason; errors, holds
    and every other event stay.
    """

    def __init__(self, share: float) -> None:
        self._share = share

    def __call__(
        self, _: object, __: str, event: structlog.types.EventDict
    ) -> structlog.types.EventDict:
        """Return the event, or raise DropEvent for a plain request outside the share."""
        is_plain = (
            event.get("event") == "request"
            and event.get("level") == "info"
            and isinstance(status := event.get("status"), int)
            and status < 400
            and event.get("action", "deliver") in ("deliver", "annotate")
            and not event.keys() & {"error", "review_id"}
        )
        if is_plain and random.random() >= self._share:
            raise structlog.DropEvent
        return event


class TerminalLines:
    """Log lines for a person at a terminal: a request in one row, other events in colour.

        17:10:32 gpt-5-mini 200 0.61 deliver 3 ms
        17:10:40 gpt-5-mini 422 0.31 hold 5 ms review_id=chatcmpl-held-41

    The unusual follows: why there is no confidence, an error, the review. JSON lines have all
    fields.
    """

    def __init__(self) -> None:
        self._others = structlog.dev.ConsoleRenderer()

    def __call__(self, logger: object, name: str, event: structlog.types.EventDict) -> str:
        """Return an event as the text of one or more lines for a terminal."""
        if event.get("event") == "request" and event.get("level") == "info":
            return _request_line(event)
        return self._others(logger, name, event)


def _request_line(event: structlog.types.EventDict) -> str:
    """Return a request's log event as a line: time, model, status, confidence, action, ms."""
    confidence, overhead_ms = event.get("confidence"), event.get("overhead_ms")
    is_scored = isinstance(confidence, int | float)
    words = [
        str(event.get("timestamp", ""))[11:19],
        f"[{event['worker']}]" if "worker" in event else "",
        str(event.get("model") or event.get("path") or "-").replace("\n", " "),
        str(event.get("status", "-")),
        f"{confidence:.2f}" if is_scored else "-",
        str(event.get("action", "-")),
        f"{overhead_ms:.0f} ms" if isinstance(overhead_ms, int | float) else "",
    ]
    extra = ("error", "review_id") if is_scored else ("reason", "error", "review_id")
    words += [f"{name}={event[name]}" for name in extra if name in event]
    return " ".join(word for word in words if word)


def without_escapes(
    _: object, __: str, event: structlog.types.EventDict
) -> structlog.types.EventDict:
    """Return the event with control characters in its texts escaped for a terminal."""
    return {name: _plain(value) for name, value in event.items()}


def _plain(value: object) -> object:
    """Return a text with unprintable characters escaped, except line feeds; other values stay."""
    if not isinstance(value, str) or value.isprintable():
        return value
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode()
        for each in value
    )


def note_worker(index: int) -> None:
    """Add the worker's number to each further log line of this process.

    Loggers in use keep their list of processors, so that list is changed in place.
    """

    def add_worker(
        _: object, __: str, event: structlog.types.EventDict
    ) -> structlog.types.EventDict:
        return {"worker": index, **event}

    structlog.get_config()["processors"].insert(0, add_worker)


class _SafeFile:
    """A file for log lines that ignores write errors, so that a full disk ends no request."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        """Write a text and return its length, also where it could not be written."""
        try:
            return self._file.write(text)
        except (OSError, ValueError):  # ValueError: the file is closed
            return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._file.flush()
