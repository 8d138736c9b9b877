"""How requests on the event loop hear of the scores that other threads compute."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Sequence

from calibrator import Batcher, Item, Ticket


class Waiting:
    """A request that waits for so many scores; `over` is done when they are there or time is up."""

    __slots__ = ("missing", "over")

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self.missing = count
        self.over: asyncio.Future[None] = loop.create_future()

    def __call__(self) -> None:
        """Time is up, or all are there."""
        if not self.over.done():
            self.over.set_result(None)


class Arrivals:
    """The way to the scorer's thread and back: one wake-up each for all that happens at a time.

    The way back is a pipe, for the reason that `calibrator.Batcher` sleeps at one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._arrived: deque[Waiting] = deque()  # once for each score
        self._is_coming = False
        self._is_waking = False
        self._ear, self._mouth = os.pipe()
        os.set_blocking(self._ear, False)
        loop.add_reader(self._ear, self._tell)

    def submit(self, batcher: Batcher, items: Sequence[Item]) -> tuple[Waiting, list[Ticket]]:
        """Submits items; what waits for their scores, and their tickets.

        The scorer is woken once the loop has run what is ready, for all that was submitted.
        """
        waiting = Waiting(self.loop, len(items))
        tickets = batcher.submit(items, self.report, waiting, wake=False)
        if not self._is_waking:
            self._is_waking = True
            self.loop.call_soon(self._wake, batcher)
        return waiting, tickets

    def _wake(self, batcher: Batcher) -> None:
        self._is_waking = False
        batcher.wake()

    def report(self, ticket: Ticket) -> None:
        """From any thread."""
        self._arrived.append(ticket.owner)
        if not self._is_coming:
            self._is_coming = True
            with contextlib.suppress(OSError):  # closed; nobody waits
                os.write(self._mouth, b"!")

    def _tell(self) -> None:
        os.read(self._ear, 1)  # hardly ever more: two scorer's threads may see nobody coming
        self._is_coming = False  # first, so that what is reported from now on wakes again
        self._hand_out()

    def _hand_out(self) -> None:
        arrived = self._arrived
        while arrived:
            waiting = arrived.popleft()
            waiting.missing -= 1
            if not waiting.missing:
                waiting()

    def close(self) -> None:
        """What has arrived is still told; nothing may arrive any more."""
        self._is_coming = True  # so that nothing is written
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.remove_reader(self._ear)
        os.close(self._ear)
        os.close(self._mouth)
        self._hand_out()
