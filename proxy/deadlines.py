"""Many timeouts of one length on a single timer of the event loop.

A timer of the loop's own for every request costs more than most of what a request needs; these cost
an entry in a queue, which is in the order of time because all of them last equally long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Deadlines:
    """Calls what was added after `after_s`; whoever has no use for it any more ignores the call."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._due: deque[tuple[float, Callable[[], None]]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, call: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._due.clear()
        due = loop.time() + self._after_s
        if not self._due:
            loop.call_at(due, self._run)
        self._due.append((due, call))

    def _run(self) -> None:
        assert self._loop is not None  # `add` has set it
        now = self._loop.time()
        while self._due:
            due, call = self._due[0]
            if due > now:
                self._loop.call_at(due, self._run)
                return
            self._due.popleft()
            call()
