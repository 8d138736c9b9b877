"""How much of requests that are large is read and kept at a time.

A body of few bytes can stand for many values, as JSON of the shape `[],[],` or in an encoding. Each
body alone is bounded elsewhere; an `Allowance` bounds the sum of those that came without a key, so
that they wait for each other. Who waits for too long, or behind too many, is told to come again,
and never at once.

    share = await take_share(values)
    share.shrink_to(fewer)
    share.give_back()             # or nobody refers to it any more
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final
from weakref import WeakKeyDictionary, ref

from proxy.errors import OverloadedError

MOST_VALUES: Final = 500_000  # of fifty to a hundred bytes each
MOST_WAITING: Final = 32
PATIENCE_S: Final = 10.0
REFUSED_AFTER_S: Final = 1.0  # a flood of refusals takes the event loop from everybody else


class Share:
    """A part of an allowance, until it is given back or garbage."""

    __slots__ = ("_allowance", "size")

    def __init__(self, allowance: Allowance, size: int) -> None:
        self._allowance = allowance
        self.size = size

    def shrink_to(self, size: int) -> None:
        """Gives back what is beyond `size`; a larger one changes nothing."""
        if size < self.size:
            self._allowance.take_back(self.size - size)
            self.size = size

    def give_back(self) -> None:
        self.shrink_to(0)

    def __del__(self) -> None:
        if self.size:
            self._allowance.take_back_from_anywhere(self.size)


class Allowance:
    """Belongs to the running event loop; `most` is what is shared."""

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
        """One that is larger than all there is takes all of it. Raises OverloadedError."""
        size = min(size, self._most)
        if size and (self._waiting or self.in_use + size > self._most):
            await self._wait_for(size)
        else:
            self.in_use += size
        return Share(self, size)

    async def _wait_for(self, size: int) -> None:
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
        if turn.done() and not turn.cancelled():  # its turn had come at the same moment
            self.take_back(size)
            return
        with suppress(ValueError):  # who let others in may have passed over it
            self._waiting.remove((size, turn))
        self._let_in()

    def take_back(self, size: int) -> None:
        self.in_use -= size
        self._let_in()

    def take_back_from_anywhere(self, size: int) -> None:
        """From any thread, which may be the one that found the garbage."""
        loop = self._loop()
        with suppress(RuntimeError):  # it is closed
            if loop is not None:
                loop.call_soon_threadsafe(self.take_back, size)

    def _let_in(self) -> None:
        while self._waiting and self.in_use + self._waiting[0][0] <= self._most:
            size, turn = self._waiting.popleft()
            if not turn.done():
                self.in_use += size
                turn.set_result(None)


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Allowance] = WeakKeyDictionary()
_TOO_MUCH: Final = "too many large bodies are being read; try again in a while"


def allowance() -> Allowance:
    """The one of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = Allowance()
    return found


async def take_share(size: int) -> Share:
    """Of the running event loop's allowance; raises OverloadedError."""
    return await allowance().take(size)
