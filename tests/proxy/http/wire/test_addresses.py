"""The addresses to which webhooks and fetched images may lead."""

from __future__ import annotations

import pytest

from proxy.http.public_addresses import AddressRefusedError, checked_address, is_public


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1"),
        *("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"),
        *("fec0::1", "feff::1", "3fff::1", "3fff:fff::1", "5f00::1", "100::1", "100:0:0:1::1"),
        *("192.88.99.1", "2001:2::1", "2001:10::1", "2001:20::1", "::ffff:0:127.0.0.1"),
        *("::ffff:168.63.129.16", "::127.0.0.1", "64:ff9b:1::7f00:1"),
    ],
)
def test_private_addresses_are_refused(address: str) -> None:
    """Private, local, carriers' and clouds' own addresses are refused, in IPv6 too."""
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "2001:4860:4860::8888", "2a00::1"]
)
def test_public_addresses_are_not(address: str) -> None:
    """Public addresses are allowed."""
    assert is_public(address)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "2130706433"])
async def test_a_name_is_as_private_as_its_address(host: str) -> None:
    """A name is looked up before it is checked, and can be allowed."""
    with pytest.raises(AddressRefusedError, match=r"not public|has no address"):
        await checked_address(host, 80, allow_private=False)
    assert await checked_address("127.0.0.1", 80, allow_private=True) == "127.0.0.1"
