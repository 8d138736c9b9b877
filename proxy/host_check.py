"""While the proxy is open (no client keys), only requests that name this machine are answered.

A page in a browser can make requests to loopback under a name of its own (DNS rebinding); `Host`
tells them apart.
"""

from __future__ import annotations

import ipaddress

from proxy.errors import HostNotAllowedError
from proxy.remembering import remembers
from proxy.request_heads import is_host
from proxy.upstream import Headers


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
    hosts, is_allowed = 0, False
    for name, value in headers:
        if name == b"host":
            hosts += 1
            is_allowed = _is_allowed(value)
    if hosts != 1 or not is_allowed:
        raise HostNotAllowedError(f"Host must be localhost or a loopback address {reason}")
