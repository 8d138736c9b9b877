"""uvicorn's settings of WebSockets, without the code that serves them: most proxies open none."""

from __future__ import annotations

import asyncio
from typing import Any, Final

PING_EVERY_S: Final = 20.0
PONG_WITHIN_S: Final = 60.0  # of a peer that reads; one that does not is given longer


def websocket_settings(max_size: int) -> dict[str, Any]:
    """Return arguments of `uvicorn.Config`.

    Messages above `max_size` bytes end with status 1009.
    """
    return {
        "ws": _protocol,
        "ws_max_size": max_size,
        "ws_ping_interval": PING_EVERY_S,
        "ws_ping_timeout": PONG_WITHIN_S,
        "ws_per_message_deflate": False,
    }


def _protocol(**settings: Any) -> asyncio.Protocol:
    """Make a protocol; used instead of the class, which is imported only when it is needed."""
    from proxy.http.listener.websocket_protocol import WebSocketProtocol

    return WebSocketProtocol(**settings)
