"""What leaves through a transport, and when.

A small write costs more than its bytes: it wakes whoever is at the other end, mostly on another
core, and finds the kernel's code out of the caches when other code ran before it. Where a turn of
the event loop writes for many connections, their writes therefore leave together at the beginning
of the next turn: at 64 requests at once that is a sixth of a request's CPU. Where few are at work,
a write leaves at once: another turn would be its latency.
"""

from __future__ import annotations

import asyncio
from collections import deque

LOOK_EVERY = 32  # writes, after which the rest of a turn is counted
MANY = 9  # writes in the rest of a turn: from here on they are gathered
FEW = 6  # gathered writes; after SMALL turns in a row with fewer the next ones leave at once
SMALL = 8


class Bursts:
    """Whether the writes of several connections are gathered; of one server, or one pool."""

    __slots__ = ("_small", "_waiting", "_written", "is_gathering")

    def __init__(self) -> None:
        self._waiting: deque[Outlet] = deque()
        self._written = 0  # since the last look
        self.is_gathering = False
        self._small = 0

    def note(self) -> None:
        """Something was written at once."""
        self._written += 1
        if self._written == LOOK_EVERY:
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self.is_gathering = self._written >= LOOK_EVERY + MANY
        self._written = self._small = 0

    def add(self, outlet: Outlet) -> None:
        """Has the outlet flushed in the loop's next turn."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._send)
        self._waiting.append(outlet)

    def _send(self) -> None:
        waiting = self._waiting
        self._small = 0 if len(waiting) >= FEW else self._small + 1
        if self._small == SMALL:
            self.is_gathering = False
        try:
            while waiting:
                waiting.popleft().flush()
        finally:
            if waiting:  # a fault of one connection's is none of the others'
                asyncio.get_running_loop().call_soon(self._send)


class Outlet:
    """A transport whose parts of one turn of the event loop leave in one write.

    What waits is dropped where the transport closes before.
    """

    __slots__ = ("_bursts", "_parts", "transport")

    def __init__(self, transport: asyncio.Transport, bursts: Bursts) -> None:
        self.transport = transport
        self._bursts = bursts
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        """For a part that others may follow in the same turn."""
        if not data:
            return
        if not self._parts:
            self._bursts.add(self)
        self._parts.append(data)

    def write_alone(self, data: bytes) -> None:
        """For what nothing would be joined with: it waits only where many others are written."""
        if self._parts or self._bursts.is_gathering:
            self.write(data)
        else:
            self.transport.write(data)
            self._bursts.note()

    def write_large(self, parts: list[bytes | memoryview]) -> None:
        """For what is not copied into one write."""
        self.flush()
        self.transport.writelines(parts)

    def is_waiting(self) -> bool:
        """Whether something is written and has not left."""
        return bool(self._parts)

    def flush(self) -> None:
        parts = self._parts
        if parts:
            self._parts = []
            if not self.transport.is_closing():
                self.transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def close(self) -> None:
        self.flush()
        self.transport.close()

    def is_closing(self) -> bool:
        return self.transport.is_closing()
