"""Flow control of a connection: whether it is read, and whether its client accepts more."""

from __future__ import annotations

import asyncio

HIGH_WATER = 2**16  # bytes of a body that the application has not received yet


class Flow:
    """Both directions of one connection; the transport reports when its buffer is full."""

    __slots__ = ("_transport", "_waiting", "read_paused", "write_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._waiting: asyncio.Future[None] | None = None
        self.read_paused = False
        self.write_paused = False

    def pause_reading(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self.write_paused = True

    def resume_writing(self) -> None:
        self.write_paused = False
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def drain(self) -> None:
        """Wait until the client has accepted enough of what was written, or has left."""
        while self.write_paused:
            if self._waiting is None:
                self._waiting = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiting)  # one of two waiting tasks may be cancelled
