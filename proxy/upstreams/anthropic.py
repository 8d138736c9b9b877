"""The way to an upstream that speaks Anthropic's format: a relay, but for where the key stands.

With a key configured the client's own stay here. Without, its headers go upstream as they are.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.upstreams.upstream import Upstream, UpstreamReply, UpstreamRequest
from proxy.wire.headers import without

KEY_HEADERS = (b"authorization", b"x-api-key")


class AnthropicRelay:
    """Goes through `relay`, which has no key of its own.

    With `is_both` upstream speaks OpenAI's format too, and the key stands where that has it.
    """

    def __init__(self, relay: Upstream, api_key: str = "", *, is_both: bool = False) -> None:
        self._relay = relay
        self._api_key = api_key.encode()
        self._is_both = is_both

    async def send(self, request: UpstreamRequest) -> UpstreamReply:
        """Raises UpstreamError when no answer begins; an error status is an answer."""
        if self._api_key:
            kept = without(request.headers, *KEY_HEADERS)
            request = replace(request, headers=[*kept, self._key_field(request.path)])
        return await self._relay.send(request)

    def _key_field(self, path: str) -> tuple[bytes, bytes]:
        if self._is_both and not path.startswith("/messages"):
            return b"authorization", b"Bearer " + self._api_key
        return b"x-api-key", self._api_key

    async def aclose(self) -> None:
        await self._relay.aclose()


def with_v1(base_url: str) -> str:
    """Anthropic's own clients are given the URL without `/v1`, other tools with it; both work."""
    base_url = base_url.rstrip("/")
    return base_url if base_url.endswith("/v1") else f"{base_url}/v1"


def without_v1(base_url: str) -> str:
    return base_url.rstrip("/").removesuffix("/v1")
