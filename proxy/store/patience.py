"""Reads of the store that do not keep their caller waiting, as a database may hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from proxy.errors import StoreError

Found = TypeVar("Found")


class Patience:
    """Reads on daemon threads, at most `most` at a time; safe on any thread.

    A read that takes too long goes on by itself, and its result is lost.
    """

    def __init__(self, most: int) -> None:
        self._free = threading.BoundedSemaphore(most)

    def within(self, seconds: float, read: Callable[[], Found]) -> Found:
        """Return what `read` returns within `seconds`, or raise what it raises.

        Raises StoreError where that takes longer, and at once where all threads are taken.
        """
        if not self._free.acquire(blocking=False):
            raise StoreError("the store does not answer")
        found: list[Found] = []
        failed: list[BaseException] = []

        def run() -> None:
            """Store what `read` returns or raises, and free the place."""
            try:
                found.append(read())
            except BaseException as error:
                failed.append(error)
            finally:
                self._free.release()

        reading = threading.Thread(target=run, name="patience", daemon=True)
        reading.start()
        reading.join(seconds)
        if failed:
            raise failed[0]
        if not found:
            raise StoreError(f"the store does not answer within {seconds:g} s")
        return found[0]
