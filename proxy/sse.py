"""Server-sent events, sans-IO: bytes in, events out, nothing lost.

The reader keeps every byte: the `raw` of all events plus `rest()` is exactly what was fed, so a
stream can be relayed event by event and still be the same. Format: WHATWG HTML, 9.2.6.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_EVENT_BYTES = 16 * 2**20
DONE = "[DONE]"

_BOM = b"\xef\xbb\xbf"  # allowed before the first event, and there only
# Two line ends in a row. Atomic, because "\r\n" must never be read as "\r" and "\n".
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE_END = re.compile(r"\r\n|\n|\r")


class EventTooLargeError(Exception):
    """One event exceeds the limit; what was read of it is in the reader's `rest()`."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its bytes, and its data (None for a comment or an event without data)."""

    raw: bytes
    data: str | None


def data_of(raw: bytes) -> str | None:
    """The `data` lines of one event, joined; None when it has none."""
    values = []
    for line in _LINE_END.split(raw.decode("utf-8", errors="replace")):
        if line.startswith("data:"):
            values.append(line[5:].removeprefix(" "))
        elif line == "data":
            values.append("")
    return "\n".join(values) if values else None


def event_bytes(data: str) -> bytes:
    """An event that carries `data`."""
    return b"".join(b"data: %b\n" % line.encode() for line in data.split("\n")) + b"\n"


class EventReader:
    """Feed it bytes as they arrive, split anywhere; it gives the events that are complete."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._buffer = bytearray()
        self._max_event_bytes = max_event_bytes
        self._is_first = True

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes; raises EventTooLargeError when it completes none."""
        searched = max(0, len(self._buffer) - 3)  # a blank line is at most four bytes
        self._buffer += chunk
        events, start = [], 0
        for match in _BLANK_LINE.finditer(self._buffer, searched):
            raw = bytes(self._buffer[start : match.end()])
            events.append(Event(raw, data_of(raw.removeprefix(_BOM) if self._is_first else raw)))
            self._is_first = False
            start = match.end()
        del self._buffer[:start]
        if not events and len(self._buffer) > self._max_event_bytes:
            raise EventTooLargeError(f"an event is larger than {self._max_event_bytes} bytes")
        return events

    def rest(self) -> bytes:
        """Takes out what belongs to no complete event."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest
