"""The text of many events at once, without reading each as JSON.

Nearly all events of a stream are alike except for their piece of text. The bytes before and after
it are learnt from one event. Whatever is a JSON string by itself between the same bytes is the text
of another. All other events are left to code that reads JSON.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from proxy.formats.events.merging import Pieces
from proxy.http.wire.json_splice import loads

LEARNT_FROM = 2  # events: usually one with the role, then one with text
TRIES = 3  # events read one by one: another may come before these
_NOT_PLAIN = b'"\\' + bytes(range(32))  # bytes that a JSON string has in escapes only
_TEXT = re.compile(rb'"content"\s*:\s*"((?:[^"\\]+|\\.)*)"')


@dataclass(slots=True)  # not frozen, for speed: each stream creates one
class AlikeEvents:
    """Events that begin with `before` and end with `after`, with a JSON string between them."""

    before: bytes
    after: bytes  # with the blank line
    pieces: Pieces  # the text that they extend

    def add(self, raw: bytes) -> bool:
        """Add the text of one event; return False for one that may say more to any reader."""
        begins, ends = len(self.before), len(raw) - len(self.after)
        if begins > ends or not raw.startswith(self.before) or not raw.endswith(self.after):
            return False
        text = raw[begins:ends]
        if len(text) != len(text.translate(None, _NOT_PLAIN)):
            return False
        try:
            self.pieces.append(text.decode())
        except ValueError:
            return False
        return True

    def take(self, raw: bytes) -> int:
        """Add the text of the events up to the last one that is alike.

        Return the number of their bytes. Adds nothing, and returns 0, where one of them is not
        alike.
        """
        before, after = self.before, self.after
        end = raw.rfind(after) + len(after)
        if end < len(after) or not raw.startswith(before):
            return 0
        begins, ends = len(before), 2 - len(after)
        # splitting at all bytes between two texts would be shorter, but takes far longer: CPython
        # prepares each search of a long separator; one byte is twice as fast as two
        text_of = itemgetter(slice(begins, ends))
        texts = [*map(text_of, raw[: end - 1].split(b"\n")[::2])]
        if not raw.startswith(before + (after + before).join(texts) + after):
            return 0
        text = b"".join(texts)
        try:
            # `in` is slower: it first tries its operand as a number, and clears the error
            if text.find(b'"') >= 0 or text.find(b"\\") >= 0:  # has escapes, or more than text
                self.pieces.extend([loads(b'"%b"' % text) for text in texts])
            else:
                self.pieces.append(text.decode())
        except ValueError:
            return 0
        return end


def alike(event: bytes, pieces: Pieces) -> AlikeEvents | None:
    """Return the form of events like this one, which is one line whose text is its only `content`.

    Returns None for other events.
    """
    if event.count(b'"content"') != 1 or event.count(b"\n") != 2:
        return None
    found = _TEXT.search(event)
    return AlikeEvents(event[: found.start(1)], event[found.end(1) :], pieces) if found else None


def split_events(raw: bytes, events: int) -> tuple[bytes, bytes]:
    """Return the bytes of the first `events` events, and those of the others."""
    end = 0
    for _ in range(events):
        end = raw.find(b"\n\n", end) + 2
        if end < 2:
            return raw, b""
    return raw[:end], raw[end:]


def plain_objects(raw: bytes) -> list[Any] | None:
    """Return the JSON objects in events of one line each; None for events of any other kind."""
    listed = raw[len(b"data: ") : -len(b"\n\n")].replace(b"\n\ndata: ", b",")
    is_plain = raw.startswith(b"data: ") and raw.endswith(b"\n\n") and raw.find(b"\r") < 0
    if not is_plain or listed.find(b"\n") >= 0:
        return None
    try:
        objects: list[Any] = loads(b"[%b]" % listed)
    except ValueError:
        return None
    is_each = len(objects) == raw.count(b"\n\n")
    return objects if is_each and {*map(type, objects)} == {dict} else None
