"""Limits on requests: a bucket for each key and each team, filled evenly over a minute.

A full bucket holds what a minute gives, so that a burst of so many passes at once. The buckets of
several workers are in memory that they share (`shared_buckets.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

Rate = tuple[str, int]
"""Whose bucket, and how many requests a minute."""

MINUTE_S: Final = 60.0
MOST_OWNERS: Final = 100_000  # with a bucket that is not known to be full


class TakesRequests(Protocol):
    """Buckets, wherever their levels are."""

    def take(self, rates: Sequence[Rate]) -> float:
        """As `Buckets.take`."""
        ...


class Buckets:
    """The levels of all buckets; they outlive a change of the configuration."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._levels: dict[str, tuple[float, float]] = {}  # so many requests, at that time

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, rates: Sequence[Rate]) -> float:
        """Takes a request from every bucket, and returns 0; or takes none, and returns how many
        seconds it will be until all of them have one."""
        now = self._clock()
        levels = [(owner, self._level(owner, rate, now), rate) for owner, rate in rates]
        wait_s = max((1 - level) * MINUTE_S / rate for _, level, rate in levels)
        if wait_s > 0:
            return wait_s
        for owner, level, _ in levels:
            self._levels.pop(owner, None)  # the first is the one that took longest ago
            self._levels[owner] = level - 1, now
        self._forget(now)
        return 0.0

    def _forget(self, now: float) -> None:
        """After a minute every bucket is full, as it is for whoever has none."""
        while self._levels:
            oldest = next(iter(self._levels))
            if now - self._levels[oldest][1] < MINUTE_S and len(self._levels) <= MOST_OWNERS:
                return
            self._levels.pop(oldest, None)

    def _level(self, owner: str, rate: int, now: float) -> float:
        level, at = self._levels.get(owner, (float(rate), now))
        return min(float(rate), level + (now - at) * rate / MINUTE_S)
