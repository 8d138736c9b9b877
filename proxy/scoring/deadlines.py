"""Many timeouts of the same length on a single timer of the event loop.

A separate timer for each request would cost more than most of the other work for it. An entry in a
dictionary is enough, which is in the order of time because all timeouts have the same length.
`scoring.py` handles a score that comes too late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadlines:
    """Calls each added function once, after `after_s` seconds, unless it is discarded before."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._due: dict[Callable[[], object], float] = {}
        self._is_set = False  # whether the timer runs
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(
        self, call: Callable[[], object], loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """Call a function once after `after_s` seconds, unless it is discarded before.

        `loop` is the running one, if known, which saves a system call. A new loop discards all
        calls of the one before.
        """
        loop = loop or asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._is_set = loop, False
            self._due.clear()
        self._due[call] = due = loop.time() + self._after_s
        if not self._is_set:
            self._set(due)

    def discard(self, call: Callable[[], object]) -> None:
        """Remove a function that was added, so that it is not called; unknown ones are ignored."""
        self._due.pop(call, None)

    async def wait_for(self, work: asyncio.Future[None]) -> None:
        """Wait until the work is done, at most `after_s` seconds; the work continues."""
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
        """Start the loop's timer, which calls `_run` at the loop's time `due`, in seconds."""
        assert self._loop is not None  # `add` has set it
        self._is_set = True
        self._loop.call_at(due, self._run, self._loop)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call and remove the functions whose time is over, and set the timer for the next one.

        Does nothing if `loop` is no longer the loop of the functions.
        """
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
