"""Changes of values anywhere inside a JSON text that leave all other bytes unchanged.

rewritten('{"a": [1.0, 2]}', {("a", 1): "two"})  ->  '{"a": [1.0, "two"]}'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from proxy.http.wire.json_splice import CLOSING, DECODER, dumps, items_of, without_blanks

Place = tuple[str | int, ...]
REMOVED: Final = object()
"""A value for `rewrite_json`: the element of an array at this place is removed."""


@dataclass(frozen=True, slots=True)
class _New:
    value: Any


def rewrite_json(text: str, changes: Mapping[Place, Any]) -> str:
    """Return the text with a new value at each place; all else stays as it is written.

    A member that is missing is appended to its object, and an element whose new value is REMOVED is
    left out; if a member is repeated, all its occurrences change. No place may be empty or lie in
    another. Raises ValueError where the text is not JSON, is nested too deeply or has no such
    place. Text behind the first value is kept unread.
    """
    tree: dict[str | int, Any] = {}
    for place, value in changes.items():
        node = tree
        for step in place[:-1]:
            node = node.setdefault(step, {})
        node[place[-1]] = _New(value)
    start = without_blanks(text, int(text.startswith("\ufeff")))
    try:
        changed, end = _change_value(text, start, tree)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return text[:start] + changed + text[end:]


def _change_value(text: str, start: int, tree: Mapping[str | int, Any] | _New) -> tuple[str, int]:
    """Return the new text of the value at `start`, and the position behind the old value.

    `tree` has the changes below it, by member name or index. Raises ValueError where it has no such
    element.
    """
    if isinstance(tree, _New):
        return dumps(tree.value).decode(), DECODER.raw_decode(text, start)[1]
    opening = text[start : start + 1]
    if opening not in CLOSING:
        raise ValueError(f"neither an object nor an array at character {start}")
    pieces, missing, closed = [], dict(tree), start + 1
    for item in items_of(text, start):
        below = tree.get(item.key)
        missing.pop(item.key, None)
        closed = item.end
        if below is None:
            pieces.append(text[item.start : item.end])
        elif not (isinstance(below, _New) and below.value is REMOVED):
            value, value_end = _change_value(text, item.value, below)
            pieces.append(text[item.start : item.value] + value + text[value_end : item.end])
    if missing and opening == "[":
        raise ValueError(f"the array at character {start} has no element {min(missing)}")
    pieces += [f"{dumps(key).decode()}:{_serialize_new(tree[key])}" for key in missing]
    closed = text.index(CLOSING[opening], closed)
    return opening + ",".join(pieces) + CLOSING[opening], closed + 1


def _serialize_new(tree: Any) -> str:
    """Serialize the value of a member that is added; raises ValueError for a place below one."""
    if not isinstance(tree, _New):
        raise ValueError("there is nothing that could be changed")
    return dumps(tree.value).decode()
