"""While the proxy is open (no client keys), only requests of this machine are answered.

Any page in a browser can make requests to loopback: under a name of its own (DNS rebinding), which
`Host` tells, and under the right one, which `Origin` and `Sec-Fetch-Site` tell. That the page may
not read the answer, or has to ask for permission first, does not help where asking costs money.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from proxy.errors import HostNotAllowedError
from proxy.listener.request_heads import is_host
from proxy.wire.bounded_cache import remembers
from proxy.wire.headers import Headers, name_of

_OF_BROWSERS = frozenset({b"origin", b"sec-fetch-site"})


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


@remembers(256)
def _is_allowed(field: bytes) -> bool:
    return is_host(field) and is_loopback(host_of(field.decode("ascii").lower()))


def check_host(headers: Headers, reason: str = "while no client keys are configured") -> None:
    """Raises HostNotAllowedError for any `Host` but this machine's."""
    names = [*map(name_of, headers)]
    if names.count(b"host") != 1 or not _is_allowed(headers[names.index(b"host")][1]):
        raise HostNotAllowedError(f"Host must be localhost or a loopback address {reason}")


def check_local(headers: Headers, reason: str = "while no client keys are configured") -> None:
    """Raises HostNotAllowedError for any `Host` but this machine's, and for pages from elsewhere.

    An `Origin` says whose page asks. Where a browser sends none, it may say that the page is of
    another site; programs send neither.
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
    try:
        place = urlsplit(origin.decode("latin-1").strip()).netloc.encode("latin-1")
    except ValueError:
        return False
    return bool(place) and _is_allowed(place)
