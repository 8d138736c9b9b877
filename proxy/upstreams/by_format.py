"""An upstream for several formats: those that it does not speak are translated.

A translation loads litellm, so it is opened by the first request that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from proxy.http.wire.upstream import Upstream, UpstreamReply, UpstreamRequest


class SpokenUpstream:
    """An upstream that sends POSTs to paths of `others` there, and everything else to `direct`."""

    def __init__(self, direct: Upstream, others: Mapping[str, Callable[[], Upstream]]) -> None:
        self._direct = direct
        self._others = others
        self._opened: dict[str, Upstream] = {}

    def send(self, request: UpstreamRequest) -> Coroutine[Any, Any, UpstreamReply]:
        """Send a request the way its path requires; raises what that upstream raises."""
        path = request.path
        if path not in self._others or request.method != "POST":
            return self._direct.send(request)
        if path not in self._opened:
            self._opened[path] = self._others[path]()
        return self._opened[path].send(request)

    async def aclose(self) -> None:
        for upstream in (*self._opened.values(), self._direct):
            await upstream.aclose()
