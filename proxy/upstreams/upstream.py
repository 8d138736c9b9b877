"""What the proxy knows of an upstream: bytes go in, bytes come out.

Four parts speak this protocol: `pool/` (an upstream whose format the client
speaks, over HTTP), `demo.py` (canned answers, no network) and
`proxy/upstreams/translation/litellm_upstream.py` (litellm). So do those that stand before them:
`anthropic.py` (whose key goes where), `proxy/upstreams/translation/messages.py` and `by_format.py`
(which way a format goes). The rest of the proxy cannot tell them apart.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from proxy.errors import UpstreamBrokenError
from proxy.wire.headers import Headers, WithHeaders, first_values

TIMERS_ARE_EARLY_S: Final = 0.005


def too_large(limit: int) -> UpstreamBrokenError:
    """What ends the reading of a reply of more than `limit` bytes."""
    return UpstreamBrokenError(f"upstream's reply is larger than {limit} bytes (limits.max_body)")


@dataclass(slots=True)
class UpstreamRequest:
    """One request as it leaves for upstream: `path` is what follows `/v1`, with its slash."""

    method: str
    path: str
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    query: str = ""
    model: str | None = None  # that is asked, where it is one's
    deadline: float | None = None  # when its reply has to begin, by the clock of the event loop

    @property
    def is_late(self) -> bool:
        """Whether its deadline has passed, or nearly: timers of uvloop go by milliseconds."""
        if self.deadline is None:
            return False
        return asyncio.get_running_loop().time() >= self.deadline - TIMERS_ARE_EARLY_S


class Arriving(AsyncIterator[bytes]):
    """The pieces of a reply, as a connection receives them."""

    __slots__ = ()

    def leave_to(self, taker: Callable[[bytes], bool]) -> None:
        """From now on, while their reader waits, `taker` is given each one first; the reader is
        woken where it gives False. It is called by the event loop and may not raise; once no more
        can arrive it is let go."""


async def _nothing() -> None:
    """There is nothing to close."""


@dataclass(slots=True)
class UpstreamReply(WithHeaders):
    """Status and headers are here, the body comes as it arrives.

    `chunks` may be iterated once, or `read` awaited once. Whoever takes the reply calls `aclose`,
    which cancels what has not arrived yet.
    """

    status: int
    headers: Headers
    chunks: AsyncIterator[bytes]
    on_close: Callable[[], Awaitable[None]] = _nothing
    values: dict[bytes, bytes] = field(init=False)  # the first value of every header
    crossing: Headers | None = field(init=False, default=None)
    """Those that go on to the client, but for the body's length, where that is known already."""

    def __post_init__(self) -> None:
        self.values = first_values(self.headers)

    def is_whole(self) -> bool:
        """Whether upstream has finished the answer, going by its head: its length is known."""
        return b"content-length" in self.values

    def is_over(self) -> bool:
        """Whether all of it is here already, so that there is nothing to close."""
        return False

    def whole(self, limit: int) -> bytes | None:
        """The whole body, if all of it is here and it is not too large; else it has to be read."""
        return None

    async def read(self, limit: int = sys.maxsize) -> bytes:
        """The whole body; raises UpstreamBrokenError when it ends too early or exceeds `limit`."""
        parts: list[bytes] = []
        size = 0
        async for chunk in self.chunks:
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                raise too_large(limit)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def aclose(self) -> None:
        await self.on_close()


class Upstream(Protocol):
    """Answers requests; raises UpstreamError (`proxy/errors.py`) when there is no HTTP answer at
    all."""

    async def send(self, request: UpstreamRequest) -> UpstreamReply: ...

    async def aclose(self) -> None: ...
