"""Where webhooks and fetched images may lead: public addresses, each looked at before it is used.

A name is resolved once and the connection goes to the address that was checked, so that another
answer of the name server's, a moment later, changes nothing.
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
_ALSO_PRIVATE: Final = tuple(  # though ipaddress, in some versions, calls them global
    ipaddress.ip_network(each)
    for each in (
        "168.63.129.16/32",  # Azure's, to each of its machines alone
        "192.0.0.0/24",  # for protocols (RFC 6890); Oracle's metadata
        "192.88.99.0/24",  # relays of 6to4, which lead into it (RFC 7526)
        "64:ff9b:1::/48",  # translation within a network (RFC 8215)
        "100:0:0:1::/64",  # for nobody (RFC 9780)
        "2001::/23",  # for protocols (RFC 2928), but for what stands for an address of IPv4
        "3fff::/20",  # for documents (RFC 9637)
        "5f00::/16",  # segments of routes within a network (RFC 9602)
        "fec0::/10",  # of a site, as fc00::/7 is now (RFC 3879)
    )
)


class AddressRefusedError(Exception):
    """A name that leads nowhere, or into this network."""


async def checked_address(
    host: str, port: int, *, allow_private: bool, threads: Executor | None = None
) -> str:
    """An address of the host; raises AddressRefusedError if any of them is not public.

    Names are looked up on `threads`, or the event loop's own.
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
    """Whether an address is one of the internet's, also where it stands for one of IPv4."""
    found = ipaddress.ip_address(address.partition("%")[0])
    inner = _inside(found)
    if inner is not None:
        found = inner
    is_special = found.is_multicast or found.is_reserved
    return found.is_global and not is_special and not any(found in each for each in _ALSO_PRIVATE)


def _inside(address: IPAddress) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address leads to."""
    if not isinstance(address, ipaddress.IPv6Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo[1] if address.teredo else None
    return address.ipv4_mapped or address.sixtofour or teredo
