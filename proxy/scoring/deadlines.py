"""Many timeouts of one length on a single timer of the event loop.

A timer of the loop's own for every request costs more than most of what a request needs; these cost
an entry in a dictionary, which is in the order of time because all of them last equally long. What
becomes of a score that comes too late is said in `scoring.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadlines:
    """Calls what was added after `after_s`, once, unless it is discarded before."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._due: dict[Callable[[], object], float] = {}
        self._is_set = False  # the timer
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(
        self, call: Callable[[], object], loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """`loop` is the running one, for those who know it: to ask is a system call."""
        loop = loop or asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._is_set = loop, False
            self._due.clear()
        self._due[call] = due = loop.time() + self._after_s
        if not self._is_set:
            self._set(due)

    def discard(self, call: Callable[[], object]) -> None:
        self._due.pop(call, None)

    async def wait_for(self, work: asyncio.Future[None]) -> None:
        """Wait until the work is done, at most `after_s`; the work goes on."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()

        def end(_: object = None) -> None:
            if not over.done():
                over.set_result(None)

        work.add_done_callback(end)
        self.add(end, loop)
        try:
            await over
        finally:
            self.discard(end)

    def _set(self, due: float) -> None:
        assert self._loop is not None  # `add` has set it
        self._is_set = True
        self._loop.call_at(due, self._run, self._loop)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return
        self._is_set = False
        now, over = loop.time(), []
        for call, due in self._due.items():
            if due > now:
                self._set(due)
                break
            over.append(call)
        for call in over:
            del self._due[call]
        for call in over:
            call()
