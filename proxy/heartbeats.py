"""A buffered stream whose status is out already: comments keep it alive until it is settled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from proxy.answer import error_event
from proxy.asgi import Reply
from proxy.errors import ProxyError
from proxy.exchange import Exchange

PING = b": ping\n\n"
PING_EVERY_S = 10.0


async def pings_until(work: asyncio.Task[Reply], exchange: Exchange) -> AsyncIterator[bytes]:
    """Pings while `work` goes on, then the bytes or the error that it ends in."""
    try:
        with exchange.logged():
            while not work.done():
                yield PING
                await asyncio.wait({work}, timeout=PING_EVERY_S)
            body = work.result().body
    except ProxyError as error:
        body = error_event(error)
    finally:
        work.cancel()
    assert isinstance(body, bytes)  # a settled reply is whole
    yield body
