"""A sans-IO reader of server-sent events: bytes in, events out, nothing lost.

The reader keeps all bytes: the `raw` of all events plus `rest()` equals what was fed, so a stream
can be relayed event by event without changes. Format: WHATWG HTML, 9.2.6.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from proxy.http.wire.json_splice import json_object

MAX_EVENT_BYTES = 16 * 2**20
MAX_EVENTS = 2**18  # events of one stream that is kept; ten times those of the longest answers
DONE = "[DONE]"

_BOM = b"\xef\xbb\xbf"  # allowed only before the first event
# Two or more line ends in a row. The group is atomic, because "\r\n" must never be read as "\r"
# and "\n".
_BLANK_LINES = re.compile(rb"(?>\r\n|\n|\r)[\r\n]++")
_LINE_FEEDS = re.compile(rb"\n*+")
_KNOWN_LINE = re.compile(rb"(?::|(?:event|id|retry)(?::|$)).*|", re.DOTALL)
_OTHER_LINE_END = re.compile(rb"[\x0b\x0c\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]")
_LINE_END = re.compile(r"\r\n|\n|\r")


class EventTooLargeError(Exception):
    """An event exceeds the limit; the part that was read is in the reader's `rest()`."""


@dataclass(slots=True)  # not frozen: there are many
class Event:
    """An event: its bytes, and its data (None for a comment or an event without data)."""

    raw: bytes
    data: str | None


def is_done(data: str) -> bool:
    """Return whether an event's data is the end sign of OpenAI's streams, with anything behind it.

    Servers write a blank or a line end behind it, and the official clients check only how it
    begins. No reader finds a JSON object in such data.
    """
    return data.startswith(DONE) or (data[:1].isspace() and data.lstrip().startswith(DONE))


def is_one_line(raw: bytes) -> bool:
    """Return whether an event is a single line of data, as nearly all are."""
    return raw.startswith(b"data: ") and raw.endswith(b"\n\n") and raw.find(b"\n") == len(raw) - 2


def data_of(raw: bytes) -> str | None:
    """Return the `data` lines of an event, joined by line feeds; None if it has none."""
    if is_one_line(raw) and raw.find(b"\r") < 0:
        return raw[6:-2].decode("utf-8", errors="replace")
    values = []
    for line in _LINE_END.split(raw.decode("utf-8", errors="replace")):
        if line.startswith("data:"):
            values.append(line[5:].removeprefix(" "))
        elif line == "data":
            values.append("")
    return "\n".join(values) if values else None


def name_of(raw: bytes) -> str | None:
    """Return the name in the last `event` line of an event; None if it is empty or "message".

    Also returns None if there is no such line.
    """
    if raw.find(b"event") < 0:
        return None
    if raw.startswith(b"event: ") and raw.find(b"\nevent") < 0 and raw.find(b"\r") < 0:
        return raw[7 : raw.find(b"\n")].decode("utf-8", errors="replace")  # nearly all events
    name = None
    for line in _LINE_END.split(raw.removeprefix(_BOM).decode("utf-8", errors="replace")):
        if line.startswith("event:"):
            name = line[6:].removeprefix(" ")
    return name if name not in ("", "message") else None


def hides_data(event: Event) -> bool:
    """Return whether an event has data that only some readers find.

    Such data (`data` or `{`) is in a line with an unknown field, behind a character that only some
    readers take for a line end, or in one of several data lines that is a JSON object by itself.
    """
    raw = event.raw
    if event.data is None and raw.find(b"data") < 0 and raw.find(b"{") < 0:
        return False
    if is_one_line(raw):
        return False
    if raw.startswith(_BOM) and data_of(raw[len(_BOM) :]) == event.data:
        raw = raw[len(_BOM) :]  # the first event of the stream
    data_lines = event.data.split("\n") if event.data is not None else []
    if len(data_lines) > 1 and any(json_object(line) is not None for line in data_lines):
        return True  # some readers read each line separately
    lines = [
        line
        for line in re.split(rb"\r\n|\n|\r", raw)
        if line != b"data" and not line.startswith(b"data:")
    ]
    return any(
        (b"data" in line or b"{" in line)
        and (not _KNOWN_LINE.fullmatch(line) or _OTHER_LINE_END.search(line))
        for line in lines
    )


def event_bytes(data: bytes) -> bytes:
    """Return a server-sent event with a `data: ..` line for each line, and a blank line."""
    return b"".join(b"data: %b\n" % line for line in data.split(b"\n")) + b"\n"


class EventReader:
    """A reader that is fed with bytes, split anywhere, and returns the events that are complete."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._buffer = bytearray()
        self._max_event_bytes = max_event_bytes
        self._is_first = True

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that `chunk` completes.

        Raises EventTooLargeError where it completes none and the limit is exceeded.
        """
        return self.split(self.take(chunk))

    def take(self, chunk: bytes) -> bytes:
        """Add a chunk, and return the bytes of all complete events that were not returned yet.

        Raises EventTooLargeError where no event is complete and the limit is exceeded.
        """
        if self.is_whole(chunk):
            return chunk
        searched = max(0, len(self._buffer) - 3)  # a blank line is at most four bytes
        self._buffer += chunk
        end = _last_end(self._buffer, searched)
        if not end and len(self._buffer) > self._max_event_bytes:
            raise EventTooLargeError(f"an event is larger than {self._max_event_bytes} bytes")
        block = bytes(self._buffer[:end])
        del self._buffer[:end]
        return block

    def is_empty(self) -> bool:
        """Return whether no incomplete event is buffered."""
        return not self._buffer

    def is_whole(self, chunk: bytes) -> bool:
        """Return whether `take` would return the chunk unchanged, as it nearly always does.

        The chunk then consists of complete events, and nothing is buffered.
        """
        ends = chunk.endswith(b"\n\n") and not chunk.endswith(b"\n\n\n")
        return ends and not self._buffer and chunk.find(b"\r") < 0

    def split(self, block: bytes) -> list[Event]:
        """Split bytes that `take` returned into events; call it in the order of `take`.

        Consecutive events without data are joined into one, because nobody needs them apart.
        """
        events, begins, start = [], 0, 0
        for end in _ends(block):
            if block.find(b"data", start, end) >= 0:
                if begins < start:
                    events.append(self._silent(block[begins:start]))
                raw = block[start:end]
                data = data_of(raw.removeprefix(_BOM) if self._is_first else raw)
                events.append(Event(raw, data))
                self._is_first = False
                begins = end
            start = end
        if begins < start:
            events.append(self._silent(block[begins:start]))
        return events

    def _silent(self, raw: bytes) -> Event:
        """Return one event for bytes without data."""
        self._is_first = False
        return Event(raw, None)

    def rest(self) -> bytes:
        """Remove and return the bytes that belong to no complete event."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest


def _last_end(buffer: bytearray, searched: int) -> int:
    """Return the position behind the last blank line from `searched` on; 0 if there is none."""
    if buffer.find(b"\r", searched) < 0:
        at = buffer.rfind(b"\n\n", searched)
        return at + 2 if at >= 0 else 0
    end = 0
    for match in _BLANK_LINES.finditer(buffer, searched):
        end = match.end()
    return end


def _ends(block: bytes) -> list[int]:
    """Return the position behind each event of `block`, that is behind its blank lines."""
    if block.find(b"\r") >= 0:
        return [match.end() for match in _BLANK_LINES.finditer(block)]
    ends, at = [], block.find(b"\n\n")
    while at >= 0:
        end = at + 2
        if block.startswith(b"\n", end) and (more := _LINE_FEEDS.match(block, end)):
            end = more.end()
        ends.append(end)
        at = block.find(b"\n\n", end)
    return ends
