"""Parsing of untrusted JSON, whose values are counted first.

A value takes about fifty bytes of memory and 0.3 microseconds of the event loop, and two bytes of a
body can be one value. A body's values are therefore counted first, by their separators. A body with
few values is parsed at once. One with many is parsed on a thread, by a parser in Python that works
a quarter of the time and lets the event loop go on, which a parser in C would not. One with too
many is not parsed.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from json import decoder, scanner
from typing import Any, Final

from proxy.http.wire.json_splice import (
    RepeatedMemberError,
    TooManyValuesError,
    check_repeated,
    each_once,
    json_object,
    may_have_more_values,
    object_without_repeats,
    separators,
)
from proxy.http.wire.worker_threads import apart

AT_ONCE: Final = 50_000  # values that are parsed at once, in about 20 ms
MAX_VALUES: Final = 1_000_000
MAX_REQUEST_VALUES: Final = 250_000  # fewer, because a request is kept until its reply is sent
WORKS_S: Final = 0.001  # seconds that the thread works between two pauses
WORKING_SHARE: Final = 0.25  # of the thread's time
LOOKS_EVERY: Final = 64  # values between two looks at the clock
FEW: Final = 2_000  # values that are parsed at once for any text
_PIECE = 2**20
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def has_many(data: bytes, sent: int | None = None) -> bool:
    """Return whether a text may have more values than are parsed at once (50,000 or fewer).

    `sent` is its encoded size in bytes, if it was compressed: then the bound is between 2,000
    values and one for each byte sent. False is certain.
    """
    most = AT_ONCE if sent is None else min(AT_ONCE, max(FEW, sent))
    return may_have_more_values(data, most)


async def large_object(data: bytes) -> dict[str, Any] | None:
    """Parse a body like `json_object`, on a thread if it has many values; None if it is no object.

    Raises TooManyValuesError.
    """
    if not has_many(data):
        return json_object(data, is_counted=True)
    try:
        value = await apart(loads_large, data)
    except TooManyValuesError:
        raise
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


async def object_read_once(
    data: bytes, decisive: Collection[str]
) -> tuple[dict[str, Any] | None, bool]:
    """Return the JSON object of a body (else None), and whether it repeats a member.

    A repeated member counts as in `check_members`. Raises TooManyValuesError.
    """
    if not has_many(data) and (value := object_without_repeats(data)) is not None:
        return value, False  # nearly all bodies, in one pass
    value = await large_object(data)
    try:
        await check_members(data, decisive)
    except RepeatedMemberError:
        return value, True
    return value, False


async def check_members(data: bytes, decisive: Collection[str], *, is_large: bool = False) -> None:
    """Check a body like `check_repeated`, on a thread if it has many values or `is_large`."""
    if is_large or has_many(data):
        await apart(_check_large, data, decisive)
    else:
        check_repeated(data, decisive)


def _check_large(data: bytes, decisive: Collection[str]) -> None:
    """Check a large body for repeated members, on a thread; raises RepeatedMemberError.

    A text that is not JSON, or has too many values, passes.
    """
    with suppress(json.JSONDecodeError, UnicodeDecodeError, RecursionError, TooManyValuesError):
        loads_large(data, object_pairs_hook=partial(each_once, decisive), parse_int=str)


def loads_large(data: bytes, **options: Any) -> Any:
    """Parse a text with many values in Python; call it on a thread.

    Options are those of JSONDecoder. Raises TooManyValuesError before it parses, and what
    `json.loads` raises.
    """
    return loads_counted(data, **options)[0]


def loads_counted(data: bytes, most: int = MAX_VALUES, **options: Any) -> tuple[Any, int]:
    """Parse like `loads_large`; returns the value and the number of values, at most `most`."""
    if _count(data, most) > most:
        raise TooManyValuesError(most)
    decoder = _PausingDecoder(**options)
    value = decoder.decode(data.decode("utf-8-sig"))
    return value, decoder.values


def _count(data: bytes, most: int) -> int:
    """Return the number of separators in a text.

    If these seem to be more than `most`, those inside strings are subtracted. A text with very many
    strings is not searched: half of its quotes are returned.
    """
    pieces = (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))
    count = sum(map(separators, pieces))
    if count <= most:
        return count
    strings = data.count(b'"') - data.count(b'\\"')
    if strings > 4 * most:
        return strings // 2
    return count - sum(separators(found[0]) for found in _STRING.finditer(data))


class _PausingDecoder(json.JSONDecoder):
    """The standard library's decoder in Python instead of C, which sleeps most of the time.

    The event loop needs the interpreter for each event on a connection, and waits a little each
    time that another thread holds it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        python: Any = decoder  # the stubs lack its functions in Python
        self.parse_object = self._add_pauses(python.JSONObject, 2)
        self.parse_array = self._add_pauses(python.JSONArray, 1)
        self.scan_once = scanner.py_make_scanner(self)  # type: ignore[attr-defined]
        self.values = 0  # read so far
        self._since = time.perf_counter()

    def _add_pauses(self, parse: Callable[..., Any], position: int) -> Callable[..., Any]:
        """Wrap `parse` so that its scanner, the argument at `position`, sleeps now and then."""
        own: list[Any] = []

        def scan(text: str, at: int) -> Any:
            self.values += 1
            if not self.values % LOOKS_EVERY:
                self._pause()
            return own[0](text, at)

        def parse_with_it(*args: Any) -> Any:
            if not own:
                own.append(args[position])
            return parse(*args[:position], scan, *args[position + 1 :])

        return parse_with_it

    def _pause(self) -> None:
        """Sleep if the thread has worked for a millisecond, three times as long as that."""
        took = time.perf_counter() - self._since
        if took >= WORKS_S:
            time.sleep(took * (1 / WORKING_SHARE - 1))
            self._since = time.perf_counter()
