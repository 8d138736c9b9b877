"""Detection of an upstream that is this proxy itself, which would multiply each request.

If the address gives it away, the start is refused. If it does not (behind a load balancer, through
another proxy), the first request that comes back is refused: each request carries the marks of the
proxies that it has passed, in `x-pinocchio-via`, and may not pass the same one twice. Processes
with the same store and the same upstreams count as one proxy and have the same mark; consecutive
proxies have different ones.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from proxy.config.sections import Config
from proxy.config.settings.problems import add_location
from proxy.errors import ExitStatus, StartupError, UpstreamLoopError
from proxy.http.wire.headers import VIA, name_of
from proxy.http.wire.http import Scope
from proxy.store.database.tables import path_of, place_of

_MARK: Final = re.compile(rb"[0-9a-f]{16}")
_MOST_MARKS: Final = 16  # a longer chain of proxies counts as a loop


def mark_of(config: Config) -> bytes:
    """Return the mark of this deployment's proxies: 16 hexadecimal digits of a hash.

    It depends on the store and the upstreams' addresses, and reveals neither.
    """
    path = path_of(config.store)
    store = f"{socket.gethostname()}:{path.resolve()}" if path else place_of(config.store)
    upstreams = [(name, each.base_url) for name, each in sorted(config.upstreams.items())]
    return hashlib.sha256(repr((store, upstreams)).encode()).hexdigest()[:16].encode()


def pass_on(scope: Scope, mark: bytes) -> None:
    """Add the mark to `x-pinocchio-via` in a request's headers, which are changed in place.

    Raises UpstreamLoopError where the request has this mark already, or `_MOST_MARKS` marks.
    """
    fields = scope["headers"]
    if VIA not in map(name_of, fields):
        fields.append((VIA, mark))
        return
    header = b",".join(value for name, value in fields if name == VIA)
    marks = [mark.strip() for mark in header.split(b",")]
    passed = [each for each in marks if _MARK.fullmatch(each)]
    if mark in passed or len(passed) >= _MOST_MARKS:
        raise UpstreamLoopError()
    kept = [field for field in fields if field[0] != VIA]
    scope["headers"] = [*kept, (VIA, b",".join([*passed, mark]))]


def check_upstreams(config: Config, path: Path | None, host: str, port: int) -> None:
    """Refuse an upstream at `host` and `port`, where this proxy listens; raises StartupError.

    `path` is the configuration's file, for the message.
    """
    for name, upstream in config.upstreams.items():
        if upstream.base_url and is_at(upstream.base_url, host, port):
            text = (
                f"upstream {name!r} is this proxy itself ({address_of(upstream.base_url)}): every "
                "request would come back for ever; name the model server here"
            )
            if os.environ.get("OPENAI_BASE_URL") == upstream.base_url:
                text += ", or unset OPENAI_BASE_URL, which is for clients, where the proxy starts"
            message = add_location(path, ("upstreams", name, "base_url"), text)
            raise StartupError(ExitStatus.UNUSABLE_INPUT, message)


def address_of(base_url: str) -> str:
    """Return a URL without user name, password and query, to be shown to people."""
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def is_at(base_url: str, host: str, port: int) -> bool:
    """Return whether a URL leads to the listener at a host and port.

    False where a name cannot be looked up.
    """
    try:
        parts = urlsplit(base_url)
        if (parts.port or (443 if parts.scheme == "https" else 80)) != port:
            return False
        addresses, own_addresses = _addresses(parts.hostname or ""), _addresses(host)
    except (ValueError, OSError):
        return False
    if any(each.is_unspecified for each in own_addresses):  # the listener is on every address
        return any(map(_is_of_this_machine, addresses))
    return not addresses.isdisjoint(
        own_addresses | {_EVERY[each.version] for each in own_addresses if each.is_loopback}
    )


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_EVERY: Final[Mapping[int, _Address]] = {  # mean this machine when used as a destination
    4: ipaddress.IPv4Address("0.0.0.0"),
    6: ipaddress.IPv6Address("::"),
}


def _addresses(host: str) -> set[_Address]:
    """Look up the addresses of a host, with the IPv4 address of each mapped IPv6 address.

    Raises OSError where the name cannot be looked up.
    """
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    addresses = {ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found}
    mapped = {each.ipv4_mapped for each in addresses if isinstance(each, ipaddress.IPv6Address)}
    return addresses | {each for each in mapped if each is not None}


def _is_of_this_machine(address: _Address) -> bool:
    """Return whether an address is one of this machine's, as only these can be bound."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((str(address), 0))
        except OSError:
            return False
    return True
