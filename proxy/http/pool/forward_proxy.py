"""Tunnels to an upstream through a company's forward proxy: HTTPS_PROXY, by CONNECT.

Only upstreams under https:// use it; those under http:// are on the local network. NO_PROXY names
hosts that are reached directly.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import os
import re
import socket
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from proxy.errors import ExitStatus, StartupError, UpstreamError

VARIABLES: Final = ("https_proxy", "HTTPS_PROXY")  # the first one that is set is used
_MOST_BYTES: Final = 16_384  # of a proxy's reply before the tunnel is open
_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3})")


@dataclass(frozen=True, slots=True)
class ForwardProxy:
    """A forward proxy; `authorization` is the value of a header, empty if none is needed."""

    host: str
    port: int
    authorization: bytes = b""

    @property
    def where(self) -> str:
        """Its URL without user name and password."""
        return f"http://{self.host}:{self.port}"


def forward_proxy_for(scheme: str, host: str) -> ForwardProxy | None:
    """Return the proxy of the environment for an upstream; None if it is reached directly.

    Raises StartupError where the variable is no address of a proxy.
    """
    url = next(filter(None, (os.environ.get(name, "").strip() for name in VARIABLES)), None)
    if scheme != "https" or url is None:
        return None
    from urllib.request import proxy_bypass

    if proxy_bypass(host) or is_excepted(host, _exceptions()):
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        name, port = parts.hostname, parts.port or 80
    except ValueError:
        parts, name, port = urlsplit(""), None, 0
    if parts.scheme != "http" or not name:
        text = "HTTPS_PROXY must be the address of a proxy, as in http://proxy.example.com:3128"
        raise StartupError(ExitStatus.UNUSABLE_INPUT, text)
    login = b""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        login = b"Basic " + base64.b64encode(pair.encode())
    return ForwardProxy(name, port, login)


def _exceptions() -> str:
    """Return the value of `no_proxy` or NO_PROXY, empty if neither is set."""
    return os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""


def is_excepted(host: str, exceptions: str) -> bool:
    """Return whether a list in the form of NO_PROXY names a host, its domain or its network.

    Beyond what Python's clients read, an entry may be a network (`10.0.0.0/8`), begin with `*.`, or
    end with a port or a dot, as other clients allow.
    """
    host = host.lower().rstrip(".")
    for entry in exceptions.lower().split(","):
        name = entry.strip().removeprefix("*").rstrip(".")
        if name.count(":") == 1:
            name = name.partition(":")[0]
        if name and (host == name.lstrip(".") or host.endswith(f".{name.lstrip('.')}")):
            return True
        if "/" in name and _is_in(host, name):
            return True
    return False


def _is_in(host: str, network: str) -> bool:
    """Return whether a host is an address of a network; False for names."""
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


async def open_tunnel(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, proxy: ForwardProxy, authority: str
) -> None:
    """Request a tunnel to `authority` (host and port) from a proxy, over a connected socket.

    Raises UpstreamError where the proxy refuses or ends the connection, and OSError where the
    socket fails.
    """
    target = authority.encode("ascii")
    head = b"CONNECT %b HTTP/1.1\r\nhost: %b\r\n" % (target, target)
    if proxy.authorization:
        head += b"proxy-authorization: " + proxy.authorization + b"\r\n"
    await loop.sock_sendall(sock, head + b"\r\n")
    reply = b""
    while b"\r\n\r\n" not in reply:
        if len(reply) > _MOST_BYTES:
            raise UpstreamError(f"the proxy at {proxy.where} (HTTPS_PROXY) says too much")
        part = await loop.sock_recv(sock, 4_096)  # nothing follows: in TLS the client speaks first
        if not part:
            raise UpstreamError(f"the proxy at {proxy.where} (HTTPS_PROXY) ended the connection")
        reply += part
    status = _STATUS.match(reply)
    if status is None or not status[1].startswith(b"2"):
        code = status[1].decode() if status else "no status"
        text = f"the proxy at {proxy.where} (HTTPS_PROXY) opens no tunnel to {authority} ({code})"
        raise UpstreamError(text)
