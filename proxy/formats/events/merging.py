"""Merging of deltas into a message: text and lists grow, objects merge, other values are replaced.

Text grows as a list of pieces until it is needed. If it were joined at every delta, a long answer
would cost the square of its length.

A name may come in pieces, and some servers send all of it in each delta. Some clients join the
pieces, others take the first or the last one. So all of them are kept (`CallName`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_MOST_NAMES = 8  # names kept of a call's first pieces, and of its last
_WHOLE = ("id", "role", "type")  # members whose strings come whole, perhaps repeatedly


class Pieces(list[str]):
    """A text that is still growing."""


class CallName(Pieces):
    """The name of a call as its deltas bring it.

    A repetition of the whole name is no further piece.
    """

    def __init__(self, name: str) -> None:
        super().__init__([name] if name else [])
        self.deltas = [*self]

    def append(self, name: str) -> None:
        """Add the name in another delta."""
        if not name:
            return
        self.deltas.append(name)
        if [*self] != [name]:
            super().append(name)

    def readings(self) -> tuple[str, ...]:
        """Return every name that a client may have read, the one in the message first.

        Clients join the names in the deltas, or take the first or the last one.
        """
        pieces = (*self[:_MOST_NAMES], *self[-_MOST_NAMES:])
        return tuple(dict.fromkeys(("".join(self), *pieces, "".join(self.deltas))))


def merge(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Merge a delta into a message, whose growing texts become `Pieces`; raises RecursionError."""
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
    """Return the value with every growing text joined; raises RecursionError like `merge`."""
    if isinstance(value, Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {key: join_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [join_texts(item) for item in value]
    return value


def names_in(value: Any) -> Iterator[CallName]:
    """Yield the names in growing calls that came in more than one delta."""
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
    index = value.get("index")
    return index if isinstance(index, int) and index >= 0 else default


class GrowingCalls(dict[int, dict[str, Any]]):
    """The tool calls of one choice by their index, while they are streamed."""

    last = -1  # the highest index so far

    def merge(self, deltas: Iterable[Any]) -> bool:
        """Merge pieces into their calls; without an index, a new id begins a new call.

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
    """Return whether a piece has another id than its call, and a name again."""
    id, before = delta.get("id"), call.get("id")
    if not before or id in (None, "", before):
        return False
    return any(
        isinstance(owner := delta.get(kind), dict) and bool(owner.get("name"))
        for kind in ("function", "custom")
    )
