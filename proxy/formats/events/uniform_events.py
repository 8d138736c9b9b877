"""Text out of many events at once, without reading each as JSON.

Nearly all events of a stream are alike but for their piece of text. What stands before and after it
is learnt from one of them; whatever fits between the same bytes and is a JSON string by itself is
the text of the next. Anything else is left to those who read JSON.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from proxy.formats.events.merging import Pieces
from proxy.wire.json_splice import loads

LEARNT_FROM = 2  # events: one with the role as a rule, then text
TRIES = 3  # events one by one: there may be one before these
_NOT_PLAIN = b'"\\' + bytes(range(32))  # what a JSON string has in escapes only
_TEXT = re.compile(rb'"content"\s*:\s*"((?:[^"\\]+|\\.)*)"')


@dataclass(slots=True)  # not frozen: there is one for each stream
class AlikeEvents:
    """Events that begin with `before` and end with `after`, with a JSON string between them."""

    before: bytes
    after: bytes  # with the blank line
    pieces: Pieces  # where their text goes

    def add(self, raw: bytes) -> bool:
        """Take in the text of one event that says nothing else to any reader; False for others."""
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
        """Takes in the text of the events up to the last one that is alike, and gives their bytes;
        none of it where one among them is not alike."""
        before, after = self.before, self.after
        end = raw.rfind(after) + len(after)
        if end < len(after) or not raw.startswith(before):
            return 0
        begins, ends = len(before), 2 - len(after)
        # to split at all between two texts looks shorter, and takes far longer: CPython prepares
        # anew for each search of a long separator; for one byte it is twice as fast as for two
        text_of = itemgetter(slice(begins, ends))
        texts = [*map(text_of, raw[: end - 1].split(b"\n")[::2])]
        if not raw.startswith(before + (after + before).join(texts) + after):
            return 0
        text = b"".join(texts)
        try:
            # `in` would first try what it is given as a number, and clear the error
            if text.find(b'"') >= 0 or text.find(b"\\") >= 0:  # no string by itself: more than text
                self.pieces.extend([loads(b'"%b"' % text) for text in texts])
            else:
                self.pieces.append(text.decode())
        except ValueError:
            return 0
        return end


def alike(event: bytes, pieces: Pieces) -> AlikeEvents | None:
    """What an event is like that consists of one line and whose text is its only `content`."""
    if event.count(b'"content"') != 1 or event.count(b"\n") != 2:
        return None
    found = _TEXT.search(event)
    return AlikeEvents(event[: found.start(1)], event[found.end(1) :], pieces) if found else None


def parted(raw: bytes, events: int) -> tuple[bytes, bytes]:
    """The first events of many, and the others."""
    end = 0
    for _ in range(events):
        end = raw.find(b"\n\n", end) + 2
        if end < 2:
            return raw, b""
    return raw[:end], raw[end:]


def plain_objects(raw: bytes) -> list[Any] | None:
    """The JSON objects in events of a line each, in one go; None for events of any other kind."""
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
