"""A limit on the memory of large requests that are read and kept at the same time.

A body of few bytes can hold many values, as JSON of the shape `[],[],` or in an encoding. Each body
alone is limited elsewhere. An `Allowance` limits the sum of those that came without a key, so that
they wait for each other. A request that waits too long, or behind too many others, is refused with
a request to retry, and never at once.

    share = await take_share(values)
    share.shrink_to(fewer)
    share.give_back()             # or drop the last reference to it
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final
from weakref import WeakKeyDictionary, ref

from proxy.errors import OverloadedError

MOST_VALUES: Final = 500_000  # values of fifty to a hundred bytes each
MOST_WAITING: Final = 32
PATIENCE_S: Final = 10.0
REFUSED_AFTER_S: Final = 1.0  # a flood of quick refusals would block the event loop


class Share:
    """A part of an allowance, until it is given back or garbage-collected."""

    __slots__ = ("_allowance", "size")

    def __init__(self, allowance: Allowance, size: int) -> None:
        self._allowance = allowance
        self.size = size

    def shrink_to(self, size: int) -> None:
        """Give back what exceeds `size`; a larger size changes nothing."""
        if size < self.size:
            self._allowance.take_back(self.size - size)
            self.size = size

    def give_back(self) -> None:
        """Give back all of it."""
        self.shrink_to(0)

    def __del__(self) -> None:
        if self.size:
            self._allowance.take_back_threadsafe(self.size)


class Allowance:
    """An allowance of the running event loop; `most` is its size in JSON values."""

    def __init__(
        self,
        most: int = MOST_VALUES,
        most_waiting: int = MOST_WAITING,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.in_use = 0
        self._most = most
        self._most_waiting = most_waiting
        self._patience_s = patience_s
        self._loop = ref(asyncio.get_running_loop())
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> Share:
        """Take a share, and wait for it if too much is in use.

        A size beyond the whole allowance takes all of it. Raises OverloadedError.
        """
        size = min(size, self._most)
        if size and (self._waiting or self.in_use + size > self._most):
            await self._wait_for(size)
        else:
            self.in_use += size
        return Share(self, size)

    async def _wait_for(self, size: int) -> None:
        """Wait until `size` values fit into the allowance and take them.

        Raises OverloadedError where 32 requests wait already, after a second, or after 10 seconds
        of waiting.
        """
        if len(self._waiting) >= self._most_waiting:
            await asyncio.sleep(REFUSED_AFTER_S)
            raise OverloadedError(_TOO_MUCH)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            async with asyncio.timeout(self._patience_s):
                await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            self._leave(size, turn)
            if isinstance(error, TimeoutError):
                raise OverloadedError(_TOO_MUCH) from None
            raise

    def _leave(self, size: int, turn: asyncio.Future[None]) -> None:
        """Stop waiting for a turn; give back the values if the turn came at the same moment."""
        if turn.done() and not turn.cancelled():  # its turn came at the same moment
            self.take_back(size)
            return
        with suppress(ValueError):  # `_admit_waiting` may have removed it
            self._waiting.remove((size, turn))
        self._admit_waiting()

    def take_back(self, size: int) -> None:
        """Take a share back and admit requests that wait; call it on the event loop."""
        self.in_use -= size
        self._admit_waiting()

    def take_back_threadsafe(self, size: int) -> None:
        """Take a share back from any thread, such as the one that collected it as garbage."""
        loop = self._loop()
        with suppress(RuntimeError):  # the loop is closed
            if loop is not None:
                loop.call_soon_threadsafe(self.take_back, size)

    def _admit_waiting(self) -> None:
        """Give requests their turn, the oldest first, as long as they fit into the allowance."""
        while self._waiting and self.in_use + self._waiting[0][0] <= self._most:
            size, turn = self._waiting.popleft()
            if not turn.done():
                self.in_use += size
                turn.set_result(None)


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Allowance] = WeakKeyDictionary()
_TOO_MUCH: Final = "too many large bodies are being read; try again in a while"


def allowance() -> Allowance:
    """Return the allowance of the running event loop, made at the first call."""
    loop = asyncio.get_running_loop()
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = Allowance()
    return found


async def take_share(size: int) -> Share:
    """Take a share of the running event loop's allowance; raises OverloadedError."""
    return await allowance().take(size)
