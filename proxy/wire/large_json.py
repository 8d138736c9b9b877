"""JSON from strangers, counted before it is parsed.

A value takes some fifty bytes of memory and a third of a microsecond of the event loop; two bytes
of a body can stand for one. So a body's values are counted first, by their separators. What has few
is parsed at once. What has many is parsed on a thread, by a parser in Python that lets the event
loop go on every few milliseconds, as one in C would not. What has too many is not parsed at all.
"""

from __future__ import annotations

import json
import re
from json import decoder, scanner
from typing import Any, Final

from proxy.wire.json_splice import TooManyValuesError, json_object, separators
from proxy.wire.worker_threads import apart

AT_ONCE: Final = 50_000  # values, parsed in some 20 ms
MAX_VALUES: Final = 1_000_000
_PIECE = 2**20
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def has_many(data: bytes) -> bool:
    """Whether a text may have more values than are parsed at once."""
    return len(data) > AT_ONCE and separators(data) > AT_ONCE


async def large_object(data: bytes) -> dict[str, Any] | None:
    """As `json_object`, for a body; raises TooManyValuesError."""
    if not has_many(data):
        return json_object(data)
    try:
        value = await apart(loads_large, data)
    except TooManyValuesError:
        raise
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def loads_large(data: bytes, **options: Any) -> Any:
    """Parses what has many values, in Python; raises what `json.loads` does, TooManyValuesError
    before that. To be called on a thread. Options are those of JSONDecoder."""
    if _count(data) > MAX_VALUES:
        raise TooManyValuesError(MAX_VALUES)
    return _PausingDecoder(**options).decode(data.decode("utf-8-sig"))


def _count(data: bytes) -> int:
    """The separators in a text; where there seem to be too many, without those in its strings."""
    pieces = (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))
    count = sum(map(separators, pieces))
    if count <= MAX_VALUES:
        return count
    strings = data.count(b'"') - data.count(b'\\"')
    if strings > 4 * MAX_VALUES:
        return strings // 2
    return count - sum(separators(found[0]) for found in _STRING.finditer(data))


class _PausingDecoder(json.JSONDecoder):
    """The standard library's decoder without its C: other threads run between two values."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        python: Any = decoder  # whose parts in Python have no types
        self.parse_object, self.parse_array = python.JSONObject, python.JSONArray
        self.scan_once = scanner.py_make_scanner(self)  # type: ignore[attr-defined]
