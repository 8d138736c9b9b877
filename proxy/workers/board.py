"""What every worker can see of the others without asking: a page of shared memory.

Each worker has a byte of its own, so nothing has to be locked. Whoever is asked at `/readyz` looks
here, a few hundred nanoseconds.
"""

from __future__ import annotations

import mmap
from typing import Final

MOST_WORKERS: Final = 64
ABSENT, LOADING, READY = 0, 1, 2
_WERE_READY: Final = MOST_WORKERS  # the byte behind those of the workers


class Board:
    """Made before the workers are forked; `wanted` is how many there should be."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self._page = mmap.mmap(-1, mmap.PAGESIZE)

    def note(self, index: int, state: int) -> None:
        """How a worker stands now."""
        self._page[index] = state
        if self._states().count(READY) == self.wanted:
            self._page[_WERE_READY] = 1

    @property
    def running(self) -> int:
        """How many workers there are now."""
        return self.wanted - self._states().count(ABSENT)

    @property
    def is_ready(self) -> bool:
        """Whether all were ready once, and one is now: the others then answer for it while a worker
        that died starts anew."""
        return bool(self._page[_WERE_READY]) and READY in self._states()

    def _states(self) -> bytes:
        return self._page[: self.wanted]
