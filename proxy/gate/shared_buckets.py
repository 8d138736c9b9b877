"""Buckets that several workers take from: their levels are in memory that all of them see.

A table of slots, 32 bytes each: a digest of whose bucket it is, its level, and when that was so, by
the clock that all processes of a machine have in common. Whoever takes holds the lock of the table
for a few microseconds, so that workers together let no request more through than one would. The
kernel takes the lock from a worker that dies. Levels outlive every worker; a slot that
a worker was writing when it was killed may be off by that one request.
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
from proxy.wire.bounded_cache import remembers

SLOTS: Final = 2**17  # 4 MB, of which only what is used takes memory
LOOKED_AT: Final = 16  # slots in which a bucket may be
_SLOT: Final = struct.Struct("16sdd")


class _Slot(NamedTuple):
    at: int  # its first byte
    owner: bytes
    level: float
    since: float


class SharedBuckets:
    """Made before the workers are forked; `take` is for one thread of each."""

    def __init__(self, slots: int = SLOTS, clock: Callable[[], float] = time.monotonic) -> None:
        self._slots = slots
        self._clock = clock
        self._table = mmap.mmap(-1, slots * _SLOT.size)
        handle, path = tempfile.mkstemp(prefix="pinocchio-buckets-")
        os.unlink(path)  # it is there to be locked
        self._lock = handle

    def take(self, rates: Sequence[Rate]) -> float:
        """As `Buckets.take`: from all of them, and 0, or from none, and the seconds until then."""
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
        """The slot of a bucket with its level now, or one for it, in which it is full.

        After a minute every bucket is full, and its slot free; of too many that are not, the one
        that was taken from longest ago gives way.
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
    return blake2b(whose.encode(), digest_size=16).digest()
