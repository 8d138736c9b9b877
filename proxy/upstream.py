"""What the proxy knows of an upstream: bytes go in, bytes come out.

Three parts speak this protocol: `relay.py` (an upstream that speaks OpenAI's format, over HTTP),
`demo.py` (canned answers, no network) and `translate.py` (litellm). The rest of the proxy cannot
tell them apart.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

Headers = list[tuple[str, str]]
"""Header fields in their order, names in lower case; a name may occur more than once."""


def header(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    """The first value of `name` (lower case), or None."""
    return next((value for key, value in headers if key == name), None)


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """One request as it leaves for upstream: `path` is what follows `/v1`, with its slash."""

    method: str
    path: str
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    query: str = ""


async def _nothing() -> None:
    """There is nothing to close."""


@dataclass(slots=True)
class UpstreamReply:
    """Status and headers are here, the body comes as it arrives.

    `chunks` may be iterated once. Whoever takes the reply calls `aclose`, which cancels what has
    not arrived yet.
    """

    status: int
    headers: Headers
    chunks: AsyncIterator[bytes]
    on_close: Callable[[], Awaitable[None]] = _nothing

    def header(self, name: str) -> str | None:
        return header(self.headers, name)

    async def read(self) -> bytes:
        """The whole body; raises UpstreamBrokenError when it ends too early."""
        return b"".join([chunk async for chunk in self.chunks])

    async def aclose(self) -> None:
        await self.on_close()


class Upstream(Protocol):
    """Answers requests; raises UpstreamError (`errors.py`) when there is no HTTP answer at all."""

    async def send(self, request: UpstreamRequest) -> UpstreamReply: ...

    async def aclose(self) -> None: ...
