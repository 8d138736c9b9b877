"""Buckets that several workers share, with their levels in shared memory.

The memory holds a table of 32-byte slots: a digest of the bucket's owner, the level, and the time
of that level by a clock that all processes of a machine share. A worker locks the table for a few
microseconds to take a request, so that several workers together admit no more than one would. The
kernel releases the lock of a worker that dies. Levels outlive every worker; a slot that a worker
was writing when it was killed may be off by one request.
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
from typing import Final, NamedTuple

from proxy.gate.rate_limits import MINUTE_S, Rate
from proxy.http.wire.bounded_cache import remembers

SLOTS: Final = 2**17  # 4 MB of addresses; unused pages take no memory
LOOKED_AT: Final = 16  # slots that are searched for a bucket
_SLOT: Final = struct.Struct("16sdd")


class _Slot(NamedTuple):
    """A slot of the table, as it was read."""

    at: int  # the position of its first byte
    owner: bytes
    level: float
    since: float


class SharedBuckets:
    """Buckets that workers share; made before the fork, and used by one thread of each worker."""

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
            found: list[_Slot] = []
            for owner, rate in rates:
                found.append(self._slot(owner, rate, now, {slot.at for slot in found}))
            wait_s = max(
                (1 - slot.level) * MINUTE_S / rate
                for slot, (_, rate) in zip(found, rates, strict=True)
            )
            if wait_s > 0:
                return wait_s
            for slot in found:
                _SLOT.pack_into(self._table, slot.at, slot.owner, slot.level - 1, now)
            return 0.0
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)

    def _slot(self, whose: str, rate: int, now: float, taken: set[int]) -> _Slot:
        """Return the slot of a bucket with its level now, or a slot for a new, full bucket.

        Slots at the positions `taken` are in use by the same request. A bucket is full after a
        minute, so its slot is free then. If none is free, the new bucket replaces the least
        recently used one.
        """
        owner = _digest(whose)
        first = int.from_bytes(owner[:4], "little")
        oldest = _Slot(-1, owner, float(rate), float("inf"))
        for number in range(LOOKED_AT):
            at = (first + number) % self._slots * _SLOT.size
            there, level, since = _SLOT.unpack_from(self._table, at)
            if there == owner:
                level = min(float(rate), level + (now - since) * rate / MINUTE_S)
                return _Slot(at, owner, level, since)
            if since < oldest.since and at not in taken:
                oldest = _Slot(at, owner, float(rate), since)
        return oldest


@remembers(1_024)
def _digest(whose: str) -> bytes:
    """Return the 16-byte BLAKE2b digest of a bucket's owner."""
    return blake2b(whose.encode(), digest_size=16).digest()
