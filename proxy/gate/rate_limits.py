"""Rate limits: one token bucket for each key and each team, refilled evenly over a minute.

A full bucket holds one minute's requests, so a burst of that size passes at once. A single process
keeps its buckets in a dict (`Buckets`), several workers in shared memory (`SharedBuckets`).
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

from proxy.http.wire.bounded_cache import remembers

Rate = tuple[str, int]
"""The owner of a bucket, and its limit in requests per minute."""

MINUTE_S: Final = 60.0
MOST_OWNERS: Final = 100_000  # buckets that may be remembered at once
SLOTS: Final = 2**17  # 4 MB of addresses; unused pages take no memory
LOOKED_AT: Final = 16  # slots that are searched for a bucket
_SLOT: Final = struct.Struct("16sdd")


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


class _Slot(NamedTuple):
    """A slot of the table, as it was read."""

    at: int  # the position of its first byte
    owner: bytes
    level: float
    since: float


class SharedBuckets:
    """Buckets that workers share; made before the fork, and used by one thread of each worker.

    The memory holds a table of 32-byte slots: a digest of the bucket's owner, the level, and the
    time of that level by a clock that all processes of a machine share. A worker locks the table
    for a few microseconds to take a request, so that several workers together admit no more than
    one would. The kernel releases the lock of a worker that dies. Levels outlive every worker; a
    slot that a worker was writing when it was killed may be off by one request.
    """

    def __init__(self, slots: int = SLOTS, clock: Callable[[], float] = time.monotonic) -> None:
        self._slots = slots
        self._clock = clock
        self._table = mmap.mmap(-1, slots * _SLOT.size)
        handle, path = tempfile.mkstemp(prefix="pinocchio-buckets-")
        os.unlink(path)  # the file is used only as a lock
        self._lock = handle

    def take(self, rates: Sequence[Rate]) -> float:
        """Take one request from every bucket, or from none; see `Buckets.take`.

        Waits for a lock that the workers of this machine share. Returns 0 if it was taken, and
        otherwise the seconds until every bucket has one. `rates` may not be empty.
        """
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            now = self._clock()
            slots: list[_Slot] = []
            for owner, rate in rates:
                slots.append(self._slot(owner, rate, now, {slot.at for slot in slots}))
            wait_s = max(
                (1 - slot.level) * MINUTE_S / rate
                for slot, (_, rate) in zip(slots, rates, strict=True)
            )
            if wait_s > 0:
                return wait_s
            for slot in slots:
                _SLOT.pack_into(self._table, slot.at, slot.owner, slot.level - 1, now)
            return 0.0
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)

    def _slot(self, owner: str, rate: int, now: float, positions: set[int]) -> _Slot:
        """Return the slot of a bucket with its level now, or a slot for a new, full bucket.

        Slots at these `positions` are in use by the same request. A bucket is full after a
        minute, so its slot is free then. If none is free, the new bucket replaces the least
        recently used one.
        """
        digest = _digest(owner)
        first = int.from_bytes(digest[:4], "little")
        oldest = _Slot(-1, digest, float(rate), float("inf"))
        for number in range(LOOKED_AT):
            at = (first + number) % self._slots * _SLOT.size
            stored, level, since = _SLOT.unpack_from(self._table, at)
            if stored == digest:
                level = min(float(rate), level + (now - since) * rate / MINUTE_S)
                return _Slot(at, digest, level, since)
            if since < oldest.since and at not in positions:
                oldest = _Slot(at, digest, float(rate), since)
        return oldest


@remembers(1_024)
def _digest(owner: str) -> bytes:
    """Return the 16-byte BLAKE2b digest of a bucket's owner."""
    return blake2b(owner.encode(), digest_size=16).digest()
