"""A live stream of a reply without sockets: a test feeds its parts and counts what comes out."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from contextlib import nullcontext

from proxy.completions.call_upstream import live_pieces
from proxy.completions.sending.live_stream import FinishEvent, LiveStream
from proxy.formats import CHAT, Format

MB = 2**20


def live(format: Format = CHAT, *, max_bytes: int = 64 * MB, settles: bool = False) -> LiveStream:
    """Return a live stream whose choices are confident and whose calls are delivered."""
    return LiveStream(format, max_bytes=max_bytes, gates_calls=settles)


async def play(stream: LiveStream, parts: Iterable[bytes]) -> int:
    """Relay the parts; return how many bytes came out."""

    async def chunks() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    size = 0
    async for piece in live_pieces(stream, chunks(), nullcontext()):
        if isinstance(piece, FinishEvent):
            stream.assembler.choices(piece.choices)
            size += len(piece.event.raw)
        elif isinstance(piece, bytes):
            size += len(piece)
    withheld, _ = stream.waiting_events()
    return size + sum(len(event.raw) for event in withheld)


def peak_of(stream: LiveStream, parts: Iterable[bytes]) -> tuple[int, int]:
    """Return the number of bytes that came out, and the most bytes that memory held meanwhile."""
    tracemalloc.start()
    try:
        return asyncio.run(play(stream, parts)), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def peak_of_event() -> tuple[int, int]:
    """Return the peak memory, in bytes, for an event in one piece and for one in single bytes."""
    event = b"data: " + b"x" * 50_000 + b"\n\n"
    _, whole = peak_of(live(), [event])
    size, peak = peak_of(live(), (event[i : i + 1] for i in range(len(event))))
    assert size == len(event)
    return whole, peak
