"""Questions that wait for their replies: some gateways send the two in different requests."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from proxy.formats import Json
from proxy.http.wire.json_splice import compact, json_object

KEEP_S = 600.0  # how long a question waits for its reply
MOST_BYTES = 64 * 2**20
LONGEST_ID = 256  # characters of a gateway's id
OVERHEAD = 512  # bytes of memory for each question, besides its text

Key = tuple[str, str]
"""The gateway's name, and its id of the call."""


class Questions:
    """Questions kept for `keep_s` seconds, in at most `most` bytes; the oldest go first."""

    def __init__(
        self,
        keep_s: float = KEEP_S,
        most: int = MOST_BYTES,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keep_s, self._most, self._now = keep_s, most, now
        self._kept: OrderedDict[Key, tuple[float, bytes]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, key: Key, question: Json) -> bool:
        """Store a question until its reply arrives; return whether there was room for it.

        Clients choose the gateway's id. If two different questions arrive under one id, it is
        unknown which of them a reply answers, so `find` returns neither.
        """
        body = compact(question)
        before = None if key not in self._kept or self._has_expired(key) else self._kept[key][1]
        if before is not None and before != body:
            body = b""
        self._drop(key)
        if len(body) + OVERHEAD > self._most or len(key[1]) > LONGEST_ID:
            return False
        self._kept[key] = self._now() + self._keep_s, body
        self._size += len(body) + OVERHEAD
        while self._size > self._most or self._has_expired(next(iter(self._kept))):
            self._drop(next(iter(self._kept)))
        return True

    def find(self, key: Key) -> Json | None:
        """Return the question stored under a key, or None.

        The question stays, because a stream's reply may be checked more than once.
        """
        if key in self._kept and self._has_expired(key):
            self._drop(key)
        entry = self._kept.get(key)
        return json_object(entry[1]) if entry is not None and entry[1] else None

    def _has_expired(self, key: Key) -> bool:
        """Return whether the time of a stored question is over."""
        return self._kept[key][0] <= self._now()

    def _drop(self, key: Key) -> None:
        """Forget a question, if it is stored."""
        if (dropped := self._kept.pop(key, None)) is not None:
            self._size -= len(dropped[1]) + OVERHEAD
