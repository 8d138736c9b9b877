"""Joined writes: what a transport sends, and when.

A small write costs more than its bytes. It wakes the process at the other end, mostly on another
core, and finds the kernel's code outside the caches if other code ran before it. If a turn of the
event loop writes for many connections, these writes are therefore sent together at the beginning of
the next turn: at 64 concurrent requests that saves a sixth of a request's CPU. If few connections
are active, a write is sent at once, because another turn would add latency.
"""

from __future__ import annotations

import asyncio
from collections import deque

LOOK_EVERY = 32  # writes, after which those in the rest of the turn are counted
MANY = 9  # writes in the rest of a turn, from which on writes are gathered
FEW = 6  # gathered writes; after SMALL turns in a row with fewer, gathering stops
SMALL = 8


class Bursts:
    """Whether the writes of several connections, of one server or pool, are gathered."""

    __slots__ = ("_small", "_waiting", "_written", "is_gathering")

    def __init__(self) -> None:
        self._waiting: deque[Outlet] = deque()
        self._written = 0  # writes since the last look
        self.is_gathering = False
        self._small = 0

    def note(self) -> None:
        """Count a write that was sent at once; every 32nd starts a look at the rest of the turn."""
        self._written += 1
        if self._written == LOOK_EVERY:
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Start gathering if 9 or more writes followed in the rest of the turn, else stop it."""
        self.is_gathering = self._written >= LOOK_EVERY + MANY
        self._written = self._small = 0

    def add(self, outlet: Outlet) -> None:
        """Flush the outlet in the next turn of the event loop."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._send)
        self._waiting.append(outlet)

    def _send(self) -> None:
        """Flush all waiting outlets; after 8 turns in a row with fewer than 6, stop gathering.

        If one raises, the others are sent in the next turn.
        """
        waiting = self._waiting
        self._small = 0 if len(waiting) >= FEW else self._small + 1
        if self._small == SMALL:
            self.is_gathering = False
        try:
            while waiting:
                waiting.popleft().flush()
        finally:
            if waiting:  # an error of one connection must not stop the others
                asyncio.get_running_loop().call_soon(self._send)


class Outlet:
    """A transport that joins the parts of one turn of the event loop into one write.

    Parts that are not sent yet are dropped if the transport closes.
    """

    __slots__ = ("_bursts", "_parts", "transport")

    def __init__(self, transport: asyncio.Transport, bursts: Bursts) -> None:
        self.transport = transport
        self._bursts = bursts
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Write a part that others may follow in the same turn."""
        if not data:
            return
        if not self._parts:
            self._bursts.add(self)
        self._parts.append(data)

    def write_alone(self, data: bytes) -> None:
        """Write a part that is not joined with others; it waits only while writes are gathered."""
        if self._parts or self._bursts.is_gathering:
            self.write(data)
        else:
            self.transport.write(data)
            self._bursts.note()

    def write_large(self, parts: list[bytes | memoryview]) -> None:
        """Write parts that are too large to be copied into one, after all that wait."""
        self.flush()
        self.transport.writelines(parts)

    def is_waiting(self) -> bool:
        """Return whether some parts have been written but not sent."""
        return bool(self._parts)

    def flush(self) -> None:
        """Send all parts that wait in one write; they are dropped if the transport is closing."""
        parts = self._parts
        if parts:
            self._parts = []
            if not self.transport.is_closing():
                self.transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def close(self) -> None:
        """Send all parts that wait, then close the transport."""
        self.flush()
        self.transport.close()

    def is_closing(self) -> bool:
        return self.transport.is_closing()
