"""Changes values anywhere inside a JSON text and leaves every other byte as it was.

rewritten('{"a": [1.0, 2]}', {("a", 1): "two"})  ->  '{"a": [1.0, "two"]}'
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from proxy.wire.json_splice import dumps

Place = tuple[str | int, ...]
REMOVED: Final = object()
"""In place of a value: the element of an array goes."""

_decoder: Final = json.JSONDecoder()
_WHITESPACE: Final = " \t\r\n"
_CLOSING: Final = {"{": "}", "[": "]"}


@dataclass(frozen=True, slots=True)
class _New:
    value: Any


def rewritten(text: str, changes: Mapping[Place, Any]) -> str:
    """The text with a new value at each place; what an object has not yet comes last in it.

    Of members that stand twice all change. Raises ValueError for what is no JSON, and where there
    is no such place.
    """
    tree: dict[str | int, Any] = {}
    for place, value in changes.items():
        node = tree
        for step in place[:-1]:
            node = node.setdefault(step, {})
        node[place[-1]] = _New(value)
    start = _skip(text, int(text.startswith("\ufeff")))
    try:
        changed, end = _changed(text, start, tree)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return text[:start] + changed + text[end:]


def _changed(text: str, start: int, tree: Mapping[str | int, Any] | _New) -> tuple[str, int]:
    """The value that begins at `start`, changed, and where it ended."""
    if isinstance(tree, _New):
        return dumps(tree.value).decode(), _decoder.raw_decode(text, start)[1]
    opening = text[start : start + 1]
    if opening not in _CLOSING:
        raise ValueError(f"neither an object nor an array at character {start}")
    pieces, missing, closed = [], dict(tree), start + 1
    for item in _items(text, start):
        below = tree.get(item.key)
        missing.pop(item.key, None)
        closed = item.end
        if below is None:
            pieces.append(text[item.start : item.end])
        elif not (isinstance(below, _New) and below.value is REMOVED):
            value, value_end = _changed(text, item.value, below)
            pieces.append(text[item.start : item.value] + value + text[value_end : item.end])
    if missing and opening == "[":
        raise ValueError(f"the array at character {start} has no element {min(missing)}")
    pieces += [f"{dumps(key).decode()}:{_added(tree[key])}" for key in missing]
    closed = text.index(_CLOSING[opening], closed)
    return opening + ",".join(pieces) + _CLOSING[opening], closed + 1


def _added(tree: Any) -> str:
    if not isinstance(tree, _New):
        raise ValueError("there is nothing that could be changed")
    return dumps(tree.value).decode()


@dataclass(frozen=True, slots=True)
class _Item:
    """One member or element: white space is part of it, the commas around it are not."""

    key: str | int
    start: int
    value: int  # where its value begins
    end: int


def _items(text: str, start: int) -> Iterator[_Item]:
    """What stands in the object or array that begins at `start`; raises ValueError."""
    is_object, closing = text[start] == "{", _CLOSING[text[start]]
    begun = start + 1
    if text.startswith(closing, _skip(text, begun)):
        return
    key: str | int = -1
    while True:
        at = _skip(text, begun)
        if is_object:
            key, at = _decoder.raw_decode(text, at)
            at = _skip(text, _after(":", text, _skip(text, at)))
        else:
            key = int(key) + 1
        end = _skip(text, _decoder.raw_decode(text, at)[1])
        yield _Item(key, begun, at, end)
        if text.startswith(closing, end):
            return
        begun = _after(",", text, end)


def _after(sign: str, text: str, at: int) -> int:
    if not text.startswith(sign, at):
        raise ValueError(f"no {sign!r} at character {at}")
    return at + 1


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _WHITESPACE:
        at += 1
    return at
