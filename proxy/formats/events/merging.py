"""Merging of deltas into a message: text and lists grow, objects merge, other values are replaced.

Text grows as a list of pieces until it is needed. If it were joined at every delta, a long answer
would cost the square of its length.

A name may come in pieces, and some servers send all of it in each delta. Some clients join the
pieces, others take the first or the last one. So all of them are kept (`CallName`).

Nearly all events of a stream are alike except for their piece of text. The bytes before and after
it are learnt from one event (`AlikeEvents`), so that whatever is a JSON string by itself between
the same bytes is read without its JSON. All other events are left to code that reads JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from proxy.http.wire.json_splice import loads

_MOST_NAMES = 8  # names kept of a call's first pieces, and of its last
_WHOLE = ("id", "role", "type")  # members whose strings come whole, perhaps repeatedly

LEARNT_FROM = 2  # events: usually one with the role, then one with text
TRIES = 3  # events read one by one: another may come before these
_NOT_PLAIN = b'"\\' + bytes(range(32))  # bytes that a JSON string has in escapes only
_TEXT = re.compile(rb'"content"\s*:\s*"((?:[^"\\]+|\\.)*)"')


class Pieces(list[str]):
    """A text that is still growing, as the list of its pieces."""


class CallName(Pieces):
    """The name of a call as its deltas bring it.

    A repetition of the whole name is no further piece.
    """

    def __init__(self, name: str) -> None:
        super().__init__([name] if name else [])
        self.deltas = [*self]

    def append(self, name: str) -> None:
        """Add the name in another delta; the first name again is no further piece."""
        if not name:
            return
        self.deltas.append(name)
        if [*self] != [name]:
            super().append(name)

    def readings(self) -> tuple[str, ...]:
        """Return every name that a client may have read, the one in the message first.

        Clients join the names in the deltas, such as `get_` and `time`, or take the first or the
        last one.
        """
        pieces = (*self[:_MOST_NAMES], *self[-_MOST_NAMES:])
        return tuple(dict.fromkeys(("".join(self), *pieces, "".join(self.deltas))))


def merge(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Merge a delta into a message in place; its growing texts become `Pieces`.

    Raises RecursionError for a value that is nested too deeply.
    """
    for key, value in delta.items():
        old = message.get(key)
        if key in _WHOLE:
            message[key] = value or old
        elif isinstance(value, str) and isinstance(old, Pieces):
            old.append(value)
        elif isinstance(value, str):
            message[key] = CallName(value) if key == "name" else Pieces([value])
        elif isinstance(value, list) and type(old) is list:
            old.extend(value)
        elif isinstance(value, dict):
            if not isinstance(old, dict):
                old = message[key] = {}
            merge(old, value)
        elif value is not None or key not in message:
            message[key] = value.copy() if isinstance(value, list) else value


def join_texts(value: Any) -> Any:
    """Return a copy of a value with every growing text joined to a string.

    Raises RecursionError like `merge`.
    """
    if isinstance(value, Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {key: join_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [join_texts(item) for item in value]
    return value


def names_in(value: Any) -> Iterator[CallName]:
    """Yield the names of calls that came in more than one delta, at any depth of a value."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, CallName):
            if len(value.deltas) > 1:
                yield value
        elif isinstance(value, dict):
            waiting += value.values()
        elif type(value) is list:
            waiting += value


def index_of(value: Mapping[str, Any], default: int) -> int:
    """Return the `index` of a choice or call, or `default` if it is no number from 0 on."""
    index = value.get("index")
    return index if isinstance(index, int) and index >= 0 else default


class GrowingCalls(dict[int, dict[str, Any]]):
    """The tool calls of one choice by their index, while they are streamed."""

    last = -1  # the highest index so far

    def merge(self, deltas: Iterable[Any]) -> bool:
        """Merge pieces into their calls, in place; without an index, a new id begins a new call.

        Returns False where some clients would begin another call and others not.
        """
        is_clear = True
        for delta in deltas:
            if not isinstance(delta, dict):
                delta = {"type": "unknown", "unknown": delta}
            id = delta.get("id")
            is_new = self.last < 0 or id not in (None, "", self[self.last].get("id"))
            index = index_of(delta, self.last + 1 if is_new else self.last)
            call = self.setdefault(index, {})
            is_clear = is_clear and not _begins_anew(call, delta)
            self.last = max(self.last, index)
            merge(call, {key: value for key, value in delta.items() if key != "index"})
        return is_clear


def _begins_anew(call: Mapping[str, Any], delta: Mapping[str, Any]) -> bool:
    """Return whether a piece has another id than its call, and a name again.

    Some clients begin another call then, and others do not.
    """
    id, before = delta.get("id"), call.get("id")
    if not before or id in (None, "", before):
        return False
    return any(
        isinstance(owner := delta.get(kind), dict) and bool(owner.get("name"))
        for kind in ("function", "custom")
    )


@dataclass(slots=True)  # not frozen, for speed: each stream creates one
class AlikeEvents:
    """Events that begin with `before` and end with `after`, with a JSON string between them."""

    before: bytes
    after: bytes  # with the blank line
    pieces: Pieces  # the text that they extend

    def add(self, raw: bytes) -> bool:
        """Add the text of one event to `pieces`; return False, adding none, for any other event.

        Texts with escapes are left out too.
        """
        start, end = len(self.before), len(raw) - len(self.after)
        if start > end or not raw.startswith(self.before) or not raw.endswith(self.after):
            return False
        text = raw[start:end]
        if len(text) != len(text.translate(None, _NOT_PLAIN)):
            return False
        try:
            self.pieces.append(text.decode())
        except ValueError:
            return False
        return True

    def take(self, raw: bytes) -> int:
        """Add the texts of the events in `raw`, up to the last one that ends like them.

        Returns the number of their bytes. Adds nothing, and returns 0, where one of them is not
        alike.
        """
        before, after = self.before, self.after
        end = raw.rfind(after) + len(after)
        if end < len(after) or not raw.startswith(before):
            return 0
        start, stop = len(before), 2 - len(after)
        # splitting at all bytes between two texts would be shorter, but takes far longer: CPython
        # prepares each search of a long separator; one byte is twice as fast as two
        text_of = itemgetter(slice(start, stop))
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
    """Return the form of events like this one, or None where it cannot be learnt.

    The event must be one line, with a text as its only `content`.
    """
    if event.count(b'"content"') != 1 or event.count(b"\n") != 2:
        return None
    match = _TEXT.search(event)
    return AlikeEvents(event[: match.start(1)], event[match.end(1) :], pieces) if match else None


def split_events(raw: bytes, events: int) -> tuple[bytes, bytes]:
    """Return (the bytes of the first `events` events, those of the others)."""
    end = 0
    for _ in range(events):
        end = raw.find(b"\n\n", end) + 2
        if end < 2:
            return raw, b""
    return raw[:end], raw[end:]


def plain_objects(raw: bytes) -> list[Any] | None:
    """Return the JSON objects in events, if each of these is one line `data: {..}`, in order.

    None if one of the events is of any other kind.
    """
    array = raw[len(b"data: ") : -len(b"\n\n")].replace(b"\n\ndata: ", b",")
    is_plain = raw.startswith(b"data: ") and raw.endswith(b"\n\n") and raw.find(b"\r") < 0
    if not is_plain or array.find(b"\n") >= 0:
        return None
    try:
        objects: list[Any] = loads(b"[%b]" % array)
    except ValueError:
        return None
    is_each = len(objects) == raw.count(b"\n\n")
    return objects if is_each and {*map(type, objects)} == {dict} else None
