"""A reply whose status is out before its body is known: heartbeats keep the connection alive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

STREAM_PING = b": ping\n\n"  # a comment of server-sent events
JSON_PING = b" "  # white space before a JSON text
PING_EVERY_S = 10.0


async def pings_until(
    work: asyncio.Future[bytes], ping: bytes = STREAM_PING
) -> AsyncIterator[bytes]:
    """Pings while `work` goes on, then its bytes; raises what it raises.

    The first ping comes after `PING_EVERY_S`, so that quick work costs none.
    """
    try:
        while not work.done():
            done, _ = await asyncio.wait({work}, timeout=PING_EVERY_S)
            if not done:
                yield ping
        yield work.result()
    finally:
        work.cancel()
