"""The protocol that hides an upstream: bytes go in, bytes come out.

Four implementations answer requests: `pool/` (an upstream whose format the client speaks, over
HTTP), `demo.py` (canned answers, no network) and `proxy/upstreams/translation/litellm_upstream.py`
(litellm). Others wrap them: `anthropic.py` (moves the key),
`proxy/upstreams/translation/messages.py` and `router.py` (chooses one by format). The rest of
the proxy cannot tell them apart.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from proxy.errors import UpstreamBrokenError
from proxy.http.wire.headers import Headers, WithHeaders, first_values

TIMERS_ARE_EARLY_S: Final = 0.005


def too_large(limit: int) -> UpstreamBrokenError:
    """Return the error for a reply of more than `limit` bytes."""
    return UpstreamBrokenError(f"upstream's reply is larger than {limit} bytes (limits.max_body)")


@dataclass(slots=True)
class UpstreamRequest:
    """A request to upstream; `path` is the part after `/v1`, with its slash."""

    method: str
    path: str
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    query: str = ""
    model: str | None = None  # the requested model, if the request is for one
    deadline: float | None = None  # when its reply must have begun, by the event loop's clock

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed, or will in milliseconds: uvloop's timers are coarse."""
        if self.deadline is None:
            return False
        return asyncio.get_running_loop().time() >= self.deadline - TIMERS_ARE_EARLY_S


class ReplyPieces(AsyncIterator[bytes]):
    """The pieces of a reply, as a connection receives them."""

    __slots__ = ()

    def leave_to(self, taker: Callable[[bytes], bool]) -> None:
        """Give each new piece to `taker` first, from now on, while the reader waits.

        The reader is woken if `taker` returns False. The event loop calls `taker`, which may not
        raise; it is released once no more pieces can arrive.
        """


async def _close_nothing() -> None:
    """Close nothing."""


@dataclass(slots=True)
class UpstreamReply(WithHeaders):
    """A reply whose status and headers have arrived; its body may still be arriving.

    Either `chunks` is iterated once, or `read` is awaited once. Whoever takes the reply calls
    `aclose`, which cancels what has not arrived yet.
    """

    status: int
    headers: Headers
    chunks: AsyncIterator[bytes]
    on_close: Callable[[], Awaitable[None]] = _close_nothing
    values: dict[bytes, bytes] = field(init=False)  # the first value of every header
    crossing: Headers | None = field(init=False, default=None)
    """The fields that are passed on to the client, without the body's length, if known already."""

    def __post_init__(self) -> None:
        self.values = first_values(self.headers)

    def is_whole(self) -> bool:
        """Return whether the head declares the body's length, so that upstream has finished it."""
        return b"content-length" in self.values

    def is_over(self) -> bool:
        """Return whether the whole reply is here already, so that there is nothing to close."""
        return False

    def whole(self, limit: int) -> bytes | None:
        """Return the whole body if it is here and has at most `limit` bytes, else None."""
        return None

    async def read(self, limit: int = sys.maxsize) -> bytes:
        """Read the whole body.

        Raises UpstreamBrokenError where it ends too early or exceeds `limit` bytes.
        """
        parts: list[bytes] = []
        size = 0
        async for chunk in self.chunks:
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                raise too_large(limit)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def aclose(self) -> None:
        """Close the reply; what has not arrived yet is cancelled upstream."""
        await self.on_close()


class Upstream(Protocol):
    """A server that answers requests.

    `send` raises UpstreamError (`proxy/errors.py`) where there is no HTTP answer at all.
    """

    async def send(self, request: UpstreamRequest) -> UpstreamReply: ...

    async def aclose(self) -> None: ...
