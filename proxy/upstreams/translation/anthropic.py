"""The relay to an upstream that speaks Anthropic's format: it only moves the key.

If a key is configured, the client's own key is not sent. If none is, the client's headers go
upstream unchanged.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.http.wire.headers import without
from proxy.http.wire.upstream import Upstream, UpstreamReply, UpstreamRequest

KEY_HEADERS = (b"authorization", b"x-api-key")


class AnthropicRelay:
    """An upstream in Anthropic's format behind `relay`, which has no key of its own.

    With `is_both` it speaks OpenAI's format too, and paths of that format get the key in
    `authorization`.
    """

    def __init__(self, relay: Upstream, api_key: str = "", *, is_both: bool = False) -> None:
        self._relay = relay
        self._api_key = api_key.encode()
        self._is_both = is_both

    async def send(self, request: UpstreamRequest) -> UpstreamReply:
        """Send a request, with the configured key in place of the client's if there is one.

        Raises UpstreamError where no answer begins; an error status is an answer.
        """
        if self._api_key:
            headers = without(request.headers, *KEY_HEADERS)
            request = replace(request, headers=[*headers, self._key_field(request.path)])
        return await self._relay.send(request)

    def _key_field(self, path: str) -> tuple[bytes, bytes]:
        """Return (name, value) of the header field with the configured key for a path.

        It is `x-api-key`, or `authorization` for paths of OpenAI's format.
        """
        if self._is_both and not path.startswith("/messages"):
            return b"authorization", b"Bearer " + self._api_key
        return b"x-api-key", self._api_key

    async def aclose(self) -> None:
        await self._relay.aclose()


def with_v1(base_url: str) -> str:
    """Return the URL with `/v1`: Anthropic's own clients omit it, other tools do not."""
    base_url = base_url.rstrip("/")
    return base_url if base_url.endswith("/v1") else f"{base_url}/v1"


def without_v1(base_url: str) -> str:
    """Return the URL without `/v1` and slashes at its end."""
    return base_url.rstrip("/").removesuffix("/v1")
