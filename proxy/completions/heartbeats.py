"""A reply whose status is out before its body is known: heartbeats keep the connection alive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from proxy.errors import ProxyError

STREAM_PING = b": ping\n\n"  # a comment of server-sent events
JSON_PING = b" "  # white space before a JSON text
PING_EVERY_S = 10.0


async def is_done(
    work: asyncio.Future[Any], *others: asyncio.Future[Any], within_s: float | None = None
) -> bool:
    """Waits for the work or one of the others; whoever cancels the waiting cancels the work."""
    try:
        await asyncio.wait({work, *others}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        work.cancel()
        raise
    return work.done()


async def late(
    body: asyncio.Future[bytes], error_event: Callable[[ProxyError], bytes] | None
) -> AsyncIterator[bytes]:
    """Pings, then the body; an error in its place becomes an event, where the body is of events.

    A JSON body breaks off, as upstream's did.
    """
    ping = JSON_PING if error_event is None else STREAM_PING
    yield ping
    try:
        async for piece in pings_until(body, ping):
            yield piece
    except ProxyError as error:
        if error_event is None:
            raise
        yield error_event(error)


async def pings_until(
    work: asyncio.Future[bytes], ping: bytes = STREAM_PING
) -> AsyncIterator[bytes]:
    """Pings while `work` goes on, then its bytes; raises what it raises.

    The first ping comes after `PING_EVERY_S`, so that quick work costs none. Work that nobody waits
    for any longer is cancelled, and has ended when this ends.
    """
    try:
        while not work.done():
            done, _ = await asyncio.wait({work}, timeout=PING_EVERY_S)
            if not done:
                yield ping
        yield work.result()
    finally:
        if work.cancel():
            await asyncio.wait({work})
