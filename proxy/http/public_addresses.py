"""Checks that webhooks and fetched images lead to public addresses only.

A name is resolved once, and the connection goes to the address that was checked, so that a
different answer of the name server a moment later changes nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from concurrent.futures import Executor
from functools import partial
from typing import Final

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_ALSO_PRIVATE: Final = tuple(  # some versions of ipaddress call these global
    ipaddress.ip_network(each)
    for each in (
        "168.63.129.16/32",  # Azure's platform services, reachable from its machines only
        "192.0.0.0/24",  # IETF protocols (RFC 6890); Oracle's metadata
        "192.88.99.0/24",  # 6to4 relays (RFC 7526)
        "64:ff9b:1::/48",  # local IPv4/IPv6 translation (RFC 8215)
        "100:0:0:1::/64",  # dummy addresses (RFC 9780)
        "2001::/23",  # IETF protocols (RFC 2928); Teredo is resolved to IPv4 before
        "3fff::/20",  # documentation (RFC 9637)
        "5f00::/16",  # segment routing within a network (RFC 9602)
        "fec0::/10",  # site-local, replaced by fc00::/7 (RFC 3879)
    )
)


class AddressRefusedError(Exception):
    """A name has no address, or one that is not public."""


async def checked_address(
    host: str, port: int, *, allow_private: bool, threads: Executor | None = None
) -> str:
    """Resolve a host and return its first address.

    Names are looked up on `threads`, or on the event loop's own executor. Raises
    AddressRefusedError where the host has no address or, unless `allow_private`, one that is not
    public.
    """
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = await asyncio.get_running_loop().run_in_executor(threads, look_up)
    except (OSError, UnicodeError) as error:
        raise AddressRefusedError(f"{host} has no address") from error
    addresses = [str(each[4][0]) for each in found]
    for address in addresses:
        if not allow_private and not is_public(address):
            raise AddressRefusedError(
                f"{host} leads to {address}, which is not public (allow_private: true allows it)"
            )
    return addresses[0]


def is_public(address: str) -> bool:
    """Return whether an address is public; an embedded IPv4 address is checked instead."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    inner = _embedded_address(ip)
    if inner is not None:
        ip = inner
    is_special = ip.is_multicast or ip.is_reserved
    return ip.is_global and not is_special and not any(ip in each for each in _ALSO_PRIVATE)


def _embedded_address(address: IPAddress) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that an IPv6 address embeds, or None."""
    if not isinstance(address, ipaddress.IPv6Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo[1] if address.teredo else None
    return address.ipv4_mapped or address.sixtofour or teredo
