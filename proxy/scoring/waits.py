"""How requests on the event loop wait for scores that other threads compute.

Scores arrive through `Arrivals`, with one wake-up of the loop for a batch. `Deadlines` are many
timeouts of the same length on a single timer: a separate timer for each request would cost more
than most of the other work for it. An entry in a dictionary is enough, which is in the order of
time because all timeouts have the same length. `scoring.py` handles a score that comes too late.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence

from calibrator import Batcher, Item, Ticket

NICENESS = 10  # added to the thread's; Linux allows up to 19


class WaitingRequest:
    """A request that waits for `missing` scores.

    `over` is done when all are there or time is up.
    """

    __slots__ = ("missing", "over")

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self.missing = count
        self.over: asyncio.Future[None] = loop.create_future()

    def __call__(self) -> None:
        """End the wait, because time is up or all scores are there."""
        if not self.over.done():
            self.over.set_result(None)


class Arrivals:
    """The connection between the event loop and a scorer's threads, with one wake-up per batch.

    Threads wake the loop through a pipe, for the same reason as `calibrator.Batcher` waits at one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._arrived: deque[WaitingRequest] = deque()  # one entry for each score
        self._is_coming = False
        self._is_waking = False
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        loop.add_reader(self._read_end, self._on_reports)

    def submit(
        self, batcher: Batcher, items: Sequence[Item]
    ) -> tuple[WaitingRequest, list[Ticket]]:
        """Submit items to the scorer; returns the request that waits, and a ticket for each item.

        The scorer is woken once for all submitted items, after the loop has run what is ready.
        """
        waiting = WaitingRequest(self.loop, len(items))
        tickets = batcher.submit(items, self.report, waiting, wake=False)
        if not self._is_waking:
            self._is_waking = True
            self.loop.call_soon(self._wake, batcher)
        return waiting, tickets

    def _wake(self, batcher: Batcher) -> None:
        """Wake the scorer's thread for all items that were submitted since the last time."""
        self._is_waking = False
        batcher.wake()

    def report(self, ticket: Ticket) -> None:
        """Report that a ticket is done; may be called from any thread.

        Wakes the loop, unless a wake-up is already on its way. After `close` it wakes nothing.
        """
        self._arrived.append(ticket.owner)
        if not self._is_coming:
            self._is_coming = True
            with contextlib.suppress(OSError):  # it is closed, and nothing waits
                os.write(self._write_end, b"!")

    def _on_reports(self) -> None:
        """Read the byte that woke the loop, and end the wait of requests with all their scores."""
        os.read(self._read_end, 1)  # hardly ever more, if two threads report at the same time
        self._is_coming = False  # reset first, so that later reports wake the loop again
        self._hand_out()

    def _hand_out(self) -> None:
        """Count the scores that arrived, and end the wait of requests that miss none any more."""
        arrived = self._arrived
        while arrived:
            waiting = arrived.popleft()
            waiting.missing -= 1
            if not waiting.missing:
                waiting()

    def close(self) -> None:
        """Deliver what has arrived and close the pipe; nothing may arrive afterwards."""
        self._is_coming = True  # so that nothing is written any more
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            self.loop.remove_reader(self._read_end)
        os.close(self._read_end)
        os.close(self._write_end)
        self._hand_out()


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
        """Wait until the work is done, failed or cancelled, at most `after_s` seconds.

        The work continues. Raises neither its error nor a timeout: ask `work.done()` afterwards.
        """
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


def lower_priority() -> None:
    """Lower the priority of the calling thread and of those that it starts.

    The event loop then runs first when threads share a core. Otherwise the loop of a process on one
    core has a third of its throughput while scores queue; with it, two thirds or more.
    """
    if sys.platform == "linux":  # elsewhere it would apply to the whole process
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            niceness = os.getpriority(os.PRIO_PROCESS, thread) + NICENESS
            os.setpriority(os.PRIO_PROCESS, thread, niceness)
