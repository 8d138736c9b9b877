"""The state of all workers in a page of shared memory, which each can read without asking.

Each worker has a byte of its own, so no lock is needed. `/readyz` reads this page, which takes a
few hundred nanoseconds.
"""

from __future__ import annotations

import mmap
from typing import Final

MOST_WORKERS: Final = 64
ABSENT, LOADING, READY = 0, 1, 2
_WERE_READY: Final = MOST_WORKERS  # the index of the byte after those of the workers


class Board:
    """The shared page, made before the workers are forked; `wanted` is how many there should be."""

    def __init__(self, count: int) -> None:
        self.wanted = count
        self._page = mmap.mmap(-1, mmap.PAGESIZE)

    def note(self, index: int, state: int) -> None:
        """Set a worker's state; remember once that all of them were ready at the same time."""
        self._page[index] = state
        if self._states().count(READY) == self.wanted:
            self._page[_WERE_READY] = 1

    @property
    def worker_count(self) -> int:
        """The number of workers that exist now."""
        return self.wanted - self._states().count(ABSENT)

    @property
    def is_ready(self) -> bool:
        """Whether all workers were ready once, and one is ready now.

        The others then serve while a worker that died restarts.
        """
        return bool(self._page[_WERE_READY]) and READY in self._states()

    def _states(self) -> bytes:
        """Return the state byte of each wanted worker: ABSENT, LOADING or READY."""
        return self._page[: self.wanted]
