"""Heartbeats, which keep a connection alive between a reply's status and its body."""

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
    """Wait for the work or one of the others, and return whether the work is done.

    Waits at most `within_s` seconds. If the wait is cancelled, so is the work.
    """
    try:
        await asyncio.wait({work, *others}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        work.cancel()
        raise
    return work.done()


async def late(
    body: asyncio.Future[bytes], error_event: Callable[[ProxyError], bytes] | None
) -> AsyncIterator[bytes]:
    """Yield pings until the body is done, then the body.

    If `body` raises ProxyError, yields it as an event (`error_event`) or, for a JSON body, raises
    it, which breaks the body off.
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
    """Yield pings while `work` goes on, then its bytes; its exceptions are passed on.

    The first ping comes after `PING_EVERY_S` seconds, so that quick work needs none. If the
    iteration is closed early, the work is cancelled and awaited.
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
