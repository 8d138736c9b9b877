"""Rate limits: one token bucket for each key and each team, refilled evenly over a minute.

A full bucket holds one minute's requests, so a burst of that size passes at once. Several workers
keep their buckets in shared memory (`shared_buckets.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

Rate = tuple[str, int]
"""The owner of a bucket, and its limit in requests per minute."""

MINUTE_S: Final = 60.0
MOST_OWNERS: Final = 100_000  # buckets that may be remembered at once


class TakesRequests(Protocol):
    """A set of buckets, in this process or in shared memory."""

    def take(self, rates: Sequence[Rate]) -> float:
        """Take a request from every bucket; see `Buckets.take`."""
        ...


class Buckets:
    """The levels of all buckets; they survive a change of the configuration."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._levels: dict[str, tuple[float, float]] = {}  # requests left, and when that was so

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, rates: Sequence[Rate]) -> float:
        """Take one request from every bucket, or from none.

        Returns 0 if it was taken, and otherwise the seconds until every bucket has one.
        """
        now = self._clock()
        levels = [(owner, self._level(owner, rate, now), rate) for owner, rate in rates]
        wait_s = max((1 - level) * MINUTE_S / rate for _, level, rate in levels)
        if wait_s > 0:
            return wait_s
        for owner, level, _ in levels:
            self._levels.pop(owner, None)  # to the end: the first entry is the least recent one
            self._levels[owner] = level - 1, now
        self._forget(now)
        return 0.0

    def _forget(self, now: float) -> None:
        """Forget buckets that have filled up, and the oldest beyond `MOST_OWNERS`.

        A bucket that is not stored counts as full, and every bucket is full after a minute.
        """
        while self._levels:
            oldest = next(iter(self._levels))
            if now - self._levels[oldest][1] < MINUTE_S and len(self._levels) <= MOST_OWNERS:
                return
            self._levels.pop(oldest, None)

    def _level(self, owner: str, rate: int, now: float) -> float:
        """Return the level of a bucket now, in requests."""
        level, at = self._levels.get(owner, (float(rate), now))
        return min(float(rate), level + (now - at) * rate / MINUTE_S)
