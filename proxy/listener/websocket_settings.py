"""What uvicorn is told of WebSockets, without what serves them: most proxies never open one."""

from __future__ import annotations

import asyncio
from typing import Any, Final

PING_EVERY_S: Final = 20.0
PONG_WITHIN_S: Final = 60.0  # of a peer that reads; one that does not has to be gone for longer


def websocket_settings(max_size: int) -> dict[str, Any]:
    """The arguments of `uvicorn.Config`; messages of more than `max_size` bytes end with 1009."""
    return {
        "ws": _protocol,
        "ws_max_size": max_size,
        "ws_ping_interval": PING_EVERY_S,
        "ws_ping_timeout": PONG_WITHIN_S,
        "ws_per_message_deflate": False,
    }


def _protocol(**settings: Any) -> asyncio.Protocol:
    """In the place of its class."""
    from proxy.listener.websocket_protocol import WebSocketProtocol

    return WebSocketProtocol(**settings)
