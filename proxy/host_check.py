"""While the proxy is open (no client keys), only requests that name this machine are answered.

A page in a browser can make requests to loopback under a name of its own (DNS rebinding); `Host`
tells them apart.
"""

from __future__ import annotations

import ipaddress

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.asgi import error_reply, send_reply
from proxy.errors import HostNotAllowedError


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine and nobody else."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def host_of(field: str) -> str:
    """The name in a `Host` header, without its port and brackets."""
    if field.startswith("["):
        return field[1:].split("]")[0]
    return field.rsplit(":", 1)[0] if field.count(":") == 1 else field


class LoopbackHostOnly:
    """ASGI middleware; refuses every other `Host` with 403."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        fields = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(fields) == 1 and is_loopback(host_of(fields[0].strip().lower())):
            await self._app(scope, receive, send)
            return
        error = HostNotAllowedError(
            "Host must be localhost or a loopback address while no client keys are configured"
        )
        await send_reply(error_reply(error), send)
