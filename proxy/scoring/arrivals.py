"""Notification of requests on the event loop about scores that other threads compute."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Sequence

from calibrator import Batcher, Item, Ticket


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
        self._ear, self._mouth = os.pipe()
        os.set_blocking(self._ear, False)
        loop.add_reader(self._ear, self._tell)

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
        """Report that a ticket is done; may be called from any thread."""
        self._arrived.append(ticket.owner)
        if not self._is_coming:
            self._is_coming = True
            with contextlib.suppress(OSError):  # it is closed, and nothing waits
                os.write(self._mouth, b"!")

    def _tell(self) -> None:
        """Read the byte that woke the loop, and end the wait of requests with all their scores."""
        os.read(self._ear, 1)  # hardly ever more, if two threads report at the same time
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
            self.loop.remove_reader(self._ear)
        os.close(self._ear)
        os.close(self._mouth)
        self._hand_out()
