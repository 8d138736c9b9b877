"""The check that an open proxy (one without client keys) answers requests of this machine only.

Any web page in a browser can send requests to loopback. It may use a host name of its own (DNS
rebinding), which `Host` reveals, or the right one, which `Origin` and `Sec-Fetch-Site` reveal. The
browser may keep the page from reading the answer, but by then the request has already cost money.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from proxy.errors import HostNotAllowedError
from proxy.http.listener.request_heads import is_host
from proxy.http.wire.bounded_cache import remembers
from proxy.http.wire.headers import Headers, name_of

_OF_BROWSERS = frozenset({b"origin", b"sec-fetch-site"})


def is_loopback(host: str) -> bool:
    """Return whether a host name or address refers to this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def host_of(field: str) -> str:
    """Return the name in a `Host` header, without its port and brackets."""
    if field.startswith("["):
        return field[1:].split("]")[0]
    return field.rsplit(":", 1)[0] if field.count(":") == 1 else field


@remembers(256)
def _is_allowed(field: bytes) -> bool:
    """Return whether a `Host` field is well formed and names this machine."""
    return is_host(field) and is_loopback(host_of(field.decode("ascii").lower()))


def check_host(headers: Headers, reason: str = "while no client keys are configured") -> None:
    """Refuse a request whose `Host` does not name this machine.

    Raises HostNotAllowedError, also where `Host` is missing or repeated. `reason` ends the error's
    sentence.
    """
    names = [*map(name_of, headers)]
    if names.count(b"host") != 1 or not _is_allowed(headers[names.index(b"host")][1]):
        raise HostNotAllowedError(f"Host must be localhost or a loopback address {reason}")


def check_local(headers: Headers, reason: str = "while no client keys are configured") -> None:
    """Refuse a request to another `Host`, or from a web page that this machine does not serve.

    `Origin` names the page that sent the request. Where a browser sends none, `Sec-Fetch-Site` may
    say that the page belongs to another site. Programs send neither. Raises HostNotAllowedError.
    """
    check_host(headers, reason)
    if _OF_BROWSERS.isdisjoint(map(name_of, headers)):
        return
    has_origin = is_cross_site = False
    for name, value in headers:
        if name == b"origin":
            has_origin = True
            if not _is_local_page(value):
                text = f"Origin must be localhost or a loopback address {reason}"
                raise HostNotAllowedError(text, code="origin_not_allowed")
        elif name == b"sec-fetch-site":
            is_cross_site |= value.strip().lower() == b"cross-site"
    if is_cross_site and not has_origin:
        text = f"a page of another site sent this (Sec-Fetch-Site), {reason}"
        raise HostNotAllowedError(text, code="origin_not_allowed")


@remembers(256)
def _is_local_page(origin: bytes) -> bool:
    """Return whether an `Origin` names a page that this machine serves."""
    try:
        place = urlsplit(origin.decode("latin-1").strip()).netloc.encode("latin-1")
    except ValueError:
        return False
    return bool(place) and _is_allowed(place)
