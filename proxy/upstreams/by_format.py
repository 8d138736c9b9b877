"""An upstream in the formats that it speaks; what it does not speak is translated.

A translation loads litellm, so it is opened by the first request that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from proxy.upstreams.upstream import Upstream, UpstreamReply, UpstreamRequest


class SpokenUpstream:
    """Everything goes to `direct`, but for the POSTs to the paths that have a way of their own."""

    def __init__(self, direct: Upstream, others: Mapping[str, Callable[[], Upstream]]) -> None:
        self._direct = direct
        self._others = others
        self._opened: dict[str, Upstream] = {}

    def send(self, request: UpstreamRequest) -> Coroutine[Any, Any, UpstreamReply]:
        """As the way raises that the request goes."""
        path = request.path
        if path not in self._others or request.method != "POST":
            return self._direct.send(request)
        if path not in self._opened:
            self._opened[path] = self._others[path]()
        return self._opened[path].send(request)

    async def aclose(self) -> None:
        for upstream in (*self._opened.values(), self._direct):
            await upstream.aclose()
